"""An agent, its server and a node in trouble, for minutes or hours: does memory stay flat, is anything lost?"""

from __future__ import annotations

import random
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collector.benchmarks._cards import card
from collector.benchmarks._trend import Growth, growth
from collector.benchmarks._trouble import CARDS, TroubledNode
from collector.benchmarks._watched import READY_SECONDS, Size, Watched, ask, read, wait_for
from collector.simulate.standin import STATE_VARIABLE, StandinState, library_path
from warehouse.contract.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_most
from warehouse.contract.errors import TrueloadError

MIB: Final = 1024**2
SECONDS, SECONDS_FULL = 30.0, 3600.0
WARM_UP_RATIO: Final = 0.5
"""The first part of a run is not measured: code is met for the first time, and what is remembered of processes fills
up to its bound, at 4096 of them; four a second come and go here."""

LOOK_SECONDS: Final = 0.25
INTERVAL_SECONDS, CADENCE_SECONDS = 0.2, 1.0
SERVER_DIES_SECONDS: Final = 25.0
PAUSE_SECONDS: Final = 40.0
SCRAPE_SECONDS: Final = 1.0
"""On average so long until the server is killed, until the agent is stopped for a moment, until it is scraped."""

GROWTH_BYTES_MAX: Final = 4 * MIB
"""Of a run: above what an allocator keeps back or gives back by chance, below what an hour's leak of 1 KiB a reading
would add."""

THREADS_MAX: Final = 24
"""One per device, one for the driver, one per other source, and one each for events, shipping, the exporter, its four
callers, and the loop; some to spare while lanes are made."""

OPEN_FILES_MAX: Final = 32
QUICK: Final = {"TRUELOAD_STORE__COMMIT_WINDOW_SECONDS": "0.01"}
"""For the server: with one sender there is nothing to wait for."""

GRACE_SECONDS: Final = 10.0
RECOVERY_SECONDS: Final = 15.0

LEDGER = """
WITH stream AS (SELECT max(sequence) AS highest, count(DISTINCT sequence) AS numbers FROM batch_ledger GROUP BY boot_id)
SELECT count(*) AS batches, count(*) - count(DISTINCT (boot_id, sequence, part)) AS doubled,
    (SELECT coalesce(sum(highest - numbers), 0)::BIGINT FROM stream) AS lost,
    (SELECT count(*) FROM device_sample) AS samples,
    (SELECT count(*) - count(DISTINCT (device_uuid, source, sampled_at)) FROM device_sample) AS doubled_samples
FROM batch_ledger
"""


@dataclass(slots=True)
class Seen:
    """What a run saw."""

    sizes: list[Size] = field(default_factory=list)
    server_bytes: list[int] = field(default_factory=list)
    disturbed: Counter[str] = field(default_factory=Counter)
    scrapes: int = 0
    grace_seconds: float | None = None
    back: int = 0
    left_in_spool: int = -1
    ledger: dict[str, float] = field(default_factory=dict)


