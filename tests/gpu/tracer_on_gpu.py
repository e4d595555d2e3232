"""The tracer on a real GPU: one run, one JSON document (README.md says which questions it answers)."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from collector.tracer import layout  # noqa: E402 - the script runs from a checkout, installed or not
from collector.tracer.calibrate import measure_launch_cost  # noqa: E402
from collector.tracer.correction import Stretch, corrected_wall_seconds, launch_cost  # noqa: E402
from collector.tracer.launch_costs import LaunchCost  # noqa: E402
from collector.tracer.library import INJECTION_VARIABLE, NVTX_VARIABLE, library_path  # noqa: E402
from collector.tracer.published import published_memory, read_header, read_piece  # noqa: E402
from warehouse.contract.intervals import length, union  # noqa: E402

SECOND = 10**9
MILLISECOND = 10**6
WORKLOADS = ("network", "tiny", "graph")
GRAPH_KERNELS = 100
WARM_UP_STEPS = 20
SETTLE_SECONDS = float(os.environ.get("SETTLE_SECONDS", "5"))
"""For the tracer to close the window, its lateness and two flushes behind."""

CHILD_PATIENCE_SECONDS = 120
"""A measured process that hangs is ended, so that it costs its own case alone."""


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
        for _ in range(GRAPH_KERNELS):
            values.mul_(1.0)
    replay: Callable[[], None] = graph.replay
    return replay


def _profiled_kernels(profiler: Any, path: Path) -> list[tuple[int, int]]:
    """The kernels of torch.profiler's timeline, in integer nanoseconds of its own clock."""
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    return [(round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)) for event in kernels]


def _with_steps(torch: Any) -> Callable[[], None]:
    """The tiny workload, telling each step twice: as an NVTX range, and by ``trueload.step``."""
    import trueload

    step = _tiny(torch)

    def told_step() -> None:
        torch.cuda.nvtx.range_push("trueload.step")
        step()
        torch.cuda.nvtx.range_pop()
        trueload.step()

    return told_step


def be_measured(workload: str, steps: int, profiler_order: str, trace_path: Path) -> dict[str, Any]:
    """Run the workload; with a profiler ``first`` (before CUDA is initialised), ``later`` or ``none``."""
    signal.alarm(CHILD_PATIENCE_SECONDS)
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    profiler = torch.profiler.profile(activities=activities)
    if profiler_order == "first":
        profiler.start()
    step = {"network": _network, "tiny": _tiny, "graph": _graph, "steps": _with_steps}[workload](torch)
    for _ in range(WARM_UP_STEPS):
        step()
    torch.cuda.synchronize()
    if profiler_order == "later":
        profiler.start()
    begin, began = time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.perf_counter_ns()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    told: dict[str, Any] = {
        "steps": steps,
        "wall_seconds": (time.perf_counter_ns() - began) / SECOND,
        "begin_nanoseconds": begin,
        "end_nanoseconds": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
    }
    if profiler_order != "none":
        profiler.stop()
        kernels = _profiled_kernels(profiler, trace_path)
        told |= {"profiler_kernels_count": len(kernels), "profiler_busy_seconds": length(union(kernels)) / SECOND}
    time.sleep(SETTLE_SECONDS)
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
    """What the tracer says of the measured steps. Counts of the two seconds at the edges are taken by their share."""

    busy_seconds: float
    armed_seconds: float
    launches_count: float
    gaps_count: float
    overhead_idle_seconds: float
    late_seconds: float
    flags: int


