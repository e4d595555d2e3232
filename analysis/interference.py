"""How fast jobs run that share one card through MPS, from what each used of a card of its own.

If kernels never ran beside each other, jobs would take turns: a job that is busy for a share u of its time finds the
card taken for a share v of that, and takes 1 + u v times as long (the exact answer for two customers of one
processor-sharing server that think at random). If all kernels fitted beside each other and never met, there would be no
delay, but for memory traffic (shares m and n of time), 1 + m n. What is true lies between and cannot be told from such
telemetry, so that likely is halfway in ratio between taking turns and no delay. On measured pairs of another source,
delays that multiply (one demand for each job) hold better than delays that add up: ``trueload bench sharing`` has both.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, sqrt
from typing import TYPE_CHECKING, Final

from analysis.estimate import Range

if TYPE_CHECKING:
    from collections.abc import Sequence

NOISE_RATIO: Final = 0.08
"""What speeds of equal pairs differ by from one measurement to the next, and by what telemetry does not show: a round
number that widens low and high."""
_PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job needs of a card of its own, as shares of time: busy with kernels, DRAM busy (None: not known)."""

    busy_ratio: float
    dram_ratio: float | None = None


def shared_speed(own: Demand, others: Sequence[Demand]) -> Range:
    """Give the speed of a job beside others on one card, over its speed alone: in (0, 1].

    Delays by several others add up, so that n jobs that never pause run at 1/n each when they take turns. More than two
    together likely use no more than the whole card.
    """
    if not others:
        return Range(1.0, 1.0, 1.0)
    turns = 1.0 / (1.0 + own.busy_ratio * fsum(other.busy_ratio for other in others))
    traffic = 1.0 / (1.0 + (own.dram_ratio or 0.0) * fsum(other.dram_ratio or 0.0 for other in others))
    traffic = max(turns, traffic)
    likely = min(sqrt(turns), traffic)
    whole = own.busy_ratio + fsum(other.busy_ratio for other in others)
    if len(others) + 1 > _PAIR:
        likely = max(turns, min(likely, 1.0 / max(1.0, whole)))
    return Range(turns * (1.0 - NOISE_RATIO), likely, max(likely, min(1.0, traffic * (1.0 + NOISE_RATIO))))


def both_keep(one: Demand, other: Demand, kept_ratio: float) -> bool:
    """Say whether both of a pair likely keep at least a share of their speed."""
    return min(shared_speed(one, [other]).likely, shared_speed(other, [one]).likely) >= kept_ratio
