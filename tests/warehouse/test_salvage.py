"""A database file with damaged blocks is set aside, what can be read is brought over, and nothing goes in circles."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from datetime import date
from pathlib import Path

import duckdb
import orjson
import pytest

from analysis.benchmarks._agents import Agent, Target, body, compare, wait_for_more
from tests.warehouse.serving import Supervisor
from warehouse import access, backup, batches, comeback, lake, salvage
from warehouse.contract import model, wire
from warehouse.contract.errors import StoreError
from warehouse.store import FILE_NAME, Store, open_store

BATCHES, ROWS, JOBS = 40, 500, 1500


def take(store: Store, agent: str, sequence: int, rows: int = ROWS) -> bool:
    """Write a batch as the server does; says whether it was new."""
    batch = batches.check(wire.decode(body(agent, sequence, rows), orjson.loads))
    return not batches.commit(store, [batch])[0].duplicate


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the directory of a store with jobs, samples and their ledger, closed in good order."""
    data = tmp_path_factory.mktemp("whole")
    store = open_store(data, create=True)
    for sequence in range(BATCHES):
        take(store, "n", sequence)
    with store.transaction() as transaction:
        jobs = [
            model.Job(f"c/{n}#0", "c", str(n), "s", name=f"job {n} {random.Random(n).random()}") for n in range(JOBS)
        ]
        transaction.write(wire.from_records(jobs))
    store.close()
    return data


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    """Give a copy of it."""
    return Path(shutil.copytree(whole, tmp_path / "data"))


def flip(data: Path, at: int) -> None:
    """Damage four bytes of the database file."""
    path = data / FILE_NAME
    content = bytearray(path.read_bytes())
    content[at : at + 4] = bytes(byte ^ 0xFF for byte in content[at : at + 4])
    path.write_bytes(content)


def block_of(data: Path, table: str) -> int:
    """Give where a block of the table's data lies in the file; blocks of 256 KiB follow three headers of 4 KiB."""
    open_store(data).close()  # it folds commit numbers, and its checkpoint may move blocks
    store = open_store(data)
    [row] = store.read(
        f"SELECT block_id FROM pragma_storage_info('{table}') WHERE block_id >= 0 AND segment_type <> 'VALIDITY' "
        "LIMIT 1"
    ).to_pylist()
    store.close()
    return 3 * 4096 + int(row["block_id"]) * 262144


def found(store: Store) -> Counter[str]:
    """Count what the store has; reads every value."""
    counts: Counter[str] = Counter()
    for table in ("job", "device_sample", "batch_ledger"):
        counts[table] = store.read(f'SELECT count(*) AS n FROM (SELECT DISTINCT * FROM "{table}")').to_pylist()[0]["n"]
    return counts


def use(data: Path, sequence: int) -> tuple[int, Counter[str]]:
    """Start again until reading and writing work, as a supervisor would; gives how often, and what is there."""
    for start in range(1, 5):
        store = open_store(data, recover=True)
        try:
            comeback.restore(store, data)
            counts = found(store)
            assert take(store, "other", sequence, 7)
        except (StoreError, duckdb.Error):
            assert store.damage is not None, "an error that the next start does not heal"
        else:
            return start, counts
        finally:
            store.close()
    raise AssertionError("it goes in circles")


def verified(data: Path) -> bool:
    """Read all there is."""
    store = open_store(data)
    try:
        return bool(backup.verify(store)["ok"])
    finally:
        store.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_file_damaged_anywhere_serves_again_and_says_what_is_lost(
    data: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    flip(data, random.Random(seed).randrange((data / FILE_NAME).stat().st_size - 4))
    starts, counts = use(data, 1)
    assert starts <= 2
    if counts != {"job": JOBS, "device_sample": BATCHES * ROWS, "batch_ledger": BATCHES}:
        assert "are lost" in caplog.text or "Lost here is" in caplog.text
    if not verified(data):  # a block that nobody had read until now
        assert "next server copies what can be read" in caplog.text
        use(data, 2)
        assert verified(data)
    assert not (data / salvage.NOTE).exists()


def test_only_the_damaged_rows_are_lost_and_batches_that_are_there_are_known(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(data, block_of(data, "job") + 1000)
    starts, counts = use(data, 1)
    assert starts == 2
    assert counts == {"job": 0, "device_sample": BATCHES * ROWS, "batch_ledger": BATCHES}
    assert f"{JOBS} rows of table job are lost, 0 were kept" in caplog.text
    store = open_store(data)
    assert not take(store, "n", 3), "sent again, it is recognised"
    store.close()
    [aside] = data.glob(f"{FILE_NAME}.damaged-*")
    assert aside.stat().st_size > 10**5


def test_where_the_ledger_is_lost_samples_go_too_and_come_again_once(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(data, block_of(data, "batch_ledger") + 1000)
    _, counts = use(data, 1)
    assert (counts["job"], counts["device_sample"], counts["batch_ledger"]) == (JOBS, 0, 0)
    assert f"{BATCHES} rows of table batch_ledger are lost" in caplog.text
    store = open_store(data)
    assert all(take(store, "n", sequence) for sequence in range(BATCHES))
    assert found(store)["device_sample"] == BATCHES * ROWS + 7
    store.close()


def test_a_copying_that_was_interrupted_begins_anew(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    salvage.note(data, "as if a block were damaged")

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(salvage, "_copy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            open_store(data, recover=True)
    assert use(data, 1) == (1, {"job": JOBS, "device_sample": BATCHES * ROWS, "batch_ledger": BATCHES})
    assert len(list(data.glob(f"{FILE_NAME}.damaged-*"))) == 1


def test_commits_are_numbered_on_and_a_lost_log_still_shows(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = int((data / "commits").read_text())
    salvage.note(data, "as if a block were damaged")
    use(data, 1)
    assert int((data / "commits").read_text()) == before + 1
    assert "gone without a trace" not in caplog.text


def test_sealed_days_and_their_records_come_once_from_the_lake(data: Path) -> None:
    store = open_store(data)
    lake.seal(store, data, "device_sample", date(1970, 1, 1))
    lake.publish(store, data)
    store.close()
    flip(data, block_of(data, "sealed_day") + 100)
    use(data, 1)
    store = open_store(data)
    with store.snapshot() as tables:
        assert (tables.job.count().execute(), tables.device_sample.count().execute()) == (JOBS, BATCHES * ROWS + 7)
    store.close()


def test_a_command_refuses_a_file_that_cannot_be_opened_and_leaves_it_alone(data: Path) -> None:
    flip(data, block_of(data, "schema_version") + 100)
    before = (data / FILE_NAME).read_bytes()
    with pytest.raises(StoreError, match="does not match stored checksum"):
        open_store(data)
    assert (data / FILE_NAME).read_bytes() == before


@pytest.mark.slow
def test_a_server_on_a_damaged_file_is_started_once_more_and_takes_batches(data: Path, free_port: int) -> None:
    flip(data, block_of(data, "batch_ledger") + 1000)
    target = Target(f"http://127.0.0.1:{free_port}", access.ensure_tokens(data).by_role[access.Role.AGENT])
    agents = [Agent("n", target, ROWS)]
    supervisor = Supervisor(data, free_port)
    supervisor.start()
    agents[0].start()
    wait_for_more(agents, BATCHES, 90)
    agents[0].stop()
    supervisor.stop()
    assert (supervisor.codes, supervisor.started) == ([1, 0], 2), supervisor.log.read_text()
    store = open_store(data)
    assert compare(store, agents).lost == 0
    assert compare(store, agents).torn_or_doubled == 0
    store.close()
