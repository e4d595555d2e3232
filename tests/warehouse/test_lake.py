"""The lake: a row is in the hot file or in the lake, never in both and never lost, whatever breaks when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from warehouse import backup, lake, layout, purge
from warehouse.contract import wire
from warehouse.contract.errors import StoreError
from warehouse.contract.settings import Settings
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.keeper import keep
from warehouse.store import Store, Transaction, open_store

FIRST, SECOND = date(1970, 1, 1), date(1970, 1, 2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give a store with two samples on the first day and one on the second."""
    opened = open_store(tmp_path, create=True)
    add(opened, [20.0, 10.0, SECONDS_PER_DAY])
    yield opened
    opened.close()


def add(store: Store, times: list[float]) -> None:
    """Write samples of one device whose power tells their time."""
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": times,
        "power_watts": times,
    }
    with store.transaction() as transaction:
        transaction.write({"device_sample": wire.Table(len(times), columns)})


def seen(store: Store) -> list[float]:
    """Give what a reader sees: the power of every sample, sorted."""
    with store.snapshot() as tables:
        return sorted(tables.device_sample.power_watts.execute())


def hot(store: Store) -> int:
    """Count the rows of the hot file."""
    return int(store.read("SELECT count(*) AS n FROM device_sample")["n"][0].as_py())


def test_a_sealed_day_moves_to_the_lake_and_readers_see_no_difference(store: Store, tmp_path: Path) -> None:
    before = seen(store)
    sealed = lake.seal(store, tmp_path, "device_sample", FIRST)
    assert (sealed.generation, sealed.row_count, hot(store)) == (1, 2, 1)
    assert seen(store) == before


def test_the_file_is_sorted_by_device_and_time(store: Store, tmp_path: Path) -> None:
    sealed = lake.seal(store, tmp_path, "device_sample", FIRST)
    rows = pq.read_table(sealed.folder(tmp_path) / layout.PART)
    assert rows["power_watts"].to_pylist() == [10.0, 20.0]


def test_late_rows_show_at_once_and_the_next_seal_rewrites_the_day(store: Store, tmp_path: Path) -> None:
    lake.seal(store, tmp_path, "device_sample", FIRST)
    add(store, [15.0])
    assert seen(store) == [10.0, 15.0, 20.0, SECONDS_PER_DAY]
    assert lake.days_to_seal(store, SECOND) == [("device_sample", FIRST)]
    assert lake.seal(store, tmp_path, "device_sample", FIRST).generation == 2
    assert seen(store) == [10.0, 15.0, 20.0, SECONDS_PER_DAY]
    assert hot(store) == 1


def test_rows_that_come_again_after_their_day_was_sealed_are_kept_once(store: Store, tmp_path: Path) -> None:
    lake.seal(store, tmp_path, "device_sample", FIRST)
    add(store, [10.0, 15.0, 20.0])  # as new ones, for the ledger was lost
    assert lake.seal(store, tmp_path, "device_sample", FIRST).row_count == 3
    assert seen(store) == [10.0, 15.0, 20.0, SECONDS_PER_DAY]


def test_a_reader_that_began_before_a_seal_sees_everything_once(store: Store, tmp_path: Path) -> None:
    lake.seal(store, tmp_path, "device_sample", FIRST)
    add(store, [15.0])
    with store.snapshot() as tables:
        lake.seal(store, tmp_path, "device_sample", FIRST)
        lake.tidy(store, tmp_path, older_than_seconds=3600)
        assert sorted(tables.device_sample.power_watts.execute()) == [10.0, 15.0, 20.0, SECONDS_PER_DAY]


