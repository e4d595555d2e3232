"""The tracer on a real GPU: one run, one JSON document (README.md says which questions it answers)."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from collector.tracer import layout  # noqa: E402 - the script runs from a checkout, installed or not
from collector.tracer.calibrate import LaunchCost, measure_launch_cost  # noqa: E402
from collector.tracer.library import INJECTION_VARIABLE, library_path  # noqa: E402
from collector.tracer.published import published_memory, read_header, read_piece  # noqa: E402
from warehouse.contract.intervals import length, union  # noqa: E402

SECOND = 10**9
MILLISECOND = 10**6
WORKLOADS = ("network", "tiny", "graph")


# ---- the measured process


def _network(torch: Any) -> Callable[[], None]:
    """Some convolutions, forward and backward: a GPU that is busy most of the time, as with a ResNet."""
    blocks = [torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU()) for _ in range(16)]
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, stride=2), *blocks, torch.nn.Flatten(), torch.nn.LazyLinear(10)
    )
    model = model.cuda()
    images = torch.randn(64, 3, 64, 64, device="cuda")
    model(images)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(images).square().mean().backward()
        optimizer.step()

    return step


def _tiny(torch: Any) -> Callable[[], None]:
    """A small policy asked once per step of a simulation on the CPU, as in reinforcement learning."""
    policy = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).cuda()
    state = torch.randn(1, 64, device="cuda")

    def step() -> None:
        with torch.no_grad():
            action = policy(state).argmax().item()
        sum(i * action for i in range(2000))  # the simulation

    return step


def _graph(torch: Any) -> Callable[[], None]:
    """A hundred small kernels captured once and replayed."""
    values = torch.randn(4096, device="cuda")
    for _ in range(3):
        values.mul_(1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            values.mul_(1.0)
    replay: Callable[[], None] = graph.replay
    return replay


def _profiled_kernels(profiler: Any, path: Path) -> list[tuple[int, int]]:
    """The kernels of torch.profiler's timeline, in integer nanoseconds of its own clock."""
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    return [(round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)) for event in kernels]


