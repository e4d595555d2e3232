"""A backup holds what the store held, is opened and counted, and comes back; damage is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

import trueload
from tests.warehouse.serving import ServerProcess
from warehouse import agent_desk, backup, lake, layout
from warehouse.access import Role
from warehouse.contract import model, wire
from warehouse.contract.errors import StoreError
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.credentials import Credentials
from warehouse.store import Store, open_store


def fill(store: Store) -> None:
    """Write a job, a token, two sealed samples and a hot one."""
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": [0.0, 10.0, SECONDS_PER_DAY],
    }
    with store.transaction() as transaction:
        transaction.write(wire.from_records([model.Job("c/1#0", "c", "1", "s", user="alice")]))
        transaction.write({"device_sample": wire.Table(3, columns)})
    lake.seal(store, store.data, "device_sample", date(1970, 1, 1))
    lake.publish(store, store.data)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give a store with hot and sealed rows."""
    opened = open_store(tmp_path / "data", create=True)
    fill(opened)
    yield opened
    opened.close()


def wrong(found: dict[str, object]) -> list[str]:
    """Give the names of the checks that do not hold."""
    checks = found["checks"]
    assert isinstance(checks, list)
    assert found["ok"] == all(check["ok"] for check in checks)
    return [check["name"] for check in checks if not check["ok"]]


def test_a_restored_store_holds_what_was_backed_up_and_nothing_later(store: Store, tmp_path: Path) -> None:
    backup.write_backup(store, tmp_path / "backup")
    with store.transaction() as transaction:
        transaction.write(wire.from_records([model.Job("c/2#0", "c", "2", "s")]))
    assert wrong(backup.restore_backup(tmp_path / "backup", tmp_path / "again")) == []
    again = open_store(tmp_path / "again")
    with again.snapshot() as tables:
        assert (tables.job.count().execute(), tables.device_sample.count().execute()) == (1, 3)
    with again.transaction() as transaction:  # it takes new rows: keys and sequences came along
        transaction.write(wire.from_records([model.Job("c/2#0", "c", "2", "s")]))
    again.close()


def test_a_backup_stays_whole_when_the_lake_goes_on(store: Store, tmp_path: Path) -> None:
    backup.write_backup(store, tmp_path / "backup")
    lake.seal(store, store.data, "device_sample", date(1970, 1, 2))
    with store.transaction() as transaction:
        lake.drop_day(transaction, lake.sealed_days(store)[0])
    lake.publish(store, store.data)
    lake.tidy(store, store.data, 0.0)
    assert wrong(backup.restore_backup(tmp_path / "backup", tmp_path / "again")) == []


def test_tokens_do_not_come_back_with_a_backup(store: Store, tmp_path: Path) -> None:
    _, token = Credentials(store).issue(Role.USER, "alice")
    backup.write_backup(store, tmp_path / "backup")
    backup.restore_backup(tmp_path / "backup", tmp_path / "again")
    again = open_store(tmp_path / "again")
    assert Credentials(again).identify(token) is None
    again.close()


def test_a_backup_never_writes_over_anything_and_a_restore_neither(store: Store, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(StoreError, match="holds something"):
        backup.write_backup(store, tmp_path / "full")
    backup.write_backup(store, tmp_path / "backup")
    with pytest.raises(StoreError, match="has a store"):
        backup.restore_backup(tmp_path / "backup", store.data)
    (tmp_path / "backup" / backup.NOTE).unlink()
    with pytest.raises(StoreError, match="no whole backup"):
        backup.restore_backup(tmp_path / "backup", tmp_path / "again")


def test_a_copy_that_lacks_rows_is_no_backup(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = backup._copy_database
    monkeypatch.setattr(backup, "_copy_database", lambda *args: real(*args) | {"job": 7})
    with pytest.raises(StoreError, match="table job has 1 rows where the store had 7"):
        backup.write_backup(store, tmp_path / "backup")
    assert not (tmp_path / "backup" / backup.NOTE).exists()


def test_a_backup_without_a_file_of_the_lake_says_which_and_holds_the_rest(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data", create=True)
    fill(store)
    lake.seal(store, store.data, "device_sample", date(1970, 1, 2))
    lake.publish(store, store.data)
    gone = layout.part(store.data, "device_sample", date(1970, 1, 1), 1)
    gone.unlink()
    store.close()
    arguments = ["backup", "--data", str(store.data), "--to", str(tmp_path / "backup"), "--json"]
    result = CliRunner().invoke(trueload.cli, arguments)
    made = json.loads(result.stdout)
    assert result.exit_code == 1
    assert made["missing_files"] == [str(gone.relative_to(store.data))]
    assert len(list((tmp_path / "backup").glob("lake/device_sample/*/*/*.parquet"))) == 1
    assert not (store.data / agent_desk.BACKUP_FILE).exists()  # agents keep what they hold
    assert wrong(backup.restore_backup(tmp_path / "backup", tmp_path / "again")) == [
        f"lake {gone.relative_to(store.data)}"
    ]


def test_verify_finds_a_file_of_the_lake_that_is_gone_cut_or_another(store: Store) -> None:
    assert wrong(backup.verify(store)) == []
    file = layout.part(store.data, "device_sample", date(1970, 1, 1), 1)
    name = f"lake {file.relative_to(store.data)}"
    content = file.read_bytes()
    file.write_bytes(content[:-50])
    assert wrong(backup.verify(store)) == [name]
    file.unlink()
    assert wrong(backup.verify(store)) == [name]
    file.write_bytes(content)
    with store.transaction() as transaction:
        transaction.execute("UPDATE sealed_day SET row_count = 5")
    assert wrong(backup.verify(store)) == [f"{name}, rows"]
    (store.data / layout.FOLDER / layout.MANIFEST).unlink()
    assert "manifest, days" in wrong(backup.verify(store))


def test_the_commands_work_through_a_running_server_and_without_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    opened = open_store(data, create=True)
    fill(opened)
    opened.close()
    runner = CliRunner()

    def run(*arguments: str) -> dict[str, object]:
        result = runner.invoke(trueload.cli, [*arguments, "--json"])
        assert result.exit_code == 0, (result.output, result.exception)
        return dict(json.loads(result.stdout))

    server = ServerProcess(data)
    try:
        assert run("verify", "--data", str(data))["ok"]
        far = run("backup", "--data", str(data), "--to", str(tmp_path / "far"))
    finally:
        server.stop()
    near = run("backup", "--data", str(data), "--to", str(tmp_path / "near"))
    assert far["rows"] == near["rows"]
    assert run("restore", "--from", str(tmp_path / "far"), "--data", str(tmp_path / "again"))["ok"]
    assert run("verify", "--data", str(tmp_path / "again"))["ok"]


def test_verify_finds_a_job_that_is_there_twice(store: Store) -> None:
    with store.transaction() as transaction:
        twice = "INSERT INTO job (job_key, cluster, scheduler_job_id, source) VALUES ('c/77#0', 'c', '77', 's')"
        transaction.execute(twice)
        transaction.execute(twice)
    assert wrong(backup.verify(store)) == ["table job, each key once"]
