"""Steps of the wall clock: said once each, and counted. Intervals never depend on it (``collector.aggregate``)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.aggregate import Moment

LOG = logging.getLogger("trueload.agent")


class ClockWatch:
    """Compares both clocks between two moments. A machine that slept looks like a step forward, and is one."""

    def __init__(self, tolerance_seconds: float) -> None:
        """Take what NTP may slew, and a tick may be late between the two readings, without it being a step."""
        self.steps_total = 0
        self._tolerance_seconds = tolerance_seconds
        self._before: Moment | None = None

    def look(self, moment: Moment) -> None:
        """Take the next moment."""
        before, self._before = self._before, moment
        if before is None:
            return
        step_seconds = (moment.wall - before.wall) - (moment.monotonic - before.monotonic)
        if abs(step_seconds) > self._tolerance_seconds:
            self.steps_total += 1
            LOG.warning(
                "the wall clock stepped by %+.1f s, or the machine slept: rows begin anew; "
                "what would tell a time twice is left out",
                step_seconds,
            )
