"""An estimate: low, likely, high. Every model of a remedy answers in these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Range:
    """A quantity as the 10th, 50th and 90th percentile of what it may turn out to be, in order.

    Raises:
        ValueError: the three are not in order, or one of them is no number.

    """

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            raise ValueError(f"not low <= likely <= high: {self.low}, {self.likely}, {self.high}")

    def times(self, factor: float) -> Range:
        """Give the range in another unit; the factor is positive."""
        return Range(self.low * factor, self.likely * factor, self.high * factor)

    def falling(self, function: Callable[[float], float]) -> Range:
        """Give the range of a quantity that falls while this one rises, such as a rate of a duration."""
        return Range(function(self.high), function(self.likely), function(self.low))

    def rising(self, function: Callable[[float], float]) -> Range:
        """Give the range of a quantity that rises with this one."""
        return Range(function(self.low), function(self.likely), function(self.high))


def exactly(value: float) -> Range:
    """Give the range of what is known."""
    return Range(value, value, value)