def test_rows_that_arrive_while_a_day_is_sealed_stay_hot(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = lake._measured

    def arrive_meanwhile(transaction: Transaction, day: lake.SealedDay, folder: Path) -> lake.SealedDay:
        add(store, [15.0])
        return measured(transaction, day, folder)

    monkeypatch.setattr(lake, "_measured", arrive_meanwhile)
    lake.seal(store, tmp_path, "device_sample", FIRST)
    assert hot(store) == 2
    assert seen(store) == [10.0, 15.0, 20.0, SECONDS_PER_DAY]


@pytest.mark.parametrize("step", ["_write_part", "_measured", "make_durable"])
def test_a_failure_at_any_step_leaves_everything_as_it_was(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    lake.seal(store, tmp_path, "device_sample", FIRST)
    add(store, [15.0])

    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(lake, step, fail)
        with pytest.raises(StoreError, match="stays in the hot file"):
            lake.seal(store, tmp_path, "device_sample", FIRST)
    assert seen(store) == [10.0, 15.0, 20.0, SECONDS_PER_DAY]
    assert lake.seal(store, tmp_path, "device_sample", FIRST).row_count == 3
    assert seen(store) == [10.0, 15.0, 20.0, SECONDS_PER_DAY]


def test_tidy_removes_what_nothing_names_and_nothing_else(store: Store, tmp_path: Path) -> None:
    lake.seal(store, tmp_path, "device_sample", FIRST)
    lake.publish(store, tmp_path)
    orphan = layout.part(tmp_path, "device_sample", FIRST, 7).parent
    orphan.mkdir(parents=True)
    assert lake.tidy(store, tmp_path, older_than_seconds=3600) == []
    assert lake.tidy(store, tmp_path, older_than_seconds=-1) == [orphan]
    assert seen(store) == [10.0, 20.0, SECONDS_PER_DAY]


def test_the_manifest_names_only_files_that_are_there_with_all_rows(store: Store, tmp_path: Path) -> None:
    lake.seal(store, tmp_path, "device_sample", FIRST)
    lake.publish(store, tmp_path)
    lake.publish(store, tmp_path)
    manifest = json.loads((tmp_path / layout.FOLDER / layout.MANIFEST).read_text())
    [day] = manifest["days"]
    assert (day["rows"], (tmp_path / layout.FOLDER / day["path"] / layout.PART).exists()) == (2, True)
    assert all((tmp_path / layout.FOLDER / path / layout.PART).exists() for path in manifest["snapshots"].values())


def test_dropped_days_are_gone_for_readers_at_once(store: Store, tmp_path: Path) -> None:
    lake.seal(store, tmp_path, "device_sample", FIRST)
    with store.transaction() as transaction:
        lake.drop_day(transaction, lake.sealed_days(store)[0])
    assert seen(store) == [SECONDS_PER_DAY]


def test_a_metric_added_after_a_day_was_sealed_is_absent_in_it(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    add(store, [10.0])
    lake.seal(store, tmp_path, "device_sample", FIRST)
    with store.transaction() as transaction:
        transaction.execute("ALTER TABLE device_sample ADD COLUMN later_metric FLOAT")
    with store.snapshot() as tables:
        assert tables.device_sample.later_metric.count().execute() == 0
    store.close()


@pytest.mark.parametrize("left_bytes", [None, 100], ids=["gone", "cut short"])
def test_a_day_whose_file_is_missing_is_said_at_the_start_and_costs_only_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left_bytes: int | None
) -> None:
    store = open_store(tmp_path, create=True)
    add(store, [20.0, 10.0, SECONDS_PER_DAY])
    lake.seal(store, tmp_path, "device_sample", FIRST)
    lake.seal(store, tmp_path, "device_sample", SECOND)
    store.close()
    file = layout.part(tmp_path, "device_sample", FIRST, 1)
    whole = file.read_bytes()
    file.unlink()
    if left_bytes:
        file.write_bytes(whole[:left_bytes])

    opened = open_store(tmp_path)
    assert "2 rows of 1970-01-01 are not seen" in caplog.text
    assert seen(opened) == [SECONDS_PER_DAY]
    assert not backup.verify(opened)["ok"]
    add(opened, [15.0])
    keep(opened, tmp_path, Settings({"lake.keep_days": 0}), now=10 * SECONDS_PER_DAY)
    assert seen(opened) == [15.0, SECONDS_PER_DAY]  # what came late waits in the hot file for the rest of its day
    purge.purge(opened, purge.Whom("user", "alice"))
    opened.close()

    file.write_bytes(whole)
    again = open_store(tmp_path)
    assert again.read("SELECT count(*) AS n FROM tombstone WHERE swept_at IS NULL").to_pylist() == [{"n": 1}]
    assert seen(again) == [10.0, 15.0, 20.0, SECONDS_PER_DAY]
    keep(again, tmp_path, Settings({"lake.keep_days": 0}), now=10 * SECONDS_PER_DAY)
    assert (hot(again), seen(again)) == (0, [10.0, 15.0, 20.0, SECONDS_PER_DAY])
    again.close()
