"""What happened over all of the time, from what was seen in the on phases of a duty cycle.

With tracing on for a part of each cycle, totals over all of the time are extrapolated by a ratio estimator over the on
phases (Cochran, Sampling Techniques, 3rd ed., chapter 6), with Student's t at 95 % and what was
seen taken as certain. Assumed: phases are as good as drawn at random, which a program that beats in step with the cycle
is not; and a kernel that runs on into a phase or out of it counts as far as CUPTI records it. One phase alone gives
only what must be: nothing or all of the time unseen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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


class Phase(NamedTuple):
    """One on phase of a duty cycle: how long it was traced, and how much of something was seen in it."""

    armed_seconds: float
    seen: float


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
