"""A damaged file is said loudly and set aside; what the lake holds comes back; a silent loss is revealed."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import duckdb
import pytest

from warehouse import batches, comeback, lake, layout, recovery
from warehouse.contract import wire
from warehouse.contract.errors import StoreError
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.store import FILE_NAME, Store, open_store

FIRST = date(1970, 1, 1)

WRITER = """
import os, pathlib, sys
from warehouse.contract import model, wire
from warehouse.store import open_store
store = open_store(pathlib.Path(sys.argv[1]), create=True)
for number in range(int(sys.argv[2])):
    with store.transaction() as transaction:
        rows = [model.Job(f"c/{number}.{n}#0", "c", str(number), "s", name="x" * 50) for n in range(20)]
        transaction.write(wire.from_records(rows))
os._exit(9)  # as a kill would: no checkpoint, the log stays
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> dict[str, bytes]:
    """Give the files of a store whose process was killed after 30 commits."""
    data = tmp_path_factory.mktemp("written")
    subprocess.run([sys.executable, "-c", WRITER, str(data), "30"], cwd=repository, check=False)
    return {file.name: file.read_bytes() for file in data.iterdir() if file.is_file()}


@pytest.fixture
def data(tmp_path: Path, written: dict[str, bytes]) -> Path:
    """Give a fresh copy of the killed store's directory."""
    for name, content in written.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def damage(path: Path, at: int, length: int = 4) -> None:
    """Flip some bytes."""
    content = bytearray(path.read_bytes())
    content[at : at + length] = bytes(byte ^ 0xFF for byte in content[at : at + length])
    path.write_bytes(content)


def jobs(data: Path, *, recover: bool = False) -> int:
    """Open the store, count its jobs, close it."""
    store = open_store(data, create=True, recover=recover)
    try:
        return int(store.read("SELECT count(*) AS n FROM job")["n"][0].as_py())
    finally:
        store.close()


