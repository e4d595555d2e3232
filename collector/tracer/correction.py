"""What the GPU-bound share would have been without the tracer.

**Overhead.** The numerator, GPU-bound time, is a union of the hardware's own timestamps and is left as it is. Tracing
stretches the denominator, wall-clock time. What it adds to the host counts only where the device was idle for it::

    ratio = gpu_bound / (wall - removed)          removed = min(idle, overhead_idle + launches_that_waited * c)

* ``idle`` is wall minus GPU-bound time; so the ratio stays between the raw one and 1, and nothing else is assumed where
  the device was busy throughout.
* ``overhead_idle`` is CUPTI's OVERHEAD records, united over threads, where the device ran nothing (measured).
* ``c`` is what one launch costs more when traced, from :mod:`collector.tracer.calibrate`, with its spread. A negative
  cost is none, as in RL-Scope.
* ``launches_that_waited`` is known within bounds. A launch lengthens an idle stretch at least where it ends it: the
  number of gaps is the low bound. At most every launch does: the high one. Likely is the share of launches that falls
  into idle time if launches are spread evenly over the stretch, within those bounds.

The idea, book-keeping costs that are calibrated once and taken off where they occurred, is RL-Scope's (Gleeson et al.,
MLSys 2021), which re-runs each program to calibrate; here the cost is measured once per GPU model, driver and CUPTI.
Assumed: a launch costs the same in every program; what CUPTI does outside its OVERHEAD records and outside launches is
nothing; one thread launches at a time. Memory copies, and the cost on other threads, are not corrected.

All of it has been tried on computed cases alone, **not on a real GPU**.
"""

from __future__ import annotations

from dataclasses import dataclass

from warehouse.contract.duty_cycle import Estimate


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was seen of one process on one device over a covered stretch of time."""

    wall_seconds: float
    gpu_bound_seconds: float
    overhead_idle_seconds: float
    launches_count: float
    gaps_count: float

    @property
    def idle_seconds(self) -> float:
        """Give the time in which no kernel ran."""
        return max(0.0, self.wall_seconds - self.gpu_bound_seconds)

    @property
    def busy_seconds(self) -> float:
        """Give GPU-bound time, as far as it fits into wall-clock time."""
        return min(self.gpu_bound_seconds, self.wall_seconds)


def launch_cost(added_nanoseconds: float, spread_nanoseconds: float) -> Estimate:
    """Give a calibrated cost per launch in seconds; a cost below nothing is none."""
    likely = max(0.0, added_nanoseconds)
    low, high = max(0.0, likely - spread_nanoseconds), likely + abs(spread_nanoseconds)
    return Estimate(low / 1e9, likely / 1e9, high / 1e9)


def removed_seconds(stretch: Stretch, cost: Estimate) -> Estimate:
    """Give the wall-clock time that tracing added while the device was idle; never more than it was idle."""
    idle = stretch.idle_seconds
    most = max(stretch.launches_count, 0.0)
    least = min(max(stretch.gaps_count, 0.0), most)
    even = most * idle / stretch.wall_seconds if stretch.wall_seconds > 0 else 0.0
    likely = min(max(even, least), most)
    overhead = max(stretch.overhead_idle_seconds, 0.0)
    return Estimate(
        low=min(idle, overhead + least * cost.low),
        likely=min(idle, overhead + likely * cost.likely),
        high=min(idle, overhead + most * cost.high),
    )


def raw_ratio(stretch: Stretch) -> float | None:
    """Give GPU-bound time over wall-clock time as they were seen, within [0, 1]; ``None`` for no time."""
    return stretch.busy_seconds / stretch.wall_seconds if stretch.wall_seconds > 0 else None


def corrected_wall_seconds(stretch: Stretch, cost: Estimate) -> Estimate:
    """Give the wall-clock time that the same work would have taken untraced."""
    removed, idle, busy = removed_seconds(stretch, cost), stretch.idle_seconds, stretch.busy_seconds
    return Estimate(busy + (idle - removed.high), busy + (idle - removed.likely), busy + (idle - removed.low))


def corrected_ratio(stretch: Stretch, cost: Estimate) -> Estimate | None:
    """Give the GPU-bound share without the tracer: never below the raw one, never above 1; ``None`` for no time."""
    raw = raw_ratio(stretch)
    if raw is None or stretch.busy_seconds == 0:
        return None if raw is None else Estimate(0.0, 0.0, 0.0)  # also where nothing is left to divide by
    wall = corrected_wall_seconds(stretch, cost)
    low, likely, high = (max(raw, min(1.0, stretch.busy_seconds / seconds)) for seconds in reversed(wall))
    return Estimate(low, likely, high)
