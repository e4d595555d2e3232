"""How long each reading of a log speaks: until the next one, unless the logger was off meanwhile."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Final

GAP_CADENCES: Final = 2.5
"""A gap begins after so many cadences (docs/concepts.md: coverage)."""

_REMEMBERED = 9
"""Steps that the usual cadence is the median of: an odd few, so that one late reading moves nothing."""


@dataclass(slots=True)
class Cadence:
    """The usual step of one device's readings, learnt as they come.

    ``lone_seconds`` is what a reading without neighbours speaks for; a step beyond ``longest_seconds`` is never usual.
    """

    lone_seconds: float
    longest_seconds: float
    _steps: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def usual(self) -> float | None:
        """Give the usual step; None before any was seen."""
        return statistics.median(self._steps) if self._steps else None

    def of(self, step_seconds: float | None) -> float:
        """Give how long a reading speaks after which the next one came ``step_seconds`` later; None: none came."""
        usual = self.usual()
        if step_seconds is None or step_seconds <= 0 or step_seconds > self.longest_seconds:
            return usual or self.lone_seconds
        # A long step is learnt too: when it comes again and again, the logger was set to another interval.
        self._steps.append(step_seconds)
        return usual if usual is not None and step_seconds > GAP_CADENCES * usual else step_seconds
