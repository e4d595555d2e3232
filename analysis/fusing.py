"""How long one step of B fused members takes, over the step of one alone; and how many fit into a device.

HFTA (Wang et al., MLSys 2021): near linear while the card is underused, then a plateau; framework and context are paid
once for all members, where separate processes pay them each.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

from analysis.estimate import Range

if TYPE_CHECKING:
    from collections.abc import Sequence

POINT_NOISE_RATIO: Final = 0.01
"""What one measured point may be off: points read from a published chart, means of an epoch."""
BEND_RATIO: Final = 0.05
"""How far, in share of the time, a curve may bend off its line by the time that B has doubled beyond what was measured:
a round number."""
_GAUSSIAN: Final = 1.2816
_FEWEST_POINTS: Final = 2


@dataclass(frozen=True, slots=True)
class Curve:
    """Step time of B fused members as max(floor, start + slope x B), in the unit of the points it was fitted to."""

    floor: float
    start: float
    slope: float
    mean_count: float
    spread: float
    points: int
    most_count: float

    def seconds(self, copies: float) -> Range:
        """Give the step time of B members; the width grows with the distance from what was measured."""
        likely = max(self.floor, self.start + self.slope * copies)
        lever = sqrt(1.0 / self.points + (copies - self.mean_count) ** 2 / self.spread)
        beyond = max(0.0, copies / self.most_count - 1.0)
        half = _GAUSSIAN * likely * sqrt((POINT_NOISE_RATIO * (1.0 + lever)) ** 2 + (BEND_RATIO * beyond) ** 2)
        return Range(max(likely - half, 0.0), likely, likely + half)


def fit_curve(points: Sequence[tuple[float, float]]) -> Curve:
    """Fit the line through measured (B, step time), each weighing the same; the floor is the shortest time seen.

    Raises:
        ValueError: fewer than two different B.

    """
    counts, times = zip(*sorted(points), strict=True)
    if len(set(counts)) < _FEWEST_POINTS:
        raise ValueError("a curve needs step times of at least two different numbers of members")
    mean_count, mean_time = sum(counts) / len(counts), sum(times) / len(times)
    spread = sum((count - mean_count) ** 2 for count in counts)
    pull = sum((count - mean_count) * (time - mean_time) for count, time in points)
    slope = max(0.0, pull / spread)
    return Curve(min(times), mean_time - slope * mean_count, slope, mean_count, spread, len(points), max(counts))


@dataclass(frozen=True, slots=True)
class Fill:
    """How one member fills a card, as shares of all its time: busy with kernels; SMs, warps and DRAM, None: unknown."""

    busy_ratio: float
    sm_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    dram_active_ratio: float | None = None


def stretch_from_fill(fill: Fill, copies: int) -> Range | None:
    """Give the step time of B fused members over that of one, from telemetry; None: only a bound is known.

    High: nothing of the busy time overlaps, 1 + (B - 1) u. Low: nothing is in the way but warps and DRAM that all B
    need, max(1, B o, B m). Likely: the SMs that a member keeps busy are its share of the card, 1 + (B - 1) s. It is no
    bound, for one warp makes an SM active.
    """
    if fill.sm_active_ratio is None:
        return None
    high = 1.0 + (copies - 1) * fill.busy_ratio
    low = min(high, least_stretch(fill, copies))
    likely = 1.0 + (copies - 1) * min(fill.busy_ratio, fill.sm_active_ratio)
    return Range(low, min(high, max(low, likely)), high)


def least_stretch(fill: Fill, copies: int) -> float:
    """Give what the step of B members takes at the very least, over that of one."""
    return max(1.0, copies * (fill.dram_active_ratio or 0.0), copies * (fill.sm_occupancy_ratio or 0.0))


def most_fused(capacity_bytes: float, base_bytes: float, member_bytes: float) -> int:
    """Give how many fused members fit: base + B m within the capacity. ``member_bytes`` is m, without the base."""
    return max(0, int((capacity_bytes - base_bytes) // member_bytes))


def most_beside(capacity_bytes: float, base_bytes: float, member_bytes: float) -> int:
    """Give how many separate processes fit: B (base + m) within the capacity."""
    return max(0, int(capacity_bytes // (base_bytes + member_bytes)))
