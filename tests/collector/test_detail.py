"""The last hour as it was read, from a page's question to the agent's memory and back; nobody connects to the agent."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.test_server import Running
from warehouse import access, batches
from warehouse.client import Document
from warehouse.contract import model, wire

BUSY = "GPU-00000000-0000-0000-0000-00000000000a"
ATTEMPT = "c/1#0:1"


@pytest.mark.slow
def test_what_a_page_asks_for_comes_from_the_memory_of_the_agent(
    bench: Any, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    server = Running(tmp_path / "data")
    data = server.store.data
    access.ensure_join_secret(data)
    records: list[model.Record] = [
        model.Job("c/1#0", "c", "1", "slurm"),
        model.Attempt(ATTEMPT, "c/1#0", model.AttemptState.RUNNING, None, 1.0, None, "slurm"),
        model.Allocation("a", ATTEMPT, 1.0, 1.0, None, "slurm", device_uuid=BUSY, node="node-1"),
    ]
    batches.commit(server.store, [batches.check(wire.Batch("test", "b", 1, 1.0, wire.from_records(records)))])
    environment = bench.environment(server.url, None, JOIN_TOKEN_FILE=str(access.join_file(data)))
    agent = subprocess.Popen(bench.command("agent", "run"), cwd=bench.repository, env=environment)
    found: list[Document] = []

    def has_come() -> bool:
        found.append(server.client().ask("detail", {"attempt": ATTEMPT}))
        series = found[-1]["series"]
        assert isinstance(series, list)
        return {one["source"] for one in series if len(one["at"]) > 3} == {"nvml", "gpm"}

    try:
        wait_until(has_come, 40.0)
    finally:
        agent.terminate()
        assert agent.wait(20) == 0
        server.stop()
    assert found[0] == {"attempt": ATTEMPT, "series": [], "waiting_for": [BUSY]}
    series = found[-1]["series"]
    assert isinstance(series, list)
    nvml = next(one for one in series if one["source"] == "nvml")
    assert nvml["at"] == sorted(set(nvml["at"]))
    assert set(nvml["columns"]["power_watts"]) == {400.0}
    assert len(nvml["columns"]["power_watts"]) == len(nvml["at"]) > 3
    assert (tmp_path / "spool" / "node.token").stat().st_mode & 0o777 == 0o600
