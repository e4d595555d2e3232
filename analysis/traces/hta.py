"""The conventions of HolisticTraceAnalysis 0.5.0, so that its figures can be laid beside ours.

They differ from ours on purpose (facts read off that package, MIT, Meta Platforms): what was launched in the last
profiler step is left out where there are several; instants with decimals are rounded up and ends down to whole
microseconds, in doubles, which may leave a short event with a negative length; waits that the profiler books on a
stream count as events of the GPU; a class is told by the name alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from warehouse.timeline import NO_CORRELATION, Activity, Flags, GpuEvents, Ints, Spans, Timeline

Floats: TypeAlias = npt.NDArray[np.float64]
Row: TypeAlias = dict[str, int | float | str | None]

NS_PER_US = 1000
KERNEL_WAIT_NS = 30 * NS_PER_US
"""Gaps shorter than this count as the cost of launching; the default of that package."""

LONG_CALL_NS = 50 * NS_PER_US
LONG_DELAY_NS = 100 * NS_PER_US
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
"""Calls whose delay is looked at, by the same defaults; those of HIP and of the driver are not among them."""

_NO_STREAM = -1
_CLASSES = ("COMPUTATION", "COMMUNICATION", "MEMORY")
_OTHER = "OTHER"
_PERCENT_DECIMALS = 2


@dataclass(frozen=True, slots=True)
class HtaView:
    """GPU events and calls as that package sees them: filtered, and rounded to whole microseconds (kept in ns)."""

    events: GpuEvents
    kinds: npt.NDArray[np.str_]
    """The class of each event: one of COMPUTATION, COMMUNICATION, MEMORY, OTHER."""
    call_start_ns: Ints
    call_duration_ns: Ints
    call_correlation: Ints
    is_launch: Flags


def hta_view(timeline: Timeline) -> HtaView:
    """Look at a timeline with that package's eyes."""
    start, duration = _rounded(timeline, timeline.gpu.start_ns, timeline.gpu.duration_ns)
    gpu, calls = timeline.gpu, timeline.calls
    events = GpuEvents(start, duration, gpu.activity, gpu.config, gpu.device, gpu.stream, gpu.correlation)
    call_start, call_duration = _rounded(timeline, calls.start_ns, calls.duration_ns)
    kept = np.ones(len(calls), np.bool_)
    rows = events.stream != _NO_STREAM
    if len({step.name for step in timeline.steps}) > 1:
        last = np.array([step.start_ns for step in timeline.steps], np.int64)
        kept = call_start < _rounded(timeline, last, np.zeros(len(last), np.int64))[0].max()
        rows &= (events.stream >= 0) & (events.correlation >= 0)
        rows &= np.isin(events.correlation, calls.correlation[kept])
    kinds = np.array([kind_of(config.name) for config in timeline.configs] or [_OTHER])
    launches = np.isin(np.array(calls.apis, dtype=np.str_), LAUNCHES) if calls.apis else np.zeros(1, np.bool_)
    events = events.where(rows)
    return HtaView(
        events=events,
        kinds=kinds[events.config],
        call_start_ns=call_start[kept],
        call_duration_ns=call_duration[kept],
        call_correlation=calls.correlation[kept],
        is_launch=launches[calls.api[kept]],
    )


def kind_of(name: str) -> str:
    """Give the class of an event by its name, as that package's patterns have it."""
    if name.startswith("nccl") and "Kernel" in name:
        return "COMMUNICATION"
    if name.startswith(("Memcpy", "Memset", "dma")):
        return "MEMORY"
    return _OTHER if "Memcpy" in name or "Sync" in name else "COMPUTATION"


def temporal_breakdown(view: HtaView) -> dict[str, int] | None:
    """Give idle, compute, non-compute and all time in ns; None without events."""
    if not len(view.events):
        return None
    busy = _merged(view.events)
    span = int(busy.end_ns[-1] - busy.start_ns[0])
    idle = span - busy.length_ns
    compute = _merged(view.events.where(view.kinds == "COMPUTATION")).length_ns
    return {"idle": idle, "compute": compute, "non_compute": span - compute - idle, "kernel": span}


