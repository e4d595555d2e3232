"""What became of advice: whether later work shows that it was followed, what that gave, and how right the advice was.

A family is held against itself. What its later work (used GPU-seconds) would have cost at the price of before, which
is allocated over used, less what it did cost, is the realised saving; the predicted one is the likely saving for as
much work. Where a change makes of a used second something else (another GPU, fused or shared cards), that comparison
would be wrong: then an advice counts as followed where its id stands in a later job's comment or command, and no saving
is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING

from warehouse.contract.model import Saving
from warehouse.contract.settings import AnySetting, Setting, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ADOPTED_RATIO = Setting(
    "outcome",
    "adopted_ratio",
    0.5,
    "share of the predicted saving",
    "Less than half of what was promised is within the ups and downs of most work, and no sign of a change.",
    0.0,
    1.0,
)
MIN_WORK = Setting(
    "outcome",
    "min_work_gpu_seconds",
    3600.0,
    "GPU-seconds",
    "Later work of less than one used GPU-hour tells nothing of a family.",
    0.0,
)
MIN_OUTCOMES = Setting(
    "outcome",
    "min_outcomes_count",
    10,
    "outcomes",
    "Of fewer, a 10th and a 90th percentile are the extremes, and would widen or narrow a range by chance.",
    2,
)
QUIET_DAYS = Setting(
    "outcome",
    "quiet_days",
    90.0,
    "days",
    "Rejected advice is not told again for a quarter: whoever said no should not have to say it every week.",
    0.0,
)
SETTINGS: tuple[AnySetting, ...] = (ADOPTED_RATIO, MIN_WORK, MIN_OUTCOMES, QUIET_DAYS)

COMPARABLE = frozenset({"release", "feed", "fix"})
"""Remedies after which a used second is the same work as before."""


@dataclass(frozen=True, slots=True)
class Told:
    """An advice as it was told: likely saving (None: a bound) and the account of its subject in the window judged."""

    remedy: str
    likely: float | None
    allocated: float | None
    used: float | None


@dataclass(frozen=True, slots=True)
class Later:
    """The account of the same subject in a later window, and whether the advice's id stands in one of its jobs."""

    allocated: float | None
    used: float | None
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Followed:
    """Whether an advice was followed (None: cannot be told, for ``reason``); GPU-seconds predicted and realised."""

    adopted: bool | None
    reason: str
    predicted: float | None = None
    realised: float | None = None


def follow(told: Told, later: Later, settings: Settings) -> Followed:
    """Hold an advice against later work of its subject."""
    by_mark = "its id stands in a later job"
    if told.remedy not in COMPARABLE or told.likely is None:
        reason = "a bound promises nothing" if told.remedy in COMPARABLE else "a used second is not the same work then"
        return Followed(later.marked or None, by_mark if later.marked else reason)
    if later.used is None or later.allocated is None or later.used < settings[MIN_WORK]:
        return Followed(later.marked or None, by_mark if later.marked else "too little later work is known")
    if not told.used or told.allocated is None or told.likely <= 0:
        return Followed(later.marked or None, by_mark if later.marked else "nothing to compare with is known")
    predicted = told.likely * later.used / told.used
    realised = later.used * told.allocated / told.used - later.allocated
    if later.marked:
        return Followed(later.marked, by_mark, predicted, realised)
    adopted = realised >= settings[ADOPTED_RATIO] * predicted
    reason = "its later work cost less" if adopted else "its later work cost as much as before"
    return Followed(adopted, reason, predicted, realised if adopted else None)


@dataclass(frozen=True, slots=True)
class Record:
    """How advice fared: how much was told, adopted, and what the adopted gave of what was said (None: not known)."""

    told: int
    adopted: int
    realised_ratio: float | None

    def sentence(self, period: str) -> str:
        """Say it to an operator."""
        if not self.told:
            return f"No advice was told in {period}."
        share = f"Of {period}'s advice {self.adopted / self.told:.0%} was adopted"
        if self.realised_ratio is None:
            return f"{share}; what it gave is not known."
        return f"{share} and gave {self.realised_ratio:.0%} of what we said."


def record(outcomes: Iterable[tuple[bool, float | None, float | None]]) -> Record:
    """Sum up advice: for each whether it was adopted, and GPU-seconds predicted and realised."""
    rows = list(outcomes)
    pairs = [(said, gave) for adopted, said, gave in rows if adopted and said is not None and gave is not None]
    said = sum(pair[0] for pair in pairs)
    ratio = sum(pair[1] for pair in pairs) / said if said > 0 else None
    return Record(len(rows), sum(1 for adopted, _, _ in rows if adopted), ratio)


@dataclass(frozen=True, slots=True)
class Interval:
    """How ranges fared, pooled: the share of outcomes within, and their mean width over the mean likely estimate."""

    count: int
    inside_ratio: float
    width_ratio: float


def judge_intervals(outcomes: Iterable[tuple[Saving, float]]) -> Interval | None:
    """Hold ranges against what came true, all remedies and families together; None: nothing is known.

    Each outcome is scaled to the work that the range spoke of. A range of the 10th to the 90th percentile is right when
    about 80 % lie within; a wide one is right more easily, so that its width stands beside it.
    """
    rows = [(saving, saving.likely, came) for saving, came in outcomes if saving.likely is not None]
    whole = sum(likely for _, likely, _ in rows)
    if not rows or whole <= 0:
        return None
    inside = sum(1 for saving, _, came in rows if saving.low <= came <= saving.high)
    width = sum(saving.high - saving.low for saving, _, _ in rows)
    return Interval(len(rows), inside / len(rows), width / whole)


def calibrated(saving: Saving, ratios: Sequence[float], most: float, settings: Settings) -> Saving | None:
    """Scale an estimate by how its like fared, realised over predicted, within ``most``; None: too few are known.

    The 10th, 50th and 90th percentile of the ratios times the likely estimate: 80 % of past outcomes lie within.
    """
    if saving.likely is None or len(ratios) < settings[MIN_OUTCOMES]:
        return None
    tenths = quantiles(ratios, n=10, method="inclusive")
    low, likely, high = (min(max(saving.likely * tenths[at], 0.0), most) for at in (0, 4, 8))
    return Saving(low, likely, high)
