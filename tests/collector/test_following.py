"""`trueload jobs` follows a cluster: what pods become is at the server, whatever was away meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collector.jobs.kube_server import KubeServer
from tests.collector.jobs.kube_words import pod
from tests.warehouse.serving import REPOSITORY, ServerProcess
from warehouse import access


@pytest.fixture
def kube() -> Iterator[KubeServer]:
    with KubeServer().serving() as served:
        yield served


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    started = ServerProcess(tmp_path / "data", variables={"TRUELOAD_SQL__OVER_HTTP": "true"})
    yield started
    started.stop()


class Collector:
    """``trueload jobs`` over a fake API server."""

    def __init__(self, folder: Path, kube: KubeServer, server: ServerProcess) -> None:
        self.options = [
            "--source=kubernetes",
            f"--server={server.url}",
            f"--token-file={access.token_file(server.data, access.Role.AGENT)}",
        ]
        settings = {
            "TRUELOAD_JOBS__KUBERNETES_URL": kube.url,
            "TRUELOAD_AGENT__CLUSTER": "c",
            "TRUELOAD_AGENT__SPOOL_DIR": str(folder / "spool"),
            "TRUELOAD_AGENT__LONGEST_WAIT_SECONDS": "1",
            "TRUELOAD_JOBS__LONGEST_WAIT_SECONDS": "1",
        }
        self.environment = {**os.environ, **settings}
        self.log = folder / "jobs.log"

    def command(self, name: str) -> list[str]:
        return [sys.executable, "-m", "trueload", "jobs", name, *self.options]

    def once(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("once"), cwd=REPOSITORY, env=self.environment, capture_output=True, text=True, check=False
        )

    def run(self) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(self.command("run"), cwd=REPOSITORY, env=self.environment, stderr=log)


def states(server: ServerProcess) -> dict[str, str]:
    found: Any = server.client().sql("SELECT other_id, state FROM attempt")["rows"]
    return {row["other_id"]: row["state"] for row in found}


def wait(holds: Callable[[], object], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, log.read_text() if log.exists() else ""
        time.sleep(0.05)


def test_once_tells_what_is_there_and_again_changes_nothing(
    tmp_path: Path, kube: KubeServer, server: ServerProcess
) -> None:
    kube.put(pod("train-0", gpus=2))
    kube.put(pod("web", gpus=0))
    collector = Collector(tmp_path, kube, server)
    for _ in range(2):
        done = collector.once()
        assert (done.returncode, done.stdout) == (0, "3 records sent\n"), done.stderr
        assert states(server) == {"ml/train-0": "running"}
    held: Any = server.client().sql("SELECT gpu_count, certainty FROM allocation")["rows"]
    assert held == [{"gpu_count": 2.0, "certainty": "requested"}]


def test_once_fails_with_a_word_where_nobody_answers(tmp_path: Path, kube: KubeServer, server: ServerProcess) -> None:
    kube.down.set()
    done = Collector(tmp_path, kube, server).once()
    assert done.returncode == 1
    assert done.stderr.startswith(f"trueload: {kube.url}: no answer")


@pytest.mark.slow
def test_run_follows_through_outages_of_the_api(tmp_path: Path, kube: KubeServer, server: ServerProcess) -> None:
    kube.put(pod("train-0"))
    collector = Collector(tmp_path, kube, server)
    running = collector.run()
    try:
        wait(lambda: states(server) == {"ml/train-0": "running"}, collector.log)
        kube.down.set()
        wait(lambda: "no answer" in collector.log.read_text(), collector.log)
        kube.put(pod("train-0", phase="Succeeded", end=60.0))
        kube.put(pod("train-1"))
        kube.down.clear()
        wait(lambda: states(server) == {"ml/train-0": "completed", "ml/train-1": "running"}, collector.log)
        kube.delete(pod("train-1"))
        wait(lambda: states(server)["ml/train-1"] == "cancelled", collector.log)
    finally:
        running.terminate()
        assert running.wait(30) == 0