def overlap_ratio(view: HtaView) -> float | None:
    """Give the share of communication during which a compute kernel ran; None without communication."""
    times = _class_times(view, ("COMMUNICATION", "COMPUTATION"))
    communication = _merged(view.events.where(view.kinds == "COMMUNICATION")).length_ns
    return times.get(("COMMUNICATION", "COMPUTATION"), 0) / communication if communication else None


def kernel_types(view: HtaView) -> list[Row]:
    """Give for every set of classes how long exactly these ran, the longest first; sets without time are left out."""
    times = _class_times(view, _CLASSES)
    total = sum(times.values())
    ranked = sorted(times.items(), key=lambda item: -item[1])
    return [
        {
            "kernel_type": " overlapping ".join(names),
            "sum": length // NS_PER_US,
            "percentage": round(100 * length / total, 1),
        }
        for names, length in ranked
        if length
    ]


def idle_breakdown(view: HtaView) -> list[Row]:
    """Sort the gaps of each stream: the host was late, launching took its time, or another cause."""
    linked = _launch_instants(view)
    is_work = view.events.activity != Activity.SYNC
    events, linked = view.events.where(is_work), linked[is_work]
    rows: list[Row] = []
    for stream in dict.fromkeys(events.stream.tolist()):
        chosen = events.stream == stream
        rows += _idle_of_stream(stream, events.where(chosen), linked[chosen])
    return rows


def launch_statistics(view: HtaView) -> Row:
    """Give how long launching calls took, what they launched, and how long it waited; means in microseconds."""
    wanted = view.call_correlation[view.is_launch]
    calls = np.flatnonzero(np.isin(view.call_correlation, wanted))
    events = np.flatnonzero(np.isin(view.events.correlation, wanted))
    call, event = _joined(calls, view.call_correlation[calls], events, view.events.correlation[events])
    cpu, gpu = view.call_duration_ns[call], view.events.duration_ns[event]
    delay = np.maximum(view.events.start_ns[event] - view.call_start_ns[call] - cpu, 0)
    return {
        "n": len(call),
        "cpu_duration_mean": _mean_us(cpu),
        "gpu_duration_mean": _mean_us(gpu),
        "launch_delay_mean": _mean_us(delay),
        "launch_delay_median": float(np.median(delay)) / NS_PER_US if len(delay) else None,
        "n_gpu_shorter_than_cpu": int((gpu < cpu).sum()),
        "n_cpu_duration_gt_50": int((cpu > LONG_CALL_NS).sum()),
        "n_launch_delay_gt_100": int((delay > LONG_DELAY_NS).sum()),
    }


def hta_tables(view: HtaView, rank: int) -> dict[str, object]:
    """Give the tables under that package's own names and in its units, microseconds and percent."""
    times = temporal_breakdown(view)
    overlap = overlap_ratio(view)
    return {
        "temporal_breakdown": [] if times is None else [_temporal_row(times, rank)],
        "idle_time_breakdown_30": [{"rank": rank, **row} for row in idle_breakdown(view)],
        "comm_comp_overlap": [{"rank": rank, "comp_comm_overlap_pctg": overlap and round(100 * overlap, 2)}],
        "kernel_type": kernel_types(view),
        "launch_stats": launch_statistics(view),
    }