class Site:
    """A server, an agent and eight cards in one folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Start all of it.

        Raises:
            TrueloadError: the stand-in is not built, or a process did not start.

        """
        self.folder, self.data, self.spool = folder, folder / "data", folder / "spool"
        self.draw = random.Random(seed)  # noqa: S311 - a run repeats itself from its seed
        self.seen = Seen()
        self.jobs: list[subprocess.Popen[bytes]] = []
        self.port, self.metrics_port = _free_port(), _free_port()
        self.state = StandinState.create(
            folder / "node.nvml", "570.124.06", [card(place, 0.0) for place in range(CARDS)]
        )
        self.node = TroubledNode(self.state, seed, self.pids)
        self.node.start()
        ours = {
            "NVML_LIBRARY": str(library_path()),
            "NODE": "soak",
            "JOB_SOURCE": "process",
            "SOURCES": "nvml,gpm,host",  # traced processes of others on this machine would count as files held open
            "INTERVAL_SECONDS": str(INTERVAL_SECONDS),
            "CADENCE_SECONDS": str(CADENCE_SECONDS),
            "CALL_PATIENCE_SECONDS": "0.1",
            "REPROBE_SECONDS": "1",
            "DETAIL_SECONDS": "10",
            "SPOOL_DIR": str(self.spool),
            "SPOOL_KEPT_MAX_BYTES": str(MIB),
            "SERVER_URL": f"http://127.0.0.1:{self.port}",
            "TOKEN_FILE": str(self.data / "tokens" / "agent.token"),
            "LONGEST_WAIT_SECONDS": "2",
            "EXPORTER_LISTEN": f"127.0.0.1:{self.metrics_port}",
            "EXPORTER_DCGM_NAMES": "yes",
            "EXPORTER_MOST_JOB_SERIES": "32",
        }
        self.variables = {f"TRUELOAD_AGENT__{key}": value for key, value in ours.items()}
        self.variables[STATE_VARIABLE] = str(self.state.path)
        self.server = self.start_server()
        self.agent = self.start_agent()

    def pids(self) -> Sequence[int]:
        """Give the jobs that run now."""
        return [job.pid for job in list(self.jobs)]

    def start_server(self) -> Watched:
        """Start the server and wait until it answers."""
        arguments = ["serve", "--data", str(self.data), "--port", str(self.port)]
        server = Watched(arguments, self.folder / "server.log", QUICK)
        if not wait_for(lambda: not server.is_running or read(f"http://127.0.0.1:{self.port}/healthz"), READY_SECONDS):
            raise TrueloadError("the server does not answer")
        server.require_running()
        return server

    def start_agent(self) -> Watched:
        """Start the agent and wait until it has read something."""
        agent = Watched(["agent", "run"], self.folder / "agent.log", self.variables)
        ready = f"http://127.0.0.1:{self.metrics_port}/readyz"
        wait_for(lambda: not agent.is_running or read(ready), READY_SECONDS)
        agent.require_running()
        return agent

    def close(self) -> None:
        """End whatever still runs."""
        for watched in (self.agent, self.server):
            if watched.is_running:
                watched.kill()
        for job in self.jobs:
            job.kill()
            job.wait()
        self.node.close()
        self.state.close()

    # ------------------------------------------------------------------------------------------------ disturbing

    def disturb(self, seconds: float) -> None:
        """Have everything go wrong for a while, looking at the agent meanwhile."""
        self.node.trouble(on=True)
        stop = threading.Event()
        others = [
            threading.Thread(target=work, args=(stop,)) for work in (self._kill_servers, self._scrape, self._jobs)
        ]
        for thread in others:
            thread.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                self.agent.require_running()
                if (size := self.agent.size()) is not None:
                    self.seen.sizes.append(size)
                if (size := self.server.size()) is not None:
                    self.seen.server_bytes.append(size.resident_bytes)
                if self._happens(PAUSE_SECONDS, LOOK_SECONDS):
                    self.seen.disturbed["the agent was stopped for a moment"] += 1
                    self.agent.pause(self.draw.uniform(0.5, 2.0))
                time.sleep(LOOK_SECONDS)
        finally:
            stop.set()
            for thread in others:
                thread.join()

    def _happens(self, every_seconds: float, within_seconds: float) -> bool:
        return self.draw.random() < within_seconds / every_seconds

    def _kill_servers(self, stop: threading.Event) -> None:
        while not stop.wait(self.draw.uniform(0.2, 1.8) * SERVER_DIES_SECONDS):
            self.seen.disturbed["the server was killed"] += 1
            self.server.kill()
            stop.wait(self.draw.uniform(0.0, 4.0))
            self.server = self.start_server()

    def _scrape(self, stop: threading.Event) -> None:
        while not stop.wait(SCRAPE_SECONDS):
            if self._happens(10.0, SCRAPE_SECONDS):
                self.seen.disturbed["a scraper went away in the middle"] += 1
                with socket.socket() as rude:
                    rude.settimeout(1.0)
                    try:
                        rude.connect(("127.0.0.1", self.metrics_port))
                        rude.sendall(b"GET /metrics HT")
                    except OSError:
                        continue
                continue
            self.seen.scrapes += read(f"http://127.0.0.1:{self.metrics_port}/metrics") is not None

    def _jobs(self, stop: threading.Event) -> None:
        """Keep a dozen short programs running, each a job of its own."""
        while not stop.wait(0.25):
            ended = [job for job in self.jobs if job.poll() is not None]
            self.jobs = [job for job in self.jobs if job not in ended]
            if len(self.jobs) < CARDS + CARDS // 2:
                self.seen.disturbed["jobs that came and went"] += 1
                self.jobs.append(subprocess.Popen(["sleep", f"{self.draw.uniform(0.2, 5.0):.1f}"]))

    # --------------------------------------------------------------------------------------------------- the end

    def settle(self) -> None:
        """See that all is well again, end the agent while a call is out, send what is left, and count."""
        self.node.trouble(on=False)
        self.node.add("the driver is gone", 0, 1.0)  # what is remembered as unsupported is forgotten with the driver
        wait_for(lambda: self._devices_that_read() == CARDS, RECOVERY_SECONDS)
        self.seen.back = self._devices_that_read()
        self.node.add("a call never returns", 3, 60.0)
        time.sleep(2 * INTERVAL_SECONDS)
        self.seen.grace_seconds = self.agent.stop(GRACE_SECONDS)
        self.node.trouble(on=False)
        if not self.server.is_running:
            self.server = self.start_server()
        self.agent = self.start_agent()
        left = self._spooled()
        while left and wait_for(lambda left=left: self._spooled() < left, READY_SECONDS):  # type: ignore[misc]
            left = self._spooled()
        self.agent.stop(GRACE_SECONDS)
        self.seen.left_in_spool = self._spooled()
        self.server.stop(READY_SECONDS)
        self.seen.ledger = ask(self.data, LEDGER, {})

    def _spooled(self) -> int:
        return sum(1 for _ in self.spool.glob("*.batch"))

    def _devices_that_read(self) -> int:
        text = read(f"http://127.0.0.1:{self.metrics_port}/metrics") or ""
        return sum(line.startswith("trueload_gpu_power_watts{") for line in text.splitlines())


