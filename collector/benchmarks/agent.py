"""What the agent takes of a node: eight cards at one reading a second with every source, its exporter scraped.

On each card are four processes that do nothing; then the same with one of them traced, at a thousand kernels a second;
then the first again with owners by a kubelet, where gRPC is installed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from collector.benchmarks import _kubelet
from collector.benchmarks._cards import GIB, card, uuid_of
from collector.benchmarks._traced import running
from collector.simulate.standin import (
    STATE_VARIABLE,
    StandinDevice,
    StandinProcess,
    StandinState,
    library_path,
)
from warehouse.contract.benchmark import Benchmark, BenchRequest, BenchResult, at_most
from warehouse.contract.errors import TrueloadError

CARDS = 8
IDLE_PER_CARD = 3
INTERVAL_SECONDS = 1.0
SCRAPE_SECONDS = 15.0
SECONDS, SECONDS_FULL = 32.0, 300.0
TICK_SECONDS = 0.5
MIB = 1024**2

CORE_RATIO_MAX = 0.005
TRACED_CORE_RATIO_MAX = 0.001
"""Of one traced process: a millisecond each second."""

RESIDENT_BYTES_MAX = 40 * MIB
KUBERNETES_BYTES_MAX = 65 * MIB
"""With gRPC, which the Kubernetes extra brings."""

SWEEP_SECONDS_MAX = 0.02
FIRST_BATCH_SECONDS_MAX = 3.0


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of the two processes, and the seconds from the agent's start to its first batch on disk."""

    bare: dict[str, float]
    agent: dict[str, float]
    first_batch_seconds: float | None


