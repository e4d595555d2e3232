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

from warehouse import lake, recovery
from warehouse.contract.errors import StoreError
from warehouse.store import FILE_NAME, open_store

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
    assert lake.restore(store, data) == 1
    assert lake.restore(store, data) == 0
    with store.snapshot() as tables:
        assert (tables.job.count().execute(), tables.device_sample.count().execute()) == (600, 1)
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
