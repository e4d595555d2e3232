"""The price of ranks that wait for the slowest: the straggler tax.

Ranks that work in step advance at the pace of the slowest, 1 / E[max t]; ranks that waited for nobody would advance at
the mean of 1 / E[t]. The tax is the quotient, E[max t] x mean(1 / E[t]), at least 1. Each rank is averaged first: the
mean of 1 / t over single steps is biased. For N ranks with independent exponential times it is the N-th harmonic
number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

Times = Sequence[Sequence[float]]
"""By rank, the time of each step or stretch; all ranks have equally many."""


def tax(times: Times) -> float | None:
    """Give the straggler tax; None where a rank did nothing, or none is known."""
    means = [fmean(own) if own else 0.0 for own in times]
    if not means or min(means) <= 0:
        return None
    return fmean(max(step) for step in zip(*times, strict=True)) * fmean(1.0 / one for one in means)


def slowest(times: Times) -> int:
    """Give which rank takes longest in all."""
    return max(range(len(times)), key=lambda rank: sum(times[rank]))


@dataclass(frozen=True, slots=True)
class Waiting:
    """By step: what all ranks waited for the slowest, and what they would not have, had one rank been usual."""

    waited: tuple[float, ...]
    avoidable: tuple[float, ...]


def waiting(times: Times, rank: int) -> Waiting:
    """Give what the ranks wait, and the part that goes if ``rank`` takes no longer than the median of the others."""
    waited: list[float] = []
    avoidable: list[float] = []
    for step in zip(*times, strict=True):
        others = [time for at, time in enumerate(step) if at != rank]
        usual = min(step[rank], median(others)) if others else step[rank]
        waited.append(sum(max(step) - time for time in step))
        avoidable.append((max(step) - max([usual, *others])) * len(step))
    return Waiting(tuple(waited), tuple(avoidable))