def measure(seconds: float, *, is_traced: bool, has_kubelet: bool = False) -> Measured:
    """Run the bare loop, then the agent, over the same cards, with a traced process on each or none.

    ``has_kubelet``: the agent asks a kubelet whose the cards are; else nobody says.

    Raises:
        TrueloadError: the stand-in is not built, or a process failed.

    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trueload-bench-")))
        cards = [uuid_of(place) for place in range(CARDS)]
        traced = stack.enter_context(running(cards) if is_traced else _still(CARDS))
        still = stack.enter_context(_still(IDLE_PER_CARD * CARDS))
        pids = [(traced[place], *still[place::CARDS]) for place in range(CARDS)]
        stop = threading.Event()
        state = StandinState.create(folder / "node.nvml", "570.124.06", _cards(0.0, pids))
        player = threading.Thread(target=_play, args=(state, stop, pids))
        player.start()
        try:
            environment = {**os.environ, STATE_VARIABLE: str(state.path)}
            bare = _figures(_start("bare", seconds / 2, environment))
            port = _free_port()
            ours = {
                "NVML_LIBRARY": str(library_path()),
                "NODE": "bench",
                "INTERVAL_SECONDS": str(INTERVAL_SECONDS),
                "SPOOL_DIR": str(folder / "spool"),
                "EXPORTER_LISTEN": f"127.0.0.1:{port}",
                "TOKEN_FILE": "",
            }
            if has_kubelet:
                socket_path = stack.enter_context(_kubelet.kubelet(folder, cards))
                ours |= {"JOB_SOURCE": "kubernetes", "KUBELET_SOCKET": str(socket_path), "POD_LOGS_DIR": str(folder)}
            environment |= {f"TRUELOAD_AGENT__{key}": value for key, value in ours.items()}
            begin = time.monotonic()
            child = _start("agent", seconds, environment)
            first = _first_batch_seconds(folder / "spool", begin, child)
            _scrape_until_end(child, f"http://127.0.0.1:{port}/metrics")
            return Measured(bare, _figures(child), first)
        finally:
            stop.set()
            player.join()
            state.close()


@contextmanager
def _still(count: int) -> Iterator[list[int]]:
    """Have so many processes that do nothing; gives their numbers."""
    children = [subprocess.Popen(["sleep", "infinity"]) for _ in range(count)]
    try:
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()


def _cards(elapsed_seconds: float, pids: Sequence[Sequence[int]]) -> list[StandinDevice]:
    return [
        card(place, elapsed_seconds, [StandinProcess(pid, 10 * GIB, 0.2) for pid in on_card])
        for place, on_card in enumerate(pids)
    ]


def _play(state: StandinState, stop: threading.Event, pids: Sequence[Sequence[int]]) -> None:
    begin = time.monotonic()
    while not stop.wait(TICK_SECONDS):
        state.write(_cards(time.monotonic() - begin, pids))


def _start(kind: str, seconds: float, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "collector.benchmarks._agent_child", kind]
    command += [str(library_path()), str(seconds), str(INTERVAL_SECONDS)]
    root = Path(__file__).parents[2]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=root, stdout=pipe, stderr=pipe, text=True)


def _figures(child: subprocess.Popen[str]) -> dict[str, float]:
    out, errors = child.communicate()
    if child.returncode != 0:
        raise TrueloadError(f"the process that is measured failed ({child.returncode}): {errors.strip()[-500:]}")
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return found


def _first_batch_seconds(spool: Path, begin: float, child: subprocess.Popen[str]) -> float | None:
    while child.poll() is None and time.monotonic() - begin < 2 * FIRST_BATCH_SECONDS_MAX:
        if any(spool.glob("*.batch")):
            return time.monotonic() - begin
        time.sleep(0.01)
    return None


def _scrape_until_end(child: subprocess.Popen[str], address: str) -> None:
    """Scrape as Prometheus would; whether anybody answers is no matter of this figure."""
    while True:
        try:
            child.wait(SCRAPE_SECONDS)
        except subprocess.TimeoutExpired:
            try:
                with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - the agent's own address
                    answer.read()
            except (urllib.error.URLError, OSError):
                continue
        else:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(request: BenchRequest) -> BenchResult:
    """Measure; ``full`` lasts five minutes each time."""
    seconds = SECONDS_FULL if request.full else SECONDS
    found, traced = (measure(seconds, is_traced=is_traced) for is_traced in (False, True))
    in_pods = measure(seconds, is_traced=False, has_kubelet=True) if _kubelet.is_possible() else None
    per_traced = (traced.agent["core_ratio"] - found.agent["core_ratio"]) / CARDS
    bars = [
        at_most("share of a core", found.agent["core_ratio"], CORE_RATIO_MAX),
        at_most("share of a core for each traced process", per_traced, TRACED_CORE_RATIO_MAX),
        at_most("resident memory, bytes", traced.agent["resident_bytes"], RESIDENT_BYTES_MAX),
        *(
            [at_most("resident memory with Kubernetes, bytes", in_pods.agent["resident_bytes"], KUBERNETES_BYTES_MAX)]
            if in_pods is not None
            else []
        ),
        at_most("mean sweep, seconds", traced.agent["sweep_mean_seconds"], SWEEP_SECONDS_MAX),
        at_most("first batch on disk, seconds", traced.first_batch_seconds, FIRST_BATCH_SECONDS_MAX),
    ]
    figures: dict[str, object] = {f"bare_{name}": value for name, value in found.bare.items()}
    figures |= {f"agent_{name}": value for name, value in found.agent.items()}
    figures |= {f"agent_with_traced_{name}": value for name, value in traced.agent.items()}
    if in_pods is not None:
        figures |= {f"agent_with_kubernetes_{name}": value for name, value in in_pods.agent.items()}
    figures["agent_to_bare_core_ratio"] = found.agent["core_ratio"] / found.bare["core_ratio"]
    figures["first_batch_seconds"] = traced.first_batch_seconds
    return BenchResult(
        figures,
        bars,
        not_shown=[
            "what a real driver's calls take: the stand-in answers from memory, a driver makes system calls",
            "sending to a server: batches go to the spool alone",
            *(["the Kubernetes extra, for gRPC is not installed"] if in_pods is None else []),
            "jobs in control groups of their own: here each process on a card is a tree of its own",
        ],
    )


BENCHMARK = Benchmark(
    name="agent",
    description="What the agent takes of a node with eight cards at 1 s, against the bare loop of the binding.",
    run=run,
    needs_sources=False,
)
