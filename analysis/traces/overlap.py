"""Who was busy at the same time: the overlap sweep of RL-Scope (Gleeson et al., MLSys 2021) over disjoint spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from warehouse.timeline import Spans, Timeline


@dataclass(frozen=True, slots=True)
class Overlap:
    """Parts of the time from the first to the last work of a device, in ns; they add up to ``span_ns`` exactly.

    The host counts as busy in operators, traced Python and API calls, waiting inside a call included; a device counts
    as busy while a kernel, a copy or a fill runs.
    """

    span_ns: int
    cpu_only_ns: int
    gpu_only_ns: int
    overlap_ns: int
    idle_ns: int


def sweep(parts: Mapping[str, Spans], since_ns: int, until_ns: int) -> dict[frozenset[str], int]:
    """Give for every set of parts how long exactly these were active at once, within ``[since_ns, until_ns)``.

    The lengths, the empty set's among them, add up to the window. Sets that never occur are left out. O(n log n).
    """
    names = tuple(parts)
    clipped = [parts[name].clip(since_ns, until_ns) for name in names]
    window = np.array([since_ns, max(since_ns, until_ns)], np.int64)
    times = np.concatenate([window, *(part.start_ns for part in clipped), *(part.end_ns for part in clipped)])
    marks = [np.full(len(part.start_ns), 1 << bit, np.int64) for bit, part in enumerate(clipped)]
    changes = np.concatenate([np.zeros(2, np.int64), *marks, *(-mark for mark in marks)])
    order = np.argsort(times, kind="stable")
    lengths = np.diff(times[order])
    active = np.cumsum(changes[order])[:-1]
    active, lengths = active[lengths > 0], lengths[lengths > 0]
    sums = ((mask, int(lengths[active == mask].sum())) for mask in range(1 << len(names)))
    return {
        frozenset(name for bit, name in enumerate(names) if mask >> bit & 1): length for mask, length in sums if length
    }


def overlap_of(timeline: Timeline) -> Overlap | None:
    """Sort the time of a timeline by who was busy; None without any work of a device."""
    window = timeline.window()
    if window is None:
        return None
    times = sweep({"cpu": timeline.cpu, "gpu": timeline.busy()}, *window)
    return Overlap(
        span_ns=window[1] - window[0],
        cpu_only_ns=times.get(frozenset({"cpu"}), 0),
        gpu_only_ns=times.get(frozenset({"gpu"}), 0),
        overlap_ns=times.get(frozenset({"cpu", "gpu"}), 0),
        idle_ns=times.get(frozenset(), 0),
    )
