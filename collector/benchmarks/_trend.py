"""How much a figure grew over a stretch of time, with an interval."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

BLOCKS: Final = 10
"""Neighbouring values depend on each other; the means of ten long pieces hardly do."""

T_975: Final = 2.306
"""The 97.5 % point of Student's distribution with ``BLOCKS`` - 2 degrees of freedom: a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a straight line through the figure gains from its first to its last value, and its 95 % interval."""

    low: float
    likely: float
    high: float


def growth(samples: Sequence[tuple[float, float]]) -> Growth | None:
    """Fit a line by least squares to the means of ten pieces of (time, value); None with too few of them."""
    if len(samples) < 2 * BLOCKS:
        return None
    edges = [place * len(samples) // BLOCKS for place in range(BLOCKS + 1)]
    pieces = [samples[begin:end] for begin, end in itertools.pairwise(edges)]
    times = [fmean(at for at, _ in piece) for piece in pieces]
    values = [fmean(value for _, value in piece) for piece in pieces]
    middle, mean = fmean(times), fmean(values)
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - mean) for at, value in zip(times, values, strict=True)) / spread
    left = sum((value - mean - slope * (at - middle)) ** 2 for at, value in zip(times, values, strict=True))
    margin = T_975 * (left / (BLOCKS - 2) / spread) ** 0.5
    span = samples[-1][0] - samples[0][0]
    return Growth((slope - margin) * span, slope * span, (slope + margin) * span)
