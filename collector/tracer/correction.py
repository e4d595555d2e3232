"""What the GPU-bound share would have been without the tracer, and over the time in which it paused.

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

**Duty cycle.** With tracing on for a part of each cycle, totals over all of the time are extrapolated by a ratio
estimator over the on phases (Cochran, Sampling Techniques, 3rd ed., chapter 6), with Student's t at 95 % and what was
seen taken as certain. Assumed: phases are as good as drawn at random, which a program that beats in step with the cycle
is not; and a kernel that runs on into a phase or out of it counts as far as CUPTI records it. One phase alone gives
only what must be: nothing or all of the time unseen.

All of it has been tried on computed cases alone, **not on a real GPU**.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

STUDENT_T_95: Final = dict(
    zip(
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 60),
        (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.179, 2.131, 2.086, 2.042, 2.0),
        strict=True,
    )
)
"""Two-sided 95 % quantiles of Student's t by degrees of freedom; between two, the smaller degree's is taken."""


class Estimate(NamedTuple):
    """An estimate with its bounds."""

    low: float
    likely: float
    high: float


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


class Phase(NamedTuple):
    """One on phase of a duty cycle: how long it was traced, and how much of something was seen in it."""

    armed_seconds: float
    seen: float


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


def phases(seconds: Iterable[tuple[float, float]]) -> list[Phase]:
    """Join seconds, in order, to the on phases that they make up: each with how long it was traced, and what was seen.

    A second that was not traced at all ends a phase.
    """
    found: list[Phase] = []
    is_on = False
    for armed, seen in seconds:
        if armed > 0 and is_on:
            found[-1] = Phase(found[-1].armed_seconds + armed, found[-1].seen + seen)
        elif armed > 0:
            found.append(Phase(armed, seen))
        is_on = armed > 0
    return found


def extrapolated(on_phases: Sequence[Phase], total_seconds: float, most_per_second: float = 1.0) -> Estimate | None:
    """Extend what was seen in the on phases to ``total_seconds``.

    ``most_per_second`` is the most that there can be in a second: 1 for busy seconds, ``math.inf`` for counts. ``None``
    when nothing was traced.
    """
    traced = [phase for phase in on_phases if phase.armed_seconds > 0]
    armed, seen = math.fsum(phase.armed_seconds for phase in traced), math.fsum(phase.seen for phase in traced)
    if armed <= 0:
        return None
    unseen = max(0.0, total_seconds - armed)
    rate = seen / armed
    likely = seen + unseen * rate
    ceiling = seen + unseen * most_per_second if unseen else seen
    half = _half_width(traced, rate, armed / (armed + unseen)) * (armed + unseen)
    return Estimate(max(seen, likely - half), min(likely, ceiling), min(ceiling, likely + half))


def _half_width(on_phases: Sequence[Phase], rate: float, sampled_share: float) -> float:
    """Half of the 95 % interval of the rate; infinite for a single phase."""
    count = len(on_phases)
    if count < 2:  # noqa: PLR2004 - a deviation needs two
        return 0.0 if sampled_share >= 1 else math.inf
    mean = math.fsum(phase.armed_seconds for phase in on_phases) / count
    squares = math.fsum((phase.seen - rate * phase.armed_seconds) ** 2 for phase in on_phases)
    error = math.sqrt((1 - sampled_share) * squares / ((count - 1) * count)) / mean
    return STUDENT_T_95[max(degrees for degrees in STUDENT_T_95 if degrees <= count - 1)] * error
