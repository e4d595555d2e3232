"""Hostile bytes break nothing: 20,000 cases over every reader, and batches of values of any kind in known columns."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.warehouse.fuzzing import VALUES, fuzz, targets, writer
from warehouse import batches
from warehouse.contract import wire
from warehouse.contract.errors import BadInputError
from warehouse.store import Store, open_store

CASES, MOST_SECONDS = 20_000, 60.0
LEAST_OF_EACH = 100
"""A busy machine may not get through all cases in the time, but through so many of each reader."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_thousand_hostile_documents_are_read_or_refused_and_nothing_is_half_written(tmp_path: Path) -> None:
    write, close = writer(tmp_path / "data")
    tallies = fuzz(tmp_path, CASES, MOST_SECONDS, write)
    close()
    assert set(tallies) == set(targets(tmp_path))
    assert all(tally.cases >= LEAST_OF_EACH for tally in tallies.values()), tallies
    assert all(tally.accepted > 0 for tally in tallies.values()), tallies


def test_every_reader_takes_its_own_document(tmp_path: Path) -> None:
    for target in targets(tmp_path).values():
        for document in target.documents:
            target.read(document)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Give one store for all examples."""
    opened = open_store(tmp_path_factory.mktemp("data"), create=True)
    yield opened
    opened.close()


scalars = st.sampled_from(VALUES) | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, object]:
    """Give a batch of known tables and columns whose values are of any kind."""
    tables: dict[str, object] = {}
    for name in draw(st.lists(st.sampled_from(sorted(wire.TABLE_COLUMNS)), max_size=3, unique=True)):
        rows = draw(st.integers(0, 3))
        column = st.lists(scalars, min_size=rows, max_size=rows) | scalars
        known = st.sampled_from(sorted(wire.TABLE_COLUMNS[name]))
        tables[name] = {"rows": rows, "columns": draw(st.dictionaries(known, column, max_size=6))}
    heads = {"version": 1, "agent": "n", "boot_id": "b", "sequence": draw(st.integers(0, 2**63 - 1)), "part": 0}
    return {**heads, "sent_at": draw(st.floats(0, 4e9)), "tables": tables}


def decoded(document: dict[str, object]) -> wire.Batch | None:
    """Give the batch of a document, if it is one."""
    body = gzip.compress(json.dumps(document).encode("utf-8", "surrogatepass"), compresslevel=1)
    try:
        return wire.decode(body, orjson.loads)
    except BadInputError:
        return None


def checked_alone(batch: wire.Batch) -> batches.Checked | None:
    """Give what a batch becomes by itself; None: it is refused."""
    try:
        return batches.check(batch)
    except BadInputError:
        return None


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(group=st.lists(documents(), min_size=1, max_size=4))
def test_values_of_any_kind_in_known_columns_are_refused_or_written_whole_and_cost_no_other_batch(
    store: Store, group: list[dict[str, object]]
) -> None:
    given_batches = [batch for batch in map(decoded, group) if batch is not None]
    alone = [checked_alone(batch) for batch in given_batches]
    together = [item if isinstance(item, batches.Checked) else None for item in batches.check_all(given_batches)]
    for one, same in zip(alone, together, strict=True):
        assert (one is None) == (same is None)
        if one is not None and same is not None:
            assert (one.rows, dict(one.rejected), set(one.tables)) == (same.rows, dict(same.rejected), set(same.tables))
    accepted = [batch for batch in together if batch is not None]
    for batch, result in zip(accepted, batches.commit(store, accepted), strict=True):
        assert result.duplicate or result.rows == batch.rows
