"""Running totals of the host as amounts since the reading before; resets and what cannot be true leave no step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

TOLERANCE_RATIO: Final = 1.05
TOLERANCE_SECONDS: Final = 0.1
"""How far a time may exceed the time elapsed: the two are not read at the same moment, and ticks are 10 ms."""

MOST_TIMES: Final = {
    "cpu_stall_seconds": 1.0,
    "memory_stall_seconds": 1.0,
    "io_stall_seconds": 1.0,
    "io_full_stall_seconds": 1.0,
}
"""Times that cannot exceed this many times the time elapsed. CPU time has the node's CPUs for a bound."""

CPU_TIMES: Final = ("cpu_seconds", "cpu_iowait_seconds")


@dataclass(slots=True)
class Look:
    """One subject at one moment: ``totals`` only grow, ``gauges`` stand as they are. Names are columns."""

    totals: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Amounts:
    """Differences of totals by subject. What is dropped is told to ``count`` with its column and why."""

    count: Callable[[str, str], None]
    cpu_count: int
    _before: dict[object, Mapping[str, float]] = field(default_factory=dict)

    def since_last(self, subject: object, totals: Mapping[str, float], seconds: float) -> dict[str, float] | None:
        """Give how far each total rose in these seconds; None at the first look at a subject.

        A total that fell started over: that step is not known. One that was not there before is not known either.
        """
        before = self._before.get(subject)
        self._before[subject] = dict(totals)
        if before is None:
            return None
        found: dict[str, float] = {}
        for name, value in totals.items():
            if name not in before:
                continue
            rise = value - before[name]
            if rise < 0:
                self.count(f"host {name}", "the counter started over")
            elif self._is_possible(name, rise, seconds):
                found[name] = rise
            else:
                self.count(f"host {name}", "impossible: more than the time elapsed")
        return found

    def forget(self, kept: set[object]) -> None:
        """Forget all subjects but these."""
        self._before = {subject: totals for subject, totals in self._before.items() if subject in kept}

    def clear(self) -> None:
        """Begin anew: nothing is known of the time before."""
        self._before.clear()

    def _is_possible(self, name: str, rise: float, seconds: float) -> bool:
        times = self.cpu_count if name in CPU_TIMES else MOST_TIMES.get(name)
        return times is None or rise <= times * seconds * TOLERANCE_RATIO + TOLERANCE_SECONDS
