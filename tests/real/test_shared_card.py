"""U01, from the kubelet to the answer: three pods share a card that is 71 % busy and draws 300 W."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from collector.simulate.standin import STATE_VARIABLE, StandinDevice, StandinState, library_path
from tests.collector.jobs.kubelet import Kubelet, pod
from tests.warehouse.serving import REPOSITORY, ServerProcess
from warehouse import access
from warehouse.client import HttpClient, RecordId
from warehouse.contract import model, wire

pytestmark = pytest.mark.slow

CARD = "GPU-aaa00000-0000-0000-0000-000000000000"
PODS = {"train-0": "alice", "train-1": "bob", "serve": "carol"}
WATTS, BUSY = 300.0, 0.71
ROWS = 8
"""Seconds of measuring that the test waits for, one row a second and pod."""


@dataclass(frozen=True)
class Shared:
    """A server that an agent on the card's node has told of it."""

    server: ServerProcess

    def rows(self, statement: str) -> list[dict[str, Any]]:
        found: Any = self.server.client().sql(statement)["rows"]
        return list(found)


class Card:
    """The card, whose energy counter goes on as 300 W would have it."""

    def __init__(self, path: Path) -> None:
        self.card = StandinDevice(
            uuid=CARD,
            name="NVIDIA A100-SXM4-40GB",
            pci_bus_id="00000000:10:00.0",
            minor_number=0,
            memory_total_bytes=40 * 1024**3,
            memory_used_bytes=4 * 1024**3,
            driver_util_ratio=BUSY,
            power_watts=WATTS,
            energy_joules=0.0,
            temperature_celsius=60.0,
            sm_clock_hertz=1e9,
        )
        self.state = StandinState.create(path, "570.124.06", [self.card])
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._go_on)
        self.thread.start()

    def _go_on(self) -> None:
        begin = time.monotonic()
        while not self.stop.wait(0.02):
            self.state.write([replace(self.card, energy_joules=WATTS * (time.monotonic() - begin))])

    def close(self) -> None:
        self.stop.set()
        self.thread.join()
        self.state.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with tempfile.TemporaryDirectory(prefix="shared-") as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        kubelet = Kubelet(folder / "kubelet.sock")
        kubelet.pods = [pod(name, [f"{CARD}::{number}"]) for number, name in enumerate(PODS)]
        kubelet.start()
        card = Card(folder / "node.nvml")
        server = ServerProcess(folder / "data", variables={"TRUELOAD_SQL__OVER_HTTP": "true"})
        agent = start_agent(folder, server)
        try:
            told = Shared(server)
            tell_of_pods(server)
            deadline = time.monotonic() + 90
            while told.rows("SELECT count(*) AS n FROM device_sample")[0]["n"] < ROWS * len(PODS):
                assert agent.poll() is None, (folder / "agent.log").read_text()
                assert time.monotonic() < deadline, (folder / "agent.log").read_text()
                time.sleep(0.2)
            agent.terminate()
            assert agent.wait(30) == 0
            yield told
        finally:
            if agent.poll() is None:
                agent.kill()
                agent.wait()
            server.stop()
            card.close()
            kubelet.stop()


def start_agent(folder: Path, server: ServerProcess) -> subprocess.Popen[bytes]:
    settings = {
        "NODE": "n1",
        "CLUSTER": "c",
        "SOURCES": "nvml",
        "JOB_SOURCE": "kubernetes",
        "KUBELET_SOCKET": str(folder / "kubelet.sock"),
        "POD_LOGS_DIR": str(folder / "logs"),
        "NVML_LIBRARY": str(library_path()),
        "INTERVAL_SECONDS": "0.25",
        "CADENCE_SECONDS": "1",
        "SPOOL_DIR": str(folder / "spool"),
        "SERVER_URL": server.url,
        "TOKEN_FILE": str(access.token_file(server.data, access.Role.AGENT)),
        "EXPORTER_LISTEN": "",
    }
    variables = {f"TRUELOAD_AGENT__{name}": value for name, value in settings.items()}
    with (folder / "agent.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "trueload", "agent", "run"],
            cwd=REPOSITORY,
            env={**os.environ, **variables, STATE_VARIABLE: str(folder / "node.nvml")},
            stdout=log,
            stderr=log,
        )


