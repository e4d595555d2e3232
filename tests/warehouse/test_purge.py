"""Deleting a person's data for good: everywhere it lies, whatever is sent again, and after a crash at any step."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import duckdb
import pytest

from warehouse import backup, batches, comeback, lake, purge, tombstones
from warehouse.contract import model, wire
from warehouse.contract.errors import BadUseError, StoreError
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.purge import Whom
from warehouse.store import Store, open_store

ALICE = Whom("user", "alice")


def rows(store: Store, table: str, column: str = "attempt_key") -> list[object]:
    """Give a column of a table, hot and sealed."""
    with store.snapshot() as tables:
        return sorted(getattr(tables, table)[column].execute().tolist())


def records() -> list[model.Record]:
    """Give a job of alice and one of bob, each with an attempt, an allocation and an event."""
    found: list[model.Record] = []
    for number, (user, account) in enumerate([("alice", "lab"), ("bob", "chem")], start=1):
        job, attempt = f"c/{number}#0", f"c/{number}#0:1"
        found += [
            model.Job(job, "c", str(number), "s", user=user, account=account, submit_at=1.0),
            model.Attempt(attempt, job, model.AttemptState.COMPLETED, "COMPLETED", 1.0, 9.0, "s"),
            model.Allocation(f"{attempt}:0", attempt, 1.0, 1.0, 9.0, "s", device_uuid="GPU-1", node="n"),
            model.Event("c", "n", "xid", 4.0 + number, "GPU-1", attempt, f"of {user}"),
        ]
    return found


def samples() -> dict[str, wire.Table]:
    """Give four samples: of alice, of bob and of nobody on the first day, of alice on the second."""
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": [0.0, 10.0, 20.0, SECONDS_PER_DAY],
        "attempt_key": ["c/1#0:1", "c/2#0:1", None, "c/1#0:1"],
    }
    return {"device_sample": wire.Table(4, columns)}


def batch(sequence: int, tables: dict[str, wire.Table]) -> batches.Checked:
    """Give a batch that was not sent before."""
    return batches.check(wire.Batch("n", "boot", sequence, 0.0, tables))


def fill(data: Path) -> Store:
    """Make a store in which the first day is sealed and published."""
    store = open_store(data, create=True)
    batches.commit(store, [batch(1, {**samples(), **wire.from_records(records())})])
    lake.seal(store, data, "device_sample", date(1970, 1, 1))
    lake.publish(store, data)
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give a filled store."""
    opened = fill(tmp_path / "data")
    yield opened
    opened.close()


def is_clean(store: Store) -> bool:
    """Say whether alice is nowhere in the store, and bob and nobody as they were."""
    return (
        rows(store, "job", "user") == ["bob"]
        and rows(store, "attempt") == ["c/2#0:1"]
        and rows(store, "allocation") == ["c/2#0:1"]
        and rows(store, "event", "detail") == ["of bob"]
        and [str(key) for key in store_samples(store)] == ["None", "c/2#0:1"]
    )


def store_samples(store: Store) -> list[object]:
    """Give the attempts of all samples, hot and sealed, nobody's first."""
    with store.snapshot() as tables:
        found = tables.device_sample.attempt_key.to_pyarrow().to_pylist()
    return sorted(found, key=lambda key: key or "")


def test_everything_of_a_person_goes_and_nothing_else(store: Store) -> None:
    done = purge.purge(store, ALICE, files_at_once=True)
    assert done["rows"] == {
        **dict.fromkeys(done["rows"], 0),  # type: ignore[call-overload]
        "job": 1,
        "attempt": 1,
        "allocation": 1,
        "event": 1,
        "device_sample": 2,
    }
    assert is_clean(store)
    assert backup.verify(store)["ok"]


def test_no_file_of_the_lake_holds_the_person_any_more(store: Store) -> None:
    purge.purge(store, ALICE, files_at_once=True)
    for file in (store.data / "lake").rglob("*.parquet"):
        found = duckdb.read_parquet(str(file), hive_partitioning=False).fetchall()
        assert not any("alice" in str(row) or "c/1#0" in str(row) for row in found), file


def test_a_dry_run_counts_the_same_and_changes_nothing(store: Store) -> None:
    version = store.data_version()
    rehearsed = purge.purge(store, ALICE, dry_run=True)
    assert (rehearsed["dry_run"], store.data_version()) == (True, version)
    assert not (store.data / tombstones.FILE).exists()
    assert len(rows(store, "job", "user")) == 2
    assert rehearsed["rows"] == purge.purge(store, ALICE)["rows"]


