"""kill -9 at random moments under load: what was acknowledged is there, once, and the server soon serves again.

The process dies, the machine does not: what the kernel has taken is kept, so this shows nothing of power loss. Days are
sealed all the while, so that kills also fall into the writing of the lake; one round in five is killed while it starts.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_most
from analysis.benchmarks._agents import Agent, Compared, Target, acknowledged, compare, wait_for_more
from warehouse import access, backup, lake
from warehouse.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS, FULL_ROUNDS = 20, 200
AGENTS = 16
SEED = 7
READY_SECONDS = 60.0
MOST_RESTART_SECONDS = 5.0
LONGEST_LOAD_SECONDS = 3.0
"""A kill falls this long after the first acknowledgement at most: several group commits, and a round of sealing."""

EARLY_ROUND = 5
"""Every so manieth round is killed while the server starts."""

SEALING = {
    "TRUELOAD_LAKE__KEEPER_INTERVAL_SECONDS": "1",
    "TRUELOAD_LAKE__SEAL_AFTER_SECONDS": "0",
    "TRUELOAD_LAKE__KEEP_REPLACED_SECONDS": "0",
}
LOSSES = ("gone without a trace", "Set aside")
"""What a start says when something is missing: a killed process gives no reason to."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a number of kills did. ``restart_seconds``: from the start of the process to the first acknowledgement.

    ``restart_cpu_seconds`` is what the process itself used until then: it does not grow with what else a machine does.
    """

    rounds: int
    restart_seconds: Sequence[float]
    restart_cpu_seconds: Sequence[float]
    compared: Compared
    starts_that_spoke_of_loss: int
    verified: bool
    sealed_generations: int


@dataclass(slots=True)
class _Server:
    """One server after another over a data directory, always on the same port."""

    data: Path
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> float:
        """Start it; gives the instant."""
        command = [sys.executable, "-m", "trueload", "serve", "--data", str(self.data), "--port", str(self.port)]
        began = time.monotonic()
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(command, env={**os.environ, **SEALING}, stdout=stream, stderr=stream)
        return began

    def cpu_seconds(self) -> float:
        """Give what it has used so far: fields 14 and 15 of proc_pid_stat(5)."""
        if self.process is None:
            return 0.0
        status = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(status[11]) + int(status[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it at once, as the kernel does when memory runs out."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def kill_rounds(folder: Path, rounds: int, seed: int = SEED) -> Outcome:
    """Start, load and kill a server over and over, then look at what is there.

    Raises:
        TimeoutError: a server did not acknowledge anything within a minute.

    """
    data = folder / "data"
    data.mkdir(parents=True)
    server = _Server(data, _free_port(), folder / "server.log")
    target = Target(f"http://127.0.0.1:{server.port}", access.ensure_tokens(data).by_role[access.Role.AGENT])
    agents = [Agent(f"node{number:02d}", target) for number in range(AGENTS)]
    moments = random.Random(seed)  # noqa: S311 - moments that come again with the seed
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    try:
        for agent in agents:
            agent.start()
        for turn in range(rounds):
            began, before = server.start(), acknowledged(agents)
            if turn % EARLY_ROUND == EARLY_ROUND - 1:
                time.sleep(moments.uniform(0.0, min(seconds)))
            else:
                seconds.append(wait_for_more(agents, before, READY_SECONDS) - began)
                cpu_seconds.append(server.cpu_seconds())
                time.sleep(moments.uniform(0.0, LONGEST_LOAD_SECONDS))
            server.kill()
    finally:
        server.kill()
        for agent in agents:
            agent.stop()
    log = server.log.read_text(encoding="utf-8").splitlines()
    store = open_store(data)
    try:
        return Outcome(
            rounds=rounds,
            restart_seconds=seconds,
            restart_cpu_seconds=cpu_seconds,
            compared=compare(store, agents),
            starts_that_spoke_of_loss=sum(any(loss in line for loss in LOSSES) for line in log),
            verified=bool(backup.verify(store)["ok"]),
            sealed_generations=sum(day.generation for day in lake.sealed_days(store)),
        )
    finally:
        store.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bars(outcome: Outcome) -> list[Bar]:
    """Give the bars: nothing acknowledged lost, nothing doubled, each restart serving within 5 s."""
    return [
        *kept_bars(outcome),
        at_most("slowest restart to the first acknowledgement, s", max(outcome.restart_seconds), MOST_RESTART_SECONDS),
    ]


def kept_bars(outcome: Outcome) -> list[Bar]:
    """Give the bars that hold however busy the machine is."""
    compared = outcome.compared
    most_cpu_seconds = max(outcome.restart_cpu_seconds)
    return [
        at_most("acknowledged batches that are gone", compared.lost, 0),
        at_most("batches torn or doubled", compared.torn_or_doubled, 0),
        at_most("starts that spoke of a loss", outcome.starts_that_spoke_of_loss, 0),
        at_most("most CPU time of a restart to the first acknowledgement, s", most_cpu_seconds, MOST_RESTART_SECONDS),
        Bar("verify finds nothing wrong", float(outcome.verified), "1", outcome.verified),
    ]


def run(request: BenchRequest) -> BenchResult:
    """Kill a server under load 20 times, or 200 with ``--full``."""
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as folder:
        outcome = kill_rounds(Path(folder), FULL_ROUNDS if request.full else ROUNDS)
    figures = {
        "rounds": outcome.rounds,
        "batches_acknowledged": outcome.compared.acknowledged,
        "batches_recognised_when_sent_again": outcome.compared.recognised,
        "generations_sealed_meanwhile": outcome.sealed_generations,
        "restart_seconds": _distribution(outcome.restart_seconds),
        "restart_cpu_seconds": _distribution(outcome.restart_cpu_seconds),
    }
    not_shown = ["power loss: the process is killed, the kernel keeps what it has taken", "large stores at the start"]
    return BenchResult(figures, bars(outcome), not_shown)


def _distribution(seconds: Sequence[float]) -> dict[str, float]:
    found = np.percentile(seconds, (50, 95, 99, 100))
    return {name: float(value) for name, value in zip(("p50", "p95", "p99", "most"), found, strict=True)}


BENCHMARK = Benchmark(
    name="kills",
    description="Kills under load, 20 (200 with --full): nothing acknowledged is lost, nothing doubled.",
    run=run,
    needs_sources=False,
)