def tell_of_pods(server: ServerProcess) -> None:
    """Tell what a collector beside the API server knows: whose the pods are. A pod is an attempt, by its UID."""
    records: list[Any] = []
    for name, user in PODS.items():
        key = f"c/{name}#0"
        records += [
            model.Job(key, "c", name, "kubernetes", name=name, user=user, namespace="team"),
            model.Attempt(
                f"{key}:uid-{name}",
                key,
                model.AttemptState.RUNNING,
                "Running",
                time.time() - 5,
                None,
                "kubernetes",
                other_id=f"team/{name}",
            ),
        ]
    server.client().load("kubernetes", [RecordId("pods", 1)], wire.from_records(records))


def test_u01_every_sharer_is_there_under_the_own_job(shared: Shared) -> None:
    found = shared.rows(
        "SELECT DISTINCT attempt_key, attribution, share_ratio FROM device_sample WHERE attempt_key IS NOT NULL "
        "ORDER BY attempt_key"
    )
    assert [(row["attempt_key"], row["attribution"]) for row in found] == [
        (f"c/{name}#0:uid-{name}", "equal_split") for name in sorted(PODS)
    ]
    assert [row["share_ratio"] for row in found] == pytest.approx([1 / 3] * 3)
    # Of the time before the kubelet was first asked nobody says whose it was.
    (alone,) = shared.rows("SELECT count(*) AS n FROM device_sample WHERE attempt_key IS NULL")
    assert alone["n"] <= 2


def test_u01_the_cluster_is_71_percent_busy_and_no_more_than_that_of_the_card_is_attributed(shared: Shared) -> None:
    fleet: Any = shared.server.client().ask("fleet", {})
    assert fleet["used_ratio"] == pytest.approx(BUSY, abs=1e-6)
    (device,) = fleet["by_node"]
    assert (device["device_count"], device["used_ratio"]) == (1, pytest.approx(BUSY, abs=1e-6))
    told: Any = shared.server.client().ask("waste", {"by": "job"})
    used = {row["key"]: row["gpu_seconds"]["used"] for row in told["rows"]}
    assert len(used) == 3
    (watched,) = shared.rows("SELECT sum(cadence_seconds) / count(DISTINCT attempt_key) AS seconds FROM device_sample")
    assert sum(used.values()) <= watched["seconds"] * BUSY + 1e-3
    assert sum(used.values()) >= (watched["seconds"] - 3) * BUSY
    assert max(used.values()) - min(used.values()) < 1e-6
    assert told["gpu_seconds"]["allocated"] <= fleet["gpu_seconds"]["capacity"] + 1e-6


def test_u01_power_and_energy_are_split_the_same_way(shared: Shared) -> None:
    """Each row has the card's values; a sharer's part is its share of them, and the parts make up the card."""
    (found,) = shared.rows(
        "SELECT min(watts) AS least, max(watts) AS most, sum(joules) AS joules, sum(seconds) AS seconds FROM ("
        "SELECT sum(power_watts * share_ratio) AS watts, sum(energy_joules * share_ratio) AS joules, "
        "max(cadence_seconds) AS seconds FROM device_sample WHERE energy_joules IS NOT NULL GROUP BY sampled_at)"
    )
    assert (found["least"], found["most"]) == (pytest.approx(WATTS, rel=1e-5), pytest.approx(WATTS, rel=1e-5))
    # The first stretch knows the counter only from its first reading on; counted for each sharer it would be thrice.
    assert 0.7 * WATTS * found["seconds"] < found["joules"] < 1.1 * WATTS * found["seconds"]


def test_u01_each_owner_sees_a_third_and_nobody_elses(shared: Shared) -> None:
    made = shared.server.client().manage_tokens("new", {"role": "user", "name": "bob"})
    told: Any = HttpClient(shared.server.url, str(made["token"])).ask("waste", {"by": "job"})
    (own,) = told["rows"]
    assert own["key"] == "c/train-1#0"
    whole: Any = shared.server.client().ask("waste", {"by": "job"})
    assert own["gpu_seconds"]["used"] == pytest.approx(
        next(row for row in whole["rows"] if row["key"] == own["key"])["gpu_seconds"]["used"]
    )
