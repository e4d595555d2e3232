"""Batches come in once and whole, in groups; impossible values are counted, never stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse import batches
from warehouse.arrow import COLUMN_TYPES
from warehouse.batches import Acceptance, Checked, Piece, check, check_all, commit
from warehouse.committer import Committer
from warehouse.contract import model, wire
from warehouse.contract.errors import BadInputError, OverloadedError, StoreError
from warehouse.contract.metrics import BY_NAME, is_possible
from warehouse.contract.settings import Settings
from warehouse.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = open_store(tmp_path, create=True)
    yield opened
    opened.close()


def accept(store: Store, batch: wire.Batch) -> Acceptance:
    """Check and write one batch."""
    return commit(store, [check(batch)])[0]


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


@pytest.mark.parametrize("wrong", ["0.5", [0.5], 10**400])
@pytest.mark.parametrize("place", [0, 1])
def test_a_wrong_value_among_many_columns_is_told_by_its_column(wrong: object, place: int) -> None:
    values: list[Any] = [0.5, 0.5]
    values[place] = wrong
    with pytest.raises(BadInputError, match=r"device_sample\.engine_active_ratio"):
        check(samples(driver_util_ratio=[0.5, 0.5], engine_active_ratio=values, power_watts=[1.0, 2.0]))


def test_whole_numbers_absent_values_and_huge_ones_are_read_beside_each_other() -> None:
    checked = check(
        samples(driver_util_ratio=[1, None], memory_used_bytes=[2**53 + 1, 5], temperature_celsius=[20.5, 1e300])
    )
    rows = checked.tables["device_sample"]
    assert rows["driver_util_ratio"].to_pylist() == [1.0, None]
    assert rows["memory_used_bytes"].to_pylist() == [float(2**53), 5.0]
    assert rows["temperature_celsius"].to_pylist() == [20.5, None]
    assert checked.rejected == {"temperature_celsius": 1}


def test_a_batch_sent_again_adds_nothing(store: Store) -> None:
    batch = samples(driver_util_ratio=[0.5, 0.25])
    assert accept(store, batch).rows == 2
    assert accept(store, batch).duplicate
    assert store.read("SELECT sum(driver_util_ratio) AS s, count(*) AS n FROM device_sample").to_pylist() == [
        {"s": 0.75, "n": 2}
    ]


def test_another_part_of_the_same_sequence_is_another_batch(store: Store) -> None:
    batch = samples(driver_util_ratio=0.5)
    accept(store, batch)
    assert not accept(store, dataclasses.replace(batch, part=1)).duplicate


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
    result = accept(store, samples(temperature_celsius=[40.0, 41.0], **{column: [value, None]}))
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
        accept(store, dataclasses.replace(batch, tables={**good, **batch.tables}))
    assert store.read("SELECT count(*) AS n FROM job").to_pylist() == [{"n": 0}]
    assert store.read("SELECT count(*) AS n FROM batch_ledger").to_pylist() == [{"n": 0}]


def test_a_group_may_hold_the_same_batch_twice_and_one_that_was_here_before(store: Store) -> None:
    old, new = samples(driver_util_ratio=0.5), dataclasses.replace(samples(driver_util_ratio=0.5), sequence=2)
    accept(store, old)
    results = commit(store, [check(batch) for batch in (old, new, new)])
    assert [result.duplicate for result in results] == [True, False, True]
    assert store.read("SELECT count(*) AS n FROM device_sample").to_pylist() == [{"n": 4}]


def test_a_whole_number_of_bytes_is_taken_whatever_its_size(store: Store) -> None:
    accept(store, samples(memory_used_bytes=85_899_345_921))
    assert store.read("SELECT memory_used_bytes AS v FROM device_sample")["v"][0].as_py() == 85_899_345_920.0


def test_no_batches_are_no_work(store: Store) -> None:
    assert commit(store, []) == []


def test_of_two_states_of_a_record_in_one_group_the_later_batch_wins(store: Store) -> None:
    first, second = (
        wire.Batch("n", "boot", at, 0.0, wire.from_records([model.Job("k", "c", "1", "s", name=name)]))
        for at, name in enumerate(["old", "new"])
    )
    commit(store, [check(first), check(second)])
    assert store.read("SELECT name FROM job").to_pylist() == [{"name": "new"}]


def test_the_committer_answers_every_sender_once_and_after_the_commit(store: Store, tmp_path: Path) -> None:
    with Committer(store, tmp_path, Settings({"store.free_space_floor_bytes": 0})) as committer:
        batch = samples(driver_util_ratio=0.5)
        answers = [committer.submit(check(dataclasses.replace(batch, sequence=at % 20))) for at in range(40)]
        assert sum(answer.result(timeout=30).duplicate for answer in answers) == 20
        assert store.read("SELECT count(*) AS n FROM device_sample").to_pylist() == [{"n": 40}]


def test_leaving_the_committer_writes_what_still_waits(store: Store, tmp_path: Path) -> None:
    with Committer(store, tmp_path, Settings({"store.commit_window_seconds": 10.0})) as committer:
        answer = committer.submit(check(samples(driver_util_ratio=0.5)))
    assert answer.result(timeout=0).rows == 2


def test_a_full_queue_and_a_full_disk_turn_senders_away(store: Store, tmp_path: Path) -> None:
    batch = check(samples(driver_util_ratio=0.5))
    slow = Settings({"store.commit_window_seconds": 10.0, "store.max_waiting_rows": 3})
    with Committer(store, tmp_path, slow) as committer:
        committer.submit(batch)
        with pytest.raises(OverloadedError, match="wait to be written"):
            committer.submit(batch)
    with (
        Committer(store, tmp_path, Settings({"store.free_space_floor_bytes": 2**62})) as committer,
        pytest.raises(OverloadedError, match="below the floor"),
    ):
        committer.submit(batch)


def test_a_failed_commit_is_told_to_every_sender_of_the_group(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    with Committer(store, tmp_path, Settings()) as committer:
        store.close()
        answers = [committer.submit(check(samples(driver_util_ratio=0.5))) for _ in range(2)]
        for answer in answers:
            with pytest.raises(StoreError):
                answer.result(timeout=30)


def test_a_batch_that_breaks_the_writing_of_its_group_is_refused_alone(store: Store, tmp_path: Path) -> None:
    of_no_table = Checked(
        "odd", "boot", 1, 0, {"no_such_table": Piece(pa.table({"x": [1]}), 0, 1)}, check(EMPTY).rejected
    )
    with Committer(store, tmp_path, Settings({"store.commit_window_seconds": 0.5})) as committer:
        answers = [committer.submit(batch) for batch in (GOOD, of_no_table, check(OTHER))]
    assert isinstance(answers[1].exception(timeout=30), Exception)
    assert [answers[at].result().rows for at in (0, 2)] == [2, 2]
    assert store.read("SELECT count(*) AS n FROM device_sample")["n"].to_pylist() == [4]


GOOD = wire.Batch("good", "boot", 1, 0.0, samples(driver_util_ratio=[0.5, None]).tables)
OTHER = wire.Batch("other", "boot", 1, 0.0, samples(node="m", power_watts=[1, 2**53 + 1], share_ratio=0.5).tables)
EMPTY = wire.Batch("empty", "boot", 1, 0.0, {})
JOBS = wire.Batch("jobs", "boot", 1, 0.0, wire.from_records([model.Job("c/1#0", "c", "1", "slurm", submit_at=5.5)]))
IMPOSSIBLE = wire.Batch("impossible", "boot", 1, 0.0, samples(driver_util_ratio=[1.5, 0.5]).tables)
WRONG = wire.Batch("wrong", "boot", 1, 0.0, samples(driver_util_ratio=["high", 0.5]).tables)
HALF = wire.Batch("half", "boot", 1, 0.0, samples(node=None).tables)
IMPORTED = wire.Batch(
    "imported", "boot", 1, 0.0, {wire.LEDGER_ONLY: wire.Table(1, {"record_key": "k", "content_hash": 1})}
)


@given(st.lists(st.sampled_from([GOOD, OTHER, EMPTY, JOBS, IMPOSSIBLE, WRONG, HALF, IMPORTED]), max_size=20))
@settings(max_examples=60)
def test_batches_checked_together_come_out_as_each_by_itself(group: list[wire.Batch]) -> None:
    for batch, outcome in zip(group, check_all(group), strict=True):
        [alone] = check_all([batch])
        assert _shown(outcome) == _shown(alone)


def _shown(outcome: Checked | BadInputError) -> object:
    if isinstance(outcome, BadInputError):
        return str(outcome)
    return outcome.name, dict(outcome.rejected), {name: rows.to_pydict() for name, rows in outcome.tables.items()}


def test_a_wrong_batch_is_refused_alone_and_the_others_of_its_group_are_written(store: Store, tmp_path: Path) -> None:
    with Committer(store, tmp_path, Settings({"store.commit_window_seconds": 0.5})) as committer:
        answers = [committer.submit(batch) for batch in (GOOD, WRONG, IMPOSSIBLE, check(OTHER))]
    assert answers[0].result() == Acceptance(duplicate=False, rows=2, rejected_values=0)
    with pytest.raises(BadInputError, match="driver_util_ratio"):
        answers[1].result()
    assert answers[2].result() == Acceptance(duplicate=False, rows=2, rejected_values=1)
    assert answers[3].result().rows == 2
    assert store.read("SELECT count(*) AS n FROM device_sample")["n"].to_pylist() == [6]


@given(
    st.lists(
        st.one_of(st.none(), st.floats(width=32), st.sampled_from([0.0, 1.0, -0.5, 1.5, 60.0, 60.5])),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["driver_util_ratio", "gpu_bound_seconds", "power_watts", "temperature_celsius"]),
)
@settings(max_examples=60)
def test_all_columns_at_once_and_one_by_one_agree_on_what_is_possible(values: list[float | None], column: str) -> None:
    cadence = pa.array([60.0] * len(values), pa.float32())
    whole = {"cadence_seconds": cadence, column: pa.array(values, pa.float32())}
    in_pieces = {"cadence_seconds": cadence, column: pa.chunked_array([[value] for value in values], pa.float32())}
    one_by_one = [value is None or is_possible(BY_NAME[column], value, 60.0) for value in values]
    assert batches._all_possible(whole, cadence) == batches._all_possible(in_pieces, cadence) == all(one_by_one)


def test_every_table_and_column_that_may_travel_has_a_type_of_the_store() -> None:
    assert {name: list(types) for name, types in COLUMN_TYPES.items()} == {
        name: list(columns) for name, columns in wire.TABLE_COLUMNS.items()
    }
