"""A database that gives up ends the server with a message; started again, it has everything and goes on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from analysis.benchmarks._agents import Agent, Target, acknowledged, compare, wait_for_more
from tests.warehouse.serving import Supervisor
from warehouse import access
from warehouse.pulse import last_words
from warehouse.store import FILE_NAME, open_store

AGENTS, ROWS = 4, 5_000
WAIT_SECONDS = 90.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Give a store whose database file is larger than the log may become before it is taken into the file."""
    folder = tmp_path / "data"
    store = open_store(folder, create=True)
    with store.transaction() as transaction:
        transaction.execute(
            "INSERT INTO job (job_key, cluster, scheduler_job_id, source, name) "
            "SELECT 'c/' || range || '#0', 'c', range, 's', md5(random()::VARCHAR) || md5(random()::VARCHAR) "
            "FROM range(500000)"
        )
    store.close()
    assert (folder / FILE_NAME).stat().st_size > 20 * 2**20
    return folder


@pytest.fixture
def supervisor(data: Path, free_port: int) -> Iterator[Supervisor]:
    """Give a running supervisor."""
    started = Supervisor(data, free_port)
    started.start()
    yield started
    started.stop()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_checkpoint_that_cannot_be_written_ends_the_server_and_the_next_one_has_everything(
    data: Path, supervisor: Supervisor, free_port: int
) -> None:
    target = Target(f"http://127.0.0.1:{free_port}", access.ensure_tokens(data).by_role[access.Role.AGENT])
    agents = [Agent(f"node{number}", target, ROWS) for number in range(AGENTS)]
    for agent in agents:
        agent.start()
    wait_for_more(agents, 0, WAIT_SECONDS)
    first = supervisor.process
    assert first is not None
    # From now on the kernel refuses to let the database file grow; the log beside it may, until the checkpoint.
    size_bytes = (data / FILE_NAME).stat().st_size
    resource.prlimit(first.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))
    assert first.wait(timeout=WAIT_SECONDS) == 1

    wait_for_more(agents, acknowledged(agents), WAIT_SECONDS)
    for agent in agents:
        agent.stop()
    supervisor.stop()
    told = supervisor.log.read_text()
    assert "the database gave up: FATAL Error" in told
    assert "must be opened anew" in told
    assert "Set aside" not in told
    assert (supervisor.codes, supervisor.started) == ([1, 0], 2)
    store = open_store(data)
    compared = compare(store, agents)
    store.close()
    assert (compared.lost, compared.torn_or_doubled) == (0, 0)
    assert compared.acknowledged > AGENTS


def test_a_database_that_gave_up_is_known_by_its_last_words(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    assert last_words(store) is None
    with store.cursor() as cursor:
        with pytest.raises(duckdb.CatalogException):
            cursor.execute("FROM no_such_table")
        assert last_words(store) is None, "a statement that fails is no death"
        cursor.execute("SET debug_checkpoint_abort = 'before_header'")
        with pytest.raises(duckdb.FatalException):
            cursor.execute("CHECKPOINT")
    assert "Checkpoint aborted before header write" in str(last_words(store))
    store.close()


HANGS = """
import sys, threading, pathlib
from warehouse import pulse
from warehouse.store import open_store
pulse.LEAVE_SECONDS = 0.2
store = open_store(pathlib.Path(sys.argv[1]), create=True)
store.cursor().execute("SET debug_checkpoint_abort = 'before_header'")
with pulse.Pulse(store, lambda: None):
    try:
        store.cursor().execute("CHECKPOINT")
    except Exception:
        threading.Event().wait()
"""


def test_a_process_that_cannot_end_in_good_order_ends_all_the_same(tmp_path: Path, repository: Path) -> None:
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run(
        [sys.executable, "-c", HANGS, str(tmp_path)], cwd=repository, env=environment, check=False, timeout=60
    )
    assert done.returncode == 1
    assert time.monotonic() - began < 60
