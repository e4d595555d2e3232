"""A foretold ratio beside what was measured, and how such pairs are judged."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.estimate import Range


@dataclass(frozen=True, slots=True)
class Outcome:
    """One judged item: ``key`` is source, from, to; ``range`` and ``truth`` are times on ``to`` over times on ``from``.

    ``baselines`` are what simple rules foretell; None where a rule cannot.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("source", "item", "from", "to", "low", "likely", "high", "truth")

    key: tuple[str, str, str]
    workload: str
    item: str
    range: Range
    truth: float
    baselines: Mapping[str, float | None]

    @property
    def error(self) -> float:
        """Give the absolute error of the likely value, as a share of what was measured."""
        return abs(self.range.likely / self.truth - 1)

    @property
    def is_covered(self) -> bool:
        """Say whether the truth lies between low and high."""
        return self.range.low <= self.truth <= self.range.high

    def row(self) -> tuple[str, ...]:
        """Give the row of the predictions file."""
        source, origin, target = self.key
        numbers = (self.range.low, self.range.likely, self.range.high, self.truth)
        return (source, self.item, origin, target, *(f"{value:.6g}" for value in numbers))


def best_constant_error(truths: Sequence[float]) -> float:
    """Give the mean absolute error of the best constant there is in hindsight: the median weighted by 1 / truth."""
    ordered = sorted(truths)
    half, passed = sum(1 / truth for truth in ordered) / 2, 0.0
    best = ordered[-1]
    for truth in ordered:
        passed += 1 / truth
        if passed >= half:
            best = truth
            break
    return sum(abs(best / truth - 1) for truth in ordered) / len(ordered)


def binomial_band(share: float, count: int) -> tuple[float, float]:
    """Give where 95 % of observed shares lie when each of some independent items comes true with this chance."""
    half = 1.96 * sqrt(share * (1 - share) / count)
    return (share - half, min(1.0, share + half))


def median_width(outcomes: Sequence[Outcome]) -> float:
    """Give the median of high over low."""
    return median(one.range.high / one.range.low for one in outcomes)