def test_after_a_kill_every_commit_is_there(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert jobs(data) == 600
    assert not caplog.records


@pytest.mark.parametrize("seed", range(12))
def test_a_log_damaged_anywhere_is_set_aside_or_its_loss_is_said(
    data: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    log_file = data / f"{FILE_NAME}.wal"
    damage(log_file, random.Random(seed).randrange(log_file.stat().st_size - 4))
    count = jobs(data, recover=True)
    assert count == 600 or "gone without a trace" in caplog.text or "Set aside" in caplog.text
    if "Set aside" in caplog.text:
        assert list(data.glob(f"{FILE_NAME}.wal.damaged-*"))
    assert jobs(data) == count


def test_a_damaged_record_length_loses_rows_silently_and_the_counter_reveals_it(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(data / f"{FILE_NAME}.wal", 0, 8)
    assert jobs(data, recover=True) < 600
    assert "commits are gone without a trace" in caplog.text
    caplog.clear()
    jobs(data)
    assert not caplog.records, "a loss is said once, not at every start"


def test_a_log_cut_short_is_said_with_the_number_of_commits(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_file = data / f"{FILE_NAME}.wal"
    log_file.write_bytes(log_file.read_bytes()[:-100])
    assert jobs(data) == 580
    assert "the last 1 commits are gone" in caplog.text


def ruin_header(content: bytes) -> bytes:
    """Damage both headers of a database file."""
    return content[:4096] + bytes(64) + content[4160:8192] + bytes(64) + content[8256:]


@pytest.mark.parametrize("ruin", [ruin_header, lambda _content: b"no database at all" * 900])
def test_a_damaged_file_is_refused_by_commands_and_set_aside_by_the_server(
    data: Path, caplog: pytest.LogCaptureFixture, ruin: Callable[[bytes], bytes]
) -> None:
    ruined = ruin((data / FILE_NAME).read_bytes())
    (data / FILE_NAME).write_bytes(ruined)
    with pytest.raises(StoreError, match="`trueload serve` sets it aside"):
        jobs(data)
    assert (data / FILE_NAME).read_bytes() == ruined
    assert jobs(data, recover=True) == 0
    assert "Set aside" in caplog.text
    assert any(file.read_bytes() == ruined for file in data.glob(f"{FILE_NAME}.damaged-*"))


def test_sealed_days_and_snapshots_come_back_from_the_lake(data: Path) -> None:
    store = open_store(data)
    with store.transaction() as transaction:
        transaction.execute(
            "INSERT INTO device_sample (cluster, node, device_uuid, sampled_at, cadence_seconds, source) "
            "VALUES ('c', 'n', 'GPU-1', TIMESTAMP '1970-01-01', 10, 'nvml')"
        )
    lake.seal(store, data, "device_sample", date(1970, 1, 1))
    lake.publish(store, data)
    store.close()
    (data / FILE_NAME).write_bytes(b"gone")

    store = open_store(data, recover=True)
    assert comeback.restore(store, data) == 1
    assert comeback.restore(store, data) == 0
    with store.snapshot() as tables:
        assert (tables.job.count().execute(), tables.device_sample.count().execute()) == (600, 1)
    store.close()


def add_sample(store: Store, second: int) -> None:
    """Write a sample of the first day."""
    with store.transaction() as transaction:
        transaction.execute(
            "INSERT INTO device_sample (cluster, node, device_uuid, sampled_at, cadence_seconds, source) "
            "VALUES ('c', 'n', 'GPU-1', to_timestamp(?)::TIMESTAMP, 10, 'nvml')",
            [second],
        )


def seconds_seen(store: Store) -> list[int]:
    """Give the instants of all samples, hot and sealed."""
    with store.snapshot() as tables:
        return sorted(tables.device_sample.sampled_at.epoch_seconds().execute())


@pytest.mark.parametrize("published", [0, 1], ids=["nothing published yet", "an older generation published"])
def test_days_that_were_sealed_and_not_published_outlive_the_loss_of_the_database(
    tmp_path: Path, published: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path, create=True)
    add_sample(store, 10)
    if published:
        lake.seal(store, tmp_path, "device_sample", FIRST)
        lake.publish(store, tmp_path)
        add_sample(store, 20)
    lake.seal(store, tmp_path, "device_sample", FIRST)
    store.close()  # killed before the manifest followed
    (tmp_path / FILE_NAME).unlink()

    store = open_store(tmp_path, create=True, recover=True)
    assert comeback.restore(store, tmp_path) == 1
    assert seconds_seen(store) == [10, 20][: 1 + published]
    assert "sealed after the last manifest" in caplog.text
    lake.publish(store, tmp_path)
    lake.tidy(store, tmp_path, older_than_seconds=-1)
    assert seconds_seen(store) == [10, 20][: 1 + published]
    assert [day.row_count for day in lake.sealed_days(store)] == [1 + published]
    store.close()


def test_a_generation_whose_rows_are_still_hot_does_not_count_beside_them(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    add_sample(store, 10)
    lake.seal(store, tmp_path, "device_sample", FIRST)
    add_sample(store, 10)  # as before the transaction that would have moved it
    with store.transaction() as transaction:
        transaction.execute("DELETE FROM sealed_day")
    assert comeback.restore(store, tmp_path) == 0
    assert seconds_seen(store) == [10]
    store.close()


def test_an_unfinished_or_damaged_generation_does_not_come_back_and_is_left_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    add_sample(store, 10)
    lake.seal(store, tmp_path, "device_sample", FIRST)
    lake.publish(store, tmp_path)
    store.close()
    (tmp_path / FILE_NAME).unlink()
    broken = layout.part(tmp_path, "device_sample", FIRST, 2)
    broken.parent.mkdir()
    broken.write_bytes(b"PAR1 and no more")
    store = open_store(tmp_path, create=True, recover=True)
    assert comeback.restore(store, tmp_path) == 1
    assert [day.generation for day in lake.sealed_days(store)] == [1]
    assert seconds_seen(store) == [10]
    assert broken.exists()
    store.close()


def test_a_newer_file_is_refused_and_left_alone(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "NEWEST_FILE_FORMAT", 1)
    assert (recovery.format_number(data / FILE_NAME) or 0) > 1
    error = duckdb.IOException("Trying to read a database file with version number 999")
    assert recovery.diagnose(data / FILE_NAME, error) is recovery.Damage.NEWER


def test_a_store_of_a_newer_schema_is_refused_and_left_alone(data: Path) -> None:
    store = open_store(data)
    with store.transaction() as transaction:
        transaction.execute("INSERT INTO schema_version VALUES (9999, now()::TIMESTAMP)")
    store.close()
    with pytest.raises(StoreError, match="newer than this version"):
        open_store(data, recover=True)


def test_the_counter_only_goes_forward_until_a_loss_is_accepted(tmp_path: Path) -> None:
    counter = recovery.CommitCounter(tmp_path)
    counter.advance(5)
    counter.advance(3)
    assert counter.read() == 5
    counter.accept(2)
    assert counter.read() == 2
    counter.close()


def test_rows_that_went_another_way_than_through_a_commit_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path, create=True)
    for day in (0, 1):
        with store.transaction() as transaction:
            transaction.write({"device_sample": samples(day, rows=4)})
    batch = wire.Batch("n", "boot", 1, 0.0, {"device_sample": samples(1, rows=3, node="n")})
    batches.commit(store, [batches.check(batch), batches.check(batch)])  # three rows: a batch counts once
    lake.seal(store, tmp_path, "device_sample", FIRST)
    store.close()
    open_store(tmp_path).close()
    assert "ledger of commits" not in caplog.text
    with duckdb.connect(str(tmp_path / FILE_NAME)) as connection:
        connection.execute("DELETE FROM device_sample WHERE node = 'n'")
    open_store(tmp_path).close()
    assert "by the ledger of commits 7 rows of samples are in the file, and there are 4" in caplog.text
    caplog.clear()
    open_store(tmp_path).close()
    assert "ledger of commits" not in caplog.text


def samples(day: int, *, rows: int, node: str = "m") -> wire.Table:
    """Give rows of one device, a second apart, from the begin of a day on."""
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": node,
        "device_uuid": "GPU-1",
        "source": "nvml",
        "cadence_seconds": 1.0,
        "sampled_at": [day * SECONDS_PER_DAY + float(second) for second in range(rows)],
    }
    return wire.Table(rows, columns)
