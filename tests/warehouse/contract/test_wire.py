"""The wire format: round trips, and hostile input that is refused with its place."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.contract import model, wire
from warehouse.contract.errors import BadInputError
from warehouse.contract.metrics import BY_NAME, CATALOGUE, is_possible
from warehouse.contract.units import iso, ratio

TEXT = st.text(max_size=20)
NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(TEXT, NUMBER), min_size=1, max_size=5), st.integers(0, 2**62))
def test_what_is_encoded_is_decoded(rows: list[tuple[str, float | None]], sequence: int) -> None:
    records = [model.Job(f"c/{n}#0", "c", str(n), "s", name=name, submit_at=at) for n, (name, at) in enumerate(rows)]
    batch = wire.Batch("agent", "boot", sequence, 1.5, wire.from_records(records), part=2)
    assert wire.decode(wire.encode(batch)) == batch


def document(**changes: object) -> bytes:
    """Give a small valid document with changes, packed."""
    whole = {"version": 1, "agent": "a", "boot_id": "b", "sequence": 1, "part": 0, "sent_at": 0, "tables": {}}
    return gzip.compress(json.dumps({**whole, **changes}).encode())


def test_the_small_document_is_valid() -> None:
    assert wire.decode(document()).agent == "a"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 2}, "version 1"),
        ({"agent": ""}, "agent"),
        ({"agent": "x" * 201}, "agent"),
        ({"sequence": -1}, "sequence"),
        ({"sequence": True}, "sequence"),
        ({"sequence": 2**63}, "sequence"),
        ({"sent_at": "now"}, "sent_at"),
        ({"tables": []}, "tables"),
        ({"tables": {"nothing": {}}}, "unknown table"),
        ({"tables": {"job": []}}, "expected rows and columns"),
        ({"tables": {"job": {"rows": 1, "columns": {"colour": 1}}}}, "unknown column"),
        ({"tables": {"job": {"rows": 2, "columns": {"name": ["a"]}}}}, "expected 2 values"),
        ({"tables": {"job": {"rows": 1, "columns": {"name": {}}}}}, "expected 1 values"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(changes: dict[str, object], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        wire.decode(document(**changes))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_and_never_crash(body: bytes) -> None:
    with pytest.raises(BadInputError):
        wire.decode(body)


def test_one_value_for_all_rows_cannot_stand_for_more_than_fits_into_memory() -> None:
    many = {"job": {"rows": wire.MAX_ROWS + 1, "columns": {"job_key": "k"}}}
    with pytest.raises(BadInputError, match="at most 1000000 are taken"):
        wire.decode(document(tables=many))
    long = {"job": {"rows": wire.MAX_ROWS, "columns": {"job_key": "k" * 300}}}
    with pytest.raises(BadInputError, match=r"job\.job_key: its text 1000000 times"):
        wire.decode(document(tables=long))


def test_a_cut_gzip_is_refused() -> None:
    with pytest.raises(BadInputError, match="cut short"):
        wire.decode(document()[:-9])


def test_every_metric_says_what_it_is_and_ends_in_its_unit() -> None:
    for metric in CATALOGUE:
        assert metric.name.endswith(f"_{metric.unit}"), metric.name
        assert metric.help.endswith("."), metric.name
        assert metric.vendor_field, metric.name


def test_a_time_within_the_cadence_never_exceeds_it_and_nan_is_never_possible() -> None:
    bound = BY_NAME["gpu_bound_seconds"]
    assert is_possible(bound, 10.0, 10.0)
    assert not is_possible(bound, 10.1, 10.0)
    assert not is_possible(bound, float("nan"), 10.0)
    assert not is_possible(BY_NAME["driver_util_ratio"], 42949672.95, 10.0)


def test_an_unknown_ratio_is_not_zero() -> None:
    assert ratio(1.0, 0.0) is None
    assert ratio(None, 1.0) is None
    assert ratio(0.0, 2.0) == 0.0


def test_instants_are_shown_in_utc_with_a_z() -> None:
    assert (iso(0.0), iso(1.5), iso(None)) == ("1970-01-01T00:00:00Z", "1970-01-01T00:00:01.500Z", None)
