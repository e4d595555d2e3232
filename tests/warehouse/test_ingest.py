"""Batches come in once and whole; impossible values are counted, never stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from warehouse.client import RecordId
from warehouse.contract import model, wire
from warehouse.contract.errors import BadInputError
from warehouse.ingest import accept_batch, load_import, past_attempts, which_are_new
from warehouse.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = open_store(tmp_path, create=True)
    yield opened
    opened.close()


def samples(**columns: wire.Column) -> wire.Batch:
    """Give a batch of two samples of one device, 10 s apart."""
    table = wire.Table(
        2,
        {
            "cluster": "c",
            "node": "n",
            "device_uuid": "GPU-1",
            "sampled_at": [0.0, 10.0],
            "cadence_seconds": 10.0,
            "source": "nvml",
            **columns,
        },
    )
    return wire.Batch("n", "boot", 1, 0.0, {"device_sample": table})


def test_a_batch_sent_again_adds_nothing(store: Store) -> None:
    batch = samples(driver_util_ratio=[0.5, 0.25])
    assert accept_batch(store, batch).rows == 2
    assert accept_batch(store, batch).duplicate
    assert store.read("SELECT sum(driver_util_ratio) AS s, count(*) AS n FROM device_sample").to_pylist() == [
        {"s": 0.75, "n": 2}
    ]


def test_another_part_of_the_same_sequence_is_another_batch(store: Store) -> None:
    batch = samples(driver_util_ratio=0.5)
    accept_batch(store, batch)
    assert not accept_batch(store, dataclasses.replace(batch, part=1)).duplicate


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("driver_util_ratio", 1.5),
        ("driver_util_ratio", -0.1),
        ("gpu_bound_seconds", 10.5),
        ("energy_joules", -1.0),
        ("memory_used_bytes", float("inf")),
    ],
)
def test_a_value_that_cannot_be_true_is_absent_and_counted(store: Store, column: str, value: float) -> None:
    result = accept_batch(store, samples(temperature_celsius=[40.0, 41.0], **{column: [value, None]}))
    assert result.rejected_values == 1
    rows = store.read(f"SELECT {column} AS v, temperature_celsius AS t FROM device_sample ORDER BY t").to_pylist()
    assert rows == [{"v": None, "t": 40.0}, {"v": None, "t": 41.0}]
    assert store.read("SELECT agent, column_name, value_count FROM rejected_value").to_pylist() == [
        {"agent": "n", "column_name": column, "value_count": 1}
    ]


def test_a_bad_table_keeps_the_whole_batch_out(store: Store) -> None:
    good = wire.from_records([model.Job("k", "c", "1", "s")])
    batch = samples(driver_util_ratio=["high", None])
    with pytest.raises(BadInputError, match="driver_util_ratio"):
        accept_batch(store, dataclasses.replace(batch, tables={**good, **batch.tables}))
    assert store.read("SELECT count(*) AS n FROM job").to_pylist() == [{"n": 0}]
    assert store.read("SELECT count(*) AS n FROM batch_ledger").to_pylist() == [{"n": 0}]


def test_an_imported_content_is_new_once_and_an_old_content_stays_known(store: Store) -> None:
    first, second = RecordId("1", 11), RecordId("1", 22)
    assert which_are_new(store, "sacct", [first, second]) == [True, True]
    load_import(store, "sacct", [first], wire.from_records([model.Job("k", "c", "1", "s", name="running")]))
    load_import(store, "sacct", [second], wire.from_records([model.Job("k", "c", "1", "s", name="ended")]))
    assert which_are_new(store, "sacct", [first, second]) == [False, False]
    assert which_are_new(store, "other", [first]) == [True]


def test_past_attempts_come_in_order_of_start(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.write(
            wire.from_records(
                [
                    model.Job("c/7#0", "c", "7", "s"),
                    model.Attempt("c/7#0:b", "c/7#0", model.AttemptState.COMPLETED, None, 20.0, None, "s"),
                    model.Attempt("c/7#0:a", "c/7#0", model.AttemptState.REQUEUED, None, 10.0, 15.0, "s"),
                ]
            )
        )
    found = past_attempts(store, "c", ["6", "7"])
    assert [(past.attempt_key, past.state, past.end_at) for past in found] == [
        ("c/7#0:a", "requeued", 15.0),
        ("c/7#0:b", "completed", None),
    ]