def test_a_project_is_an_account_or_a_namespace(store: Store) -> None:
    purge.purge(store, Whom("project", "chem"))
    assert rows(store, "job", "user") == ["alice"]


def test_on_another_cluster_nothing_goes(store: Store) -> None:
    assert sum(purge.purge(store, Whom("user", "alice", "other"))["rows"].values()) == 0  # type: ignore[attr-defined]


def test_batches_that_are_sent_again_bring_nothing_back(store: Store) -> None:
    purge.purge(store, ALICE)
    batches.commit(store, [batch(2, {**samples(), **wire.from_records(records())})])
    assert rows(store, "job", "user") == ["bob"]
    assert set(store_samples(store)) == {None, "c/2#0:1"}


def test_a_job_that_was_not_known_yet_stays_out_with_what_came_before_it(store: Store) -> None:
    purge.purge(store, ALICE)
    late = "c/3#0"
    attempt = model.Attempt(f"{late}:1", late, model.AttemptState.RUNNING, "R", 1.0, None, "s")
    batches.commit(store, [batch(3, wire.from_records([attempt]))])
    assert f"{late}:1" in rows(store, "attempt")
    job = model.Job(late, "c", "3", "s", user="alice", submit_at=2.0)
    batches.commit(store, [batch(4, wire.from_records([job, attempt]))])
    purge.catch_up(store)
    assert is_clean(store)


def test_work_that_is_submitted_afterwards_is_kept(store: Store) -> None:
    purge.purge(store, ALICE)
    new = model.Job("c/9#0", "c", "9", "s", user="alice", submit_at=4e9)
    batches.commit(store, [batch(5, wire.from_records([new]))])
    assert rows(store, "job", "user") == ["alice", "bob"]


def test_a_restored_backup_brings_nothing_back(store: Store, tmp_path: Path) -> None:
    backup.write_backup(store, tmp_path / "backup")
    purge.purge(store, ALICE)
    purge.add_to_backup(tmp_path / "backup", store.data)
    backup.restore_backup(tmp_path / "backup", tmp_path / "restored")
    restored = open_store(tmp_path / "restored")
    assert is_clean(restored)
    restored.close()


def test_a_backup_restored_beside_the_tombstones_of_the_old_store_brings_nothing_back(
    store: Store, tmp_path: Path
) -> None:
    backup.write_backup(store, tmp_path / "backup")
    purge.purge(store, ALICE)
    told = store.data / tombstones.FILE
    backup.restore_backup(tmp_path / "backup", tmp_path / "restored", tombstones_file=told)
    restored = open_store(tmp_path / "restored")
    assert is_clean(restored)
    restored.close()


def test_after_the_loss_of_the_database_batches_that_are_sent_again_bring_nothing_back(tmp_path: Path) -> None:
    store = fill(tmp_path)
    purge.purge(store, ALICE)
    store.close()
    (tmp_path / "hot.duckdb").unlink()
    again = open_store(tmp_path, create=True)
    comeback.restore(again, tmp_path)
    purge.catch_up(again)
    batches.commit(again, [batch(1, samples())])
    assert set(store_samples(again)) == {None, "c/2#0:1"}
    again.close()


class Crash(BaseException):
    """The process is gone."""


STEPS: list[tuple[str, str]] = [
    ("warehouse.purge._delete_hot", "before the database was touched"),
    ("warehouse.purge.sweep", "before the lake was touched"),
    ("warehouse.lake.write_anew", "before a day was written anew"),
    ("warehouse.lake.publish", "before the manifest"),
]


@pytest.mark.parametrize(("step", "_when"), STEPS)
def test_a_crash_before_any_step_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, _when: str
) -> None:
    store = fill(tmp_path)

    def crash(*_given: object, **_named: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(step, crash)
        with pytest.raises(Crash):
            purge.purge(store, ALICE)
    store.close()
    again = open_store(tmp_path)
    purge.catch_up(again)
    assert is_clean(again)
    assert backup.verify(again)["ok"]
    again.close()


@pytest.mark.parametrize(
    "asked",
    [{}, {"user": "a", "project": "b"}, {"user": ""}, {"user": 5}, {"user": "x" * 5000}, {"user": "a", "dry_run": 1}],
)
def test_a_request_that_names_nobody_or_two_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(BadUseError):
        purge.read_asked(asked)


def test_a_file_of_tombstones_that_cannot_be_read_is_never_passed_over(tmp_path: Path) -> None:
    (tmp_path / tombstones.FILE).write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        tombstones.read_file(tmp_path / tombstones.FILE)
