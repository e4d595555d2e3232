"""How new answers are while batches come in: what they tell of a moment stands for a moment.

Each group of batches is a new state of the data, several times a second. Were each of them a version of its own, no
answer could be used twice and a server would do nothing but work answers out. So a version stands while less time has
passed than ``PATIENCE`` times what an answer of it took to work out, and never longer than a setting says. After a
pause, and after every write that is no batch (an import, a purge, a roll-up), what is new shows at once.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 10.0
"""At most a tenth of the time goes into the same answer: twenty that ask at random wait for it once in twenty times."""


class Freshness:
    """The number of the state that answers are of. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with a state that nobody has seen."""
        self.most_seconds = 0.0
        """How long a version may stand while batches come in; 0: each is shown at once."""
        self._clock = clock
        self._guard = threading.Lock()
        self._newest = self._shown = 0
        self._shown_at = -math.inf
        self._effort_seconds = self._effort_before_seconds = 0.0

    def wrote(self, *, at_once: bool) -> None:
        """Take note of a write; ``at_once``: it shows from now on, else when the version has stood long enough."""
        with self._guard:
            self._newest += 1
            if at_once:
                self._show()

    def worked(self, seconds: float) -> None:
        """Take note of how long an answer took to work out."""
        with self._guard:
            self._effort_seconds = max(self._effort_seconds, seconds)

    def number(self) -> int:
        """Give the number of the state that answers are of now."""
        with self._guard:
            if self._newest != self._shown and self._clock() >= self._stands_until():
                self._show()
            return self._shown

    def _show(self) -> None:
        self._shown, self._shown_at = self._newest, self._clock()
        self._effort_before_seconds, self._effort_seconds = self._effort_seconds, 0.0

    def _stands_until(self) -> float:
        effort = max(self._effort_seconds, self._effort_before_seconds)
        return self._shown_at + min(self.most_seconds, PATIENCE * effort)