def soak(seconds: float, seed: int) -> Seen:
    """Disturb a site for so long; give what was seen.

    Raises:
        TrueloadError: the stand-in is not built, a process did not start, or the agent ended by itself.

    """
    with tempfile.TemporaryDirectory(prefix="trueload-soak-") as name:
        site = Site(Path(name), seed)
        try:
            site.disturb(seconds)
            site.settle()
        finally:
            site.close()
        site.seen.disturbed += site.node.counts
        return site.seen


def judge(seen: Seen, seconds: float) -> BenchResult:
    """Turn what was seen into figures and bars."""
    begin = seen.sizes[0].at + WARM_UP_RATIO * seconds
    sizes = [size for size in seen.sizes if size.at >= begin]
    memory = growth([(size.at, float(size.own_bytes)) for size in sizes])
    ledger = seen.ledger
    bars = [
        at_most("growth of the agent's memory, upper end, bytes", _high(memory), GROWTH_BYTES_MAX),
        at_most("threads", max(size.threads for size in sizes), THREADS_MAX),
        at_most("open files", max(size.open_files for size in sizes), OPEN_FILES_MAX),
        at_most("batches lost", ledger["lost"], 0),
        at_most("batches or rows doubled", ledger["doubled"] + ledger["doubled_samples"], 0),
        at_most("batches left in the spool", seen.left_in_spool, 0),
        Bar("devices that read again afterwards", seen.back, f"{CARDS}", seen.back == CARDS),
        at_most("seconds to end with a call that is out", seen.grace_seconds, GRACE_SECONDS),
    ]
    figures: dict[str, object] = {
        "measured_seconds": sizes[-1].at - sizes[0].at,
        "memory_first_bytes": sizes[0].own_bytes,
        "memory_last_bytes": sizes[-1].own_bytes,
        "memory_growth_bytes": None if memory is None else memory.likely,
        "memory_growth_low_bytes": None if memory is None else memory.low,
        "memory_growth_high_bytes": _high(memory),
        "resident_most_bytes": max(size.resident_bytes for size in sizes),
        "threads_at_most": max(size.threads for size in sizes),
        "open_files_at_most": max(size.open_files for size in sizes),
        "server_resident_most_bytes": max(seen.server_bytes, default=0),
        "scrapes": seen.scrapes,
        "batches": ledger["batches"],
        "samples": ledger["samples"],
        **{f"disturbed: {what}": count for what, count in sorted(seen.disturbed.items())},
    }
    return BenchResult(
        figures,
        bars,
        not_shown=[
            "a real driver, whose library has memory, threads and faults of its own",
            "days: a run tells of its own length, at five readings a second instead of one",
            "the last hour in memory, cut to ten seconds here so that it is full from the beginning on",
            "a full or read-only disk and steps of the clock, which have tests of their own",
            "the kubelet's socket and Slurm's files: jobs here are plain processes, and none is traced",
            "the server's memory, which follows its database's cache: it is told, not judged",
        ],
    )


def _high(grown: Growth | None) -> float | None:
    return None if grown is None else grown.high


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(request: BenchRequest) -> BenchResult:
    """Run as long as asked; ``full`` is an hour."""
    seconds = request.seconds or (SECONDS_FULL if request.full else SECONDS)
    return judge(soak(seconds, seed=11), seconds)


BENCHMARK = Benchmark(
    name="soak",
    description="An agent, its server and eight cards to which random things go wrong: memory, threads, files, ledger.",
    run=run,
    needs_sources=False,
)