def be_measured(workload: str, steps: int, profiler_order: str, trace_path: Path) -> dict[str, Any]:
    """Run the workload; with a profiler ``first`` (before CUDA is initialised), ``later`` or ``none``."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    profiler = torch.profiler.profile(activities=activities)
    if profiler_order == "first":
        profiler.start()
    step = {"network": _network, "tiny": _tiny, "graph": _graph}[workload](torch)
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    if profiler_order == "later":
        profiler.start()
    begin, began = time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.perf_counter_ns()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    told: dict[str, Any] = {
        "wall_seconds": (time.perf_counter_ns() - began) / SECOND,
        "begin_nanoseconds": begin,
        "end_nanoseconds": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
    }
    if profiler_order != "none":
        profiler.stop()
        kernels = _profiled_kernels(profiler, trace_path)
        told |= {"profiler_kernels_count": len(kernels), "profiler_busy_seconds": length(union(kernels)) / SECOND}
    time.sleep(5)  # for the tracer to close the window, its lateness and two flushes behind
    return told


# ---- reading what it published


def busy_nanoseconds_between(memory: memoryview, device: int, begin: int, end: int) -> float:
    """GPU-bound time of a device in a window, from the slots: right to the share of a millisecond at each edge."""
    total = 0.0
    for second in range(begin // SECOND, end // SECOND + 1):
        bucket, slots = layout.parse_bucket(read_piece(memory, layout.bucket_span(device, second)))
        if bucket.second != second:
            continue
        for number, share in enumerate(slots):
            at = second * SECOND + number * MILLISECOND
            inside = max(0, min(end, at + MILLISECOND) - max(begin, at))
            total += min(inside, share * MILLISECOND / layout.SLOT_FULL)
    return total


@dataclass(frozen=True, slots=True)
class Window:
    """What the tracer says of the measured steps."""

    busy_seconds: float
    launches_count: int
    gaps_count: int
    overhead_idle_seconds: float
    late_seconds: float
    flags: int


def read_window(memory: memoryview, device: int, begin: int, end: int) -> Window:
    """Sum whole seconds that meet the window, and the window's own busy time."""
    seconds = layout.parse_seconds(read_piece(memory, layout.SECONDS_SPAN))
    buckets, flags = [], 0
    for second in range(begin // SECOND, end // SECOND + 1):
        bucket, _ = layout.parse_bucket(read_piece(memory, layout.bucket_span(device, second)))
        buckets += [bucket] if bucket.second == second else []
        flags |= seconds[second].flags if second in seconds else 0
    return Window(
        busy_seconds=busy_nanoseconds_between(memory, device, begin, end) / SECOND,
        launches_count=sum(bucket.launches for bucket in buckets),
        gaps_count=sum(bucket.gaps for bucket in buckets),
        overhead_idle_seconds=sum(bucket.overhead_idle_nanoseconds for bucket in buckets) / SECOND,
        late_seconds=sum(bucket.late_nanoseconds for bucket in buckets) / SECOND,
        flags=flags,
    )


# ---- cases


def _driver_view(stop: threading.Event, samples: list[int]) -> None:
    """The driver's utilization of device 0 while a case runs, in percent; nothing without its binding."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        while not stop.wait(0.2):
            samples.append(int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
    except Exception as error:  # noqa: BLE001 - beside the point of the run, and told in the document
        sys.stderr.write(f"no driver view: {error}\n")


def _start(workload: str, steps: int, *, traced: bool, profiler: str, **environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if name != INJECTION_VARIABLE}
    injected = {INJECTION_VARIABLE: str(library_path())} if traced else {}
    command = [sys.executable, __file__, "--measured", workload, str(steps), profiler]
    return subprocess.Popen(
        command,
        env={**inherited, **injected, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(child: subprocess.Popen[str], *, traced: bool) -> dict[str, Any]:
    assert child.stdout
    line = child.stdout.readline()  # then it waits for us to look
    told: dict[str, Any] = {}
    if line:
        told = json.loads(line)
        memory = published_memory(child.pid) if traced else None
        if memory is not None:
            header = read_header(memory)
            told["tracer"] = asdict(read_window(memory, 0, told["begin_nanoseconds"], told["end_nanoseconds"]))
            told["tracer"]["header"] = {
                name: getattr(header, name)
                for name in header._fields
                if name.endswith("_total") or name in {"mode", "state", "cupti_version", "failure_step", "failure_code"}
            }
            told["tracer"]["lost"] = [lost._asdict() for lost in header.lost]
    _, errors = child.communicate("")
    if child.returncode != 0:
        told["failed"] = f"exit {child.returncode}: {errors.strip()[-2000:]}"
    return told


def run_case(workload: str, steps: int, *, traced: bool, profiler: str = "none", **environment: str) -> dict[str, Any]:
    """Run one process to its end, with the driver's view beside it."""
    stop, samples = threading.Event(), list[int]()
    view = threading.Thread(target=_driver_view, args=(stop, samples))
    view.start()
    told = _finish(_start(workload, steps, traced=traced, profiler=profiler, **environment), traced=traced)
    stop.set()
    view.join()
    told["driver_util_percent_max"] = max(samples, default=None)
    return told


def slow_down(workload: str, steps: int, repeats: int) -> dict[str, Any]:
    """Give the same steps with and without the tracer, in turn."""
    pairs = [(run_case(workload, steps, traced=False), run_case(workload, steps, traced=True)) for _ in range(repeats)]
    plain = [one["wall_seconds"] for one, _ in pairs if "wall_seconds" in one]
    traced = [other["wall_seconds"] for _, other in pairs if "wall_seconds" in other]
    ratio = statistics.median(traced) / statistics.median(plain) - 1 if plain and traced else None
    return {"plain_seconds": plain, "traced_seconds": traced, "slow_down_ratio": ratio, "last_traced": pairs[-1][1]}


def corrected(case: dict[str, Any], cost: LaunchCost) -> dict[str, Any]:
    """Correct the traced wall time by its bounds and compare it with the untraced one."""
    window, wall = case["last_traced"].get("tracer"), statistics.median(case["traced_seconds"] or [0.0])
    if not window or not case["plain_seconds"]:
        return {"failed": "no traced and untraced run to compare"}
    plain, added = statistics.median(case["plain_seconds"]), cost.added_nanoseconds / SECOND
    least = wall - window["overhead_idle_seconds"] - window["gaps_count"] * added
    most = wall - window["overhead_idle_seconds"] - window["launches_count"] * added
    return {
        "plain_seconds": plain,
        "corrected_seconds": [most, least],
        "off_ratio": [most / plain - 1, least / plain - 1],
    }


def two_processes(steps: int) -> dict[str, Any]:
    """Run the tiny workload twice at once and unite by slots: the sum, up to 1, for contexts take turns."""
    children = [_start("tiny", steps, traced=True, profiler="none") for _ in range(2)]
    told = [_finish(child, traced=True) for child in children]
    return {"processes": told}


def _try(case: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return case(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - one case that fails must not cost the others
        return {"failed": f"{type(error).__name__}: {error}"}


def _profiled(workload: str, steps: int, repeats: int, cost: dict[str, Any]) -> dict[str, Any]:
    """Every question about one workload."""
    few = min(steps, 2000)  # a profiler keeps every event
    case = _try(slow_down, workload, steps, repeats)
    parts = {
        "slow_down": case,
        "profiler_first": _try(run_case, workload, few, traced=True, profiler="first"),
        "profiler_later": _try(run_case, workload, few, traced=True, profiler="later"),
        "agreement": _try(run_case, workload, few, traced=False, profiler="later"),
    }
    if "failed" not in cost and "failed" not in case:
        parts["corrected"] = _try(corrected, case, LaunchCost(**cost))
    return parts


def run_all(seconds: float, repeats: int) -> dict[str, Any]:
    """Run every case; steps are chosen so that the timed part of each takes about ``seconds``."""
    cost = _try(lambda: asdict(measure_launch_cost()))
    probes = {workload: run_case(workload, 50, traced=False) for workload in WORKLOADS}
    steps = {
        workload: max(50, int(50 * seconds / probe.get("wall_seconds", seconds))) for workload, probe in probes.items()
    }
    return {
        "launch_cost": cost,
        "probes": probes,
        "network": _profiled("network", steps["network"], repeats, cost),
        "tiny": _profiled("tiny", steps["tiny"], repeats, cost),
        "graph": {
            "node_level": _try(run_case, "graph", steps["graph"], traced=True),
            "graph_level": _try(run_case, "graph", steps["graph"], traced=True, TRUELOAD_TRACER_GRAPH_LEVEL="1"),
        },
        "two_processes": _try(two_processes, steps["tiny"]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the run, or one of its measured processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file for the document; standard output without it")
    parser.add_argument("--seconds", type=float, default=6, help="length of each timed part")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs for the slow-down")
    parser.add_argument("--measured", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measured:
        workload, steps, profiler = options.measured
        told = be_measured(workload, int(steps), profiler, Path(f"/tmp/trace-{os.getpid()}.json"))  # noqa: S108
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
        return 0
    text = json.dumps(run_all(options.seconds, options.repeats), indent=1)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