def _temporal_row(times: dict[str, int], rank: int) -> Row:
    row: Row = {"rank": rank}
    row |= {f"{name}_time(us)": times[name] // NS_PER_US for name in ("idle", "compute", "non_compute", "kernel")}
    shares = ("idle", "compute", "non_compute")
    return row | {f"{name}_time_pctg": round(100 * times[name] / times["kernel"], _PERCENT_DECIMALS) for name in shares}


def _rounded(timeline: Timeline, start_ns: Ints, duration_ns: Ints) -> tuple[Ints, Ints]:
    """Round begins up and ends down where instants have decimals, in doubles, as that package does."""
    if not timeline.has_decimals:
        return start_ns, duration_ns
    start, duration = _microseconds(start_ns), _microseconds(duration_ns)
    end = np.floor(start + duration)
    begin = np.ceil(start)
    return begin.astype(np.int64) * NS_PER_US, (end - begin).astype(np.int64) * NS_PER_US


def _microseconds(nanoseconds: Ints) -> Floats:
    """Give the doubles that a reader of decimal microseconds gets: the whole part is exact, so it is rounded once."""
    return nanoseconds // NS_PER_US + (nanoseconds % NS_PER_US) / NS_PER_US


def _merged(events: GpuEvents) -> Spans:
    """Merge intervals; unlike a union, one of negative length that stands alone stays and counts negative."""
    if not len(events):
        return Spans(np.empty(0, np.int64), np.empty(0, np.int64))
    order = np.argsort(events.start_ns, kind="stable")
    start, end = events.start_ns[order], events.end_ns[order]
    reached = np.maximum.accumulate(end)
    first = np.concatenate(([0], np.flatnonzero(start[1:] > reached[:-1]) + 1))
    return Spans(start[first], np.maximum.reduceat(end, first))


def _class_times(view: HtaView, classes: tuple[str, ...]) -> dict[tuple[str, ...], int]:
    """Add up how long exactly some classes ran at once, by walking begins and ends in order of time."""
    parts = [_merged(view.events.where(view.kinds == kind)) for kind in classes]
    times = np.concatenate([column for part in parts for column in (part.start_ns, part.end_ns)])
    changes = [
        np.repeat(sign << bit if sign > 0 else -(1 << bit), len(part.start_ns))
        for bit, part in enumerate(parts)
        for sign in (1, -1)
    ]
    order = np.argsort(times, kind="stable")
    running = np.cumsum(np.concatenate(changes)[order])[:-1]
    lengths = np.diff(times[order])
    sums: dict[tuple[str, ...], int] = {}
    for mask in range(1, 1 << len(classes)):
        names = tuple(kind for bit, kind in enumerate(classes) if mask >> bit & 1)
        sums[names] = sums.get(names, 0) + int(lengths[running == mask].sum())
    return sums


def _launch_instants(view: HtaView) -> Floats:
    """Give when each event was launched, in ns; NaN where no call bears its number."""
    order = np.argsort(view.call_correlation, kind="stable")
    numbers = view.call_correlation[order]
    at = np.searchsorted(numbers, view.events.correlation, side="right") - 1
    known = (at >= 0) & (view.events.correlation != NO_CORRELATION)
    known[known] = numbers[at[known]] == view.events.correlation[known]
    instants = np.full(len(view.events), math.nan)
    instants[known] = view.call_start_ns[order][at[known]]
    return instants


def _idle_of_stream(stream: int, events: GpuEvents, launched: Floats) -> list[Row]:
    order = np.argsort(events.start_ns, kind="stable")
    start, end, launched = events.start_ns[order], events.end_ns[order], launched[order]
    gaps, previous = start[1:] - end[:-1], end[:-1]
    is_late = launched[1:] > previous
    is_launching = ~is_late & (gaps < KERNEL_WAIT_NS)
    sums = {
        "host_wait": int(gaps[is_late].sum()) if is_late.any() else None,
        "kernel_wait": int(gaps[is_launching].sum()) if is_launching.any() else None,
        "other": int(gaps[~is_late & ~is_launching].sum()),
    }
    total = sum(length for length in sums.values() if length is not None)
    return [
        {
            "stream": stream,
            "idle_category": name,
            "idle_time": length / NS_PER_US,
            "idle_time_ratio": round(length / total, 2) if total else None,
        }
        for name, length in sums.items()
        if length is not None
    ]


def _joined(left: Ints, left_key: Ints, right: Ints, right_key: Ints) -> tuple[Ints, Ints]:
    """Give all pairs of rows with the same key."""
    order = np.argsort(right_key, kind="stable")
    ordered = right_key[order]
    first = np.searchsorted(ordered, left_key, side="left")
    count = np.searchsorted(ordered, left_key, side="right") - first
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(left, count), right[order[np.repeat(first, count) + within]]


def _mean_us(durations_ns: Ints) -> float | None:
    return float(durations_ns.mean()) / NS_PER_US if len(durations_ns) else None
