"""SIGTERM under load: what the server has is answered, what it acknowledged is kept, and it is gone in its time."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from analysis.benchmarks._agents import Agent, Target, acknowledged, body, compare, wait_for_more
from tests.warehouse.serving import ServerProcess
from warehouse import access
from warehouse.contract import model, wire
from warehouse.server import GRACE_SECONDS
from warehouse.store import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LEEWAY_SECONDS = 10.0
"""For a busy machine: what the process does after its grace is milliseconds of work."""


def token(data: Path, role: access.Role) -> dict[str, str]:
    """Give the header of a role's token."""
    return {"Authorization": f"Bearer {access.token_file(data, role).read_text()}"}


def gauge(server: ServerProcess, name: str) -> float:
    """Read one of the server's own metrics."""
    headers = token(server.data, access.Role.OPERATOR)
    text = urllib3.request("GET", f"{server.url}/metrics", headers=headers, retries=False).data.decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def wait_until_waiting(server: ServerProcess, rows: int) -> None:
    """Wait until the server has taken so many rows that it has not yet written."""
    ends_at = time.monotonic() + 60
    while gauge(server, "trueload_server_waiting_rows") < rows:
        assert time.monotonic() < ends_at
        time.sleep(0.02)


def wait_until_busy(server: ServerProcess) -> None:
    """Wait until the server has used a second of CPU time more: it works on something."""
    ends_at, used = time.monotonic() + 60, cpu_seconds(server)
    while cpu_seconds(server) < used + 1.0:
        assert time.monotonic() < ends_at
        time.sleep(0.02)


def cpu_seconds(server: ServerProcess) -> float:
    """Give what the process has used."""
    status = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(status[11]) + int(status[12])) / os.sysconf("SC_CLK_TCK")


def end(server: ServerProcess) -> tuple[int, float]:
    """Send SIGTERM; gives the exit code and how long it took."""
    began = time.monotonic()
    server.stop()
    return server.process.returncode, time.monotonic() - began


def test_batches_that_the_server_has_are_written_and_answered_before_it_ends(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", variables={"TRUELOAD_STORE__COMMIT_WINDOW_SECONDS": "3"})
    headers = token(server.data, access.Role.AGENT)

    def post(number: int) -> int:
        content = body(f"node{number}", 1)
        url = f"{server.url}/v1/batches"
        return urllib3.request("POST", url, body=content, headers=headers, retries=False, timeout=60).status

    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(post, number) for number in range(16)]
        wait_until_waiting(server, 16 * 10)
        code, seconds = end(server)
        assert [answer.result() for answer in answers] == [200] * 16
    assert (code, seconds < GRACE_SECONDS + LEEWAY_SECONDS) == (0, True), seconds
    store = open_store(server.data)
    assert store.read("SELECT count(*) AS n FROM device_sample").to_pylist() == [{"n": 160}]
    store.close()


def test_under_load_everything_acknowledged_is_kept_and_the_next_server_goes_on(tmp_path: Path, free_port: int) -> None:
    data = tmp_path / "data"
    target = Target(f"http://127.0.0.1:{free_port}", access.ensure_tokens(data).by_role[access.Role.AGENT])
    agents = [Agent(f"node{number}", target) for number in range(16)]
    for agent in agents:
        agent.start()
    for _ in range(3):
        server = ServerProcess(data, free_port)
        wait_for_more(agents, acknowledged(agents) + 50, 60)
        code, seconds = end(server)
        assert (code, seconds < GRACE_SECONDS + LEEWAY_SECONDS) == (0, True), seconds
    for agent in agents:
        agent.stop()
    store = open_store(data)
    compared = compare(store, agents)
    store.close()
    assert (compared.lost, compared.torn_or_doubled) == (0, 0)
    assert sum((agent.refused for agent in agents), start=type(agents[0].refused)()).keys() <= {429, 503}


def test_a_question_that_goes_on_is_cut_off_and_does_not_keep_the_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    store = open_store(data, create=True)
    with store.transaction() as transaction:
        transaction.write(
            wire.from_records([model.Job(f"c/{n}#0", "c", str(n), "s", name=f"j{n}") for n in range(3000)])
        )
    store.close()
    server = ServerProcess(data, variables={"TRUELOAD_SQL__OVER_HTTP": "yes", "TRUELOAD_SQL__MOST_SECONDS": "600"})
    endless = "SELECT count(*) AS n FROM job AS a, job AS b, job AS c WHERE a.name || b.name < c.name"

    def ask() -> str:
        headers = token(data, access.Role.OPERATOR)
        url = f"{server.url}/v1/sql"
        answer = urllib3.request("POST", url, json={"sql": endless}, headers=headers, retries=False, timeout=120)
        return f"{answer.status} {answer.data.decode()}"

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        wait_until_busy(server)
        code, seconds = end(server)
        assert "503" in asked.result()
        assert "about to end" in asked.result()
    assert (code, seconds < GRACE_SECONDS + LEEWAY_SECONDS) == (0, True), seconds