def read_window(memory: memoryview, device: int, begin: int, end: int) -> Window:
    """Sum what lies in the window; within a second things are taken to be spread evenly."""
    seconds = layout.parse_seconds(read_piece(memory, layout.SECONDS_SPAN))
    sums, armed, flags = [0.0] * 4, 0.0, 0
    for second in range(begin // SECOND, end // SECOND + 1):
        share = (min(end, (second + 1) * SECOND) - max(begin, second * SECOND)) / SECOND
        bucket, _ = layout.parse_bucket(read_piece(memory, layout.bucket_span(device, second)))
        if bucket.second == second:
            values = (bucket.launches, bucket.gaps, bucket.overhead_idle_nanoseconds, bucket.late_nanoseconds)
            sums = [total + share * value for total, value in zip(sums, values, strict=True)]
        if second in seconds:
            armed += share * seconds[second].armed_nanoseconds
            flags |= seconds[second].flags
    return Window(
        busy_seconds=busy_nanoseconds_between(memory, device, begin, end) / SECOND,
        armed_seconds=armed / SECOND,
        launches_count=sums[0],
        gaps_count=sums[1],
        overhead_idle_seconds=sums[2] / SECOND,
        late_seconds=sums[3] / SECOND,
        flags=flags,
    )


def slots_between(memory: memoryview, device: int, begin: int, end: int) -> list[float]:
    """Give the share of each whole millisecond of a window in which the process had a kernel running."""
    shares: list[float] = []
    for second in range(begin // SECOND, end // SECOND + 1):
        bucket, slots = layout.parse_bucket(read_piece(memory, layout.bucket_span(device, second)))
        known = slots if bucket.second == second else (0,) * layout.SLOTS_MAX
        for number, share in enumerate(known):
            at = second * SECOND + number * MILLISECOND
            if begin <= at and at + MILLISECOND <= end:
                shares.append(share / layout.SLOT_FULL)
    return shares


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


class Measured:
    """A measured process: started, read while it waits, ended."""

    def __init__(self, workload: str, steps: int, *, traced: bool, profiler: str = "none", **environment: str) -> None:
        """Start it."""
        injections = {INJECTION_VARIABLE, NVTX_VARIABLE}
        inherited = {name: value for name, value in os.environ.items() if name not in injections}
        injected = {INJECTION_VARIABLE: str(library_path())} if traced else {}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe could fill, and the process would wait for ever
        self._traced = traced
        self._child = subprocess.Popen(
            [sys.executable, __file__, "--measured", workload, str(steps), profiler],
            env={**inherited, **injected, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.told: dict[str, Any] = {}
        self.memory: memoryview | None = None

    def wait(self) -> None:
        """Wait until its work is done and its seconds are closed; it goes on waiting for us."""
        assert self._child.stdout
        line = self._child.stdout.readline()
        if line:
            self.told = json.loads(line)
            self.memory = published_memory(self._child.pid) if self._traced else None

    def end(self) -> dict[str, Any]:
        """Read what it published, let it end, and give all it told."""
        told = self.told
        if self.memory is not None:
            header = read_header(self.memory)
            told["tracer"] = asdict(read_window(self.memory, 0, told["begin_nanoseconds"], told["end_nanoseconds"]))
            told["tracer"]["header"] = {
                name: getattr(header, name)
                for name in header._fields
                if name.endswith("_total") or name in {"mode", "state", "cupti_version", "failure_step", "failure_code"}
            }
            told["tracer"]["lost"] = [lost._asdict() for lost in header.lost]
        self._child.communicate("")
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace")
        self._errors.close()
        if self._child.returncode != 0:
            told["failed"] = f"exit {self._child.returncode}: {errors.strip()[-2000:]}"
        return told


def run_case(workload: str, steps: int, *, traced: bool, profiler: str = "none", **environment: str) -> dict[str, Any]:
    """Run one process to its end, with the driver's view beside it."""
    stop, samples = threading.Event(), list[int]()
    view = threading.Thread(target=_driver_view, args=(stop, samples))
    view.start()
    child = Measured(workload, steps, traced=traced, profiler=profiler, **environment)
    child.wait()
    stop.set()
    view.join()
    told = child.end()
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
    """Correct the traced wall time as the agent does, and compare it with the untraced one."""
    window, wall = case["last_traced"].get("tracer"), case["last_traced"].get("wall_seconds")
    if not window or not wall or not case["plain_seconds"]:
        return {"failed": "no traced and untraced run to compare"}
    plain = statistics.median(case["plain_seconds"])
    stretch = Stretch(
        wall, window["busy_seconds"], window["overhead_idle_seconds"], window["launches_count"], window["gaps_count"]
    )
    seconds = corrected_wall_seconds(stretch, launch_cost(cost.added_nanoseconds, cost.spread_nanoseconds))
    return {
        "plain_seconds": plain,
        "corrected_seconds": list(seconds),
        "off_ratio": [one / plain - 1 for one in seconds],
    }


def agreement(traced: dict[str, Any], profiled: dict[str, Any]) -> dict[str, Any]:
    """Compare GPU-bound time per step by the tracer and by torch.profiler's timeline, of one run or of two alike.

    Per step, for a profiler stretches wall-clock time, and kernels take as long as they take.
    """
    try:
        ours = traced["tracer"]["busy_seconds"] / traced["steps"]
        theirs = profiled["profiler_busy_seconds"] / profiled["steps"]
        return {"tracer_seconds_per_step": ours, "profiler_seconds_per_step": theirs, "off_ratio": ours / theirs - 1}
    except (KeyError, ZeroDivisionError) as missing:
        return {"failed": f"nothing to compare: {missing!r}"}


def two_processes(steps: int) -> dict[str, Any]:
    """Run the tiny workload twice at once and unite by slots: the sum, up to 1, for contexts take turns."""
    children = [Measured("tiny", steps, traced=True) for _ in range(2)]
    for child in children:
        child.wait()
    memories = [child.memory for child in children if child.memory is not None]
    begin = max(child.told.get("begin_nanoseconds", 0) for child in children)
    end = min(child.told.get("end_nanoseconds", 0) for child in children)
    each = [slots_between(memory, 0, begin, end) for memory in memories]
    together = [min(1.0, sum(shares)) for shares in zip(*each, strict=True)]
    count = max(len(together), 1)
    return {
        "common_seconds": (end - begin) / SECOND,
        "each_ratio": [sum(shares) / count for shares in each],
        "union_ratio": sum(together) / count,
        "processes": [child.end() for child in children],
    }


def _try(case: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return case(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - one case that fails must not cost the others
        return {"failed": f"{type(error).__name__}: {error}"}


def _wall_ratio(with_tracer: dict[str, Any], without: dict[str, Any]) -> float | None:
    """How much longer the same steps took under the same profiler when traced, too."""
    if "wall_seconds" not in with_tracer or "wall_seconds" not in without:
        return None
    ratio: float = with_tracer["wall_seconds"] / without["wall_seconds"] - 1
    return ratio


def _profiled(workload: str, steps: int, repeats: int, cost: dict[str, Any]) -> dict[str, Any]:
    """Every question about one workload."""
    few = min(steps, 2000)  # a profiler keeps every event
    case = _try(slow_down, workload, steps, repeats)
    parts: dict[str, Any] = {"slow_down": case}
    for order in ("first", "later"):
        alone = _try(run_case, workload, few, traced=False, profiler=order)
        both = _try(run_case, workload, few, traced=True, profiler=order)
        parts[f"profiler_{order}"] = {
            "profiler_alone": alone,
            "with_tracer": both,
            "slow_down_ratio": _wall_ratio(both, alone),
            "agreement_in_one_run": agreement(both, both),
        }
    parts["agreement"] = agreement(case.get("last_traced", {}), parts["profiler_later"]["profiler_alone"])
    if "failed" not in cost and "failed" not in case:
        parts["corrected"] = _try(corrected, case, LaunchCost(**cost))
    return parts


def _graphs(steps: int) -> dict[str, Any]:
    """A captured graph at both levels; one launch per replay, and at node level all its kernels."""
    answers: dict[str, Any] = {}
    for level, environment in (("node_level", {}), ("graph_level", {"TRUELOAD_TRACER_GRAPH_LEVEL": "1"})):
        told = answers[level] = _try(run_case, "graph", steps, traced=True, **environment)
        if "tracer" in told:
            told["launches_per_replay"] = told["tracer"]["launches_count"] / steps
    return answers


def _steps(steps: int) -> dict[str, Any]:
    """Steps told by NVTX and by Python: two for each, warm-up included."""
    told: dict[str, Any] = _try(run_case, "steps", steps, traced=True, **{NVTX_VARIABLE: str(library_path())})
    return {
        "expected": 2 * (steps + WARM_UP_STEPS),
        "found": told.get("tracer", {}).get("header", {}).get("steps_total"),
    }


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
        "graph": _graphs(steps["graph"]),
        "two_processes": _try(two_processes, steps["tiny"]),
        "steps": _steps(1000),
        "duty_cycle": _try(run_case, "tiny", steps["tiny"], traced=True, TRUELOAD_TRACER_DUTY_SECONDS="1/1"),
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
