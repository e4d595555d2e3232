"""The account of traced processes and their devices in cells of the agent's cadence.

Seconds are whole seconds of the host's monotonic clock; a cell is a stretch of the wall clock's grid, and a second
belongs to the cell in which its middle lies. Rows stand on the grid, so they lie up to half a second off: as far as
those of every other source.

A device's second is known when that of every process on it is; one that holds it and ran nothing was idle there. One
process that is not traced, or whose tracer has lost sight, makes the device's seconds unknown; they are left out, never
counted as idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from collector.tracer.process import Busy, TracedSecond
from collector.tracer.union import bounded, independent_seconds, united_seconds

WHOLE: Final = 0.999
"""A second counts as known from this share on: what is armed is told in nanoseconds, and rounding must not cost it."""
LISTED_SECONDS: Final = 5
"""A process is on a device when the driver lists it at most so long before or after: it is asked each second, and one
that has just begun or ended is missing from its list."""

NOTHING: Final = Busy()


@dataclass(frozen=True, slots=True)
class Process:
    """A process in the book: ``key`` tells it apart for ever. ``steps_total`` is what stood there when it was read."""

    key: str
    pid: int
    steps_total: int = 0
    setup: tuple[int, int] = (0, 0)
    """Versions of CUPTI and of the CUDA driver, which the cost of a launch belongs to."""

    unknown_before: int = 0
    """It was there before this second already, and nobody read what it told."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one process did on one device within one cell; times speak for ``covered_seconds``."""

    process: Process
    device: str
    start_at: float
    seconds: float
    covered_seconds: float
    lost_seconds: float
    busy: Busy


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a device did over whole seconds from ``start_at`` on, and the kernel time of each process in it."""

    device: str
    start_at: float
    seconds: int
    bound_seconds: float
    copy_seconds: float
    busy_seconds: float
    by_pid: Mapping[int, float]


@dataclass(slots=True)
class Driver:
    """What the driver said about a device in a cell: the pids, None as long as it names none; busy rounds and all."""

    pids: set[int] | None = None
    rounds: int = 0
    busy_rounds: dict[int | None, int] = field(default_factory=dict)

    def calls_busy(self, pid: int, *, alone: bool) -> bool:
        """Say whether it called a process busy in at least half of the rounds; alone on it, also the device."""
        busy = self.busy_rounds.get(pid, self.busy_rounds.get(None, 0) if alone else 0)
        return self.rounds > 0 and 2 * busy >= self.rounds


@dataclass(slots=True)
class _Cell:
    first_second: int
    start_at: float
    processes: dict[str, Process] = field(default_factory=dict)
    seconds: dict[str, dict[int, TracedSecond]] = field(default_factory=dict)
    devices: dict[str, Driver] = field(default_factory=dict)


class Book:
    """Cells that are still open. ``overlapping`` says that an MPS server is at work on the node."""

    def __init__(self, cadence_seconds: float, silent_seconds: float, settle_seconds: float) -> None:
        """See the settings of the same names."""
        self.overlapping = False
        self._cadence_seconds = cadence_seconds
        self._silent_seconds = silent_seconds
        self._settle_seconds = settle_seconds
        self._cells: dict[int, _Cell] = {}
        self._told_until: int | None = None
        self._silent: dict[tuple[str, str], int] = {}
        self._ended: dict[str, int] = {}
        self._listed: dict[tuple[str, int], tuple[int, int]] = {}
        """By device and pid: the first and the last second in which the driver listed it."""

    def hear(
        self,
        second: int,
        offset_seconds: float,
        device: str,
        pids: Iterable[int] | None,
        busy: Mapping[int | None, bool],
    ) -> None:
        """Take one round of the driver's: the processes on a device, and who was busy (None: the device)."""
        for pid in pids or ():
            first, _ = self._listed.get((device, pid), (second, second))
            self._listed[device, pid] = first, second
        cell = self._cell(second, offset_seconds)
        if cell is None:
            return
        said = cell.devices.setdefault(device, Driver())
        said.rounds += 1
        if pids is not None:
            said.pids = (said.pids or set()) | set(pids)
        for who, is_busy in busy.items():
            said.busy_rounds[who] = said.busy_rounds.get(who, 0) + is_busy

    def add(self, process: Process, seconds: Iterable[TracedSecond], offset_seconds: float) -> None:
        """Take final seconds of a process. ``offset_seconds`` leads from the monotonic clock to the wall clock."""
        for second in seconds:
            cell = self._cell(second.second, offset_seconds)
            if cell is not None:
                cell.processes[process.key] = process
                cell.seconds.setdefault(process.key, {})[second.second] = second

    def end(self, key: str, second: int) -> None:
        """Note that a process has ended; what it had not told by then is unknown."""
        self._ended[key] = second

    def close(self, now_second: int, final_until: int) -> Iterator[tuple[list[Told], list[Stretch]]]:
        """Close the cells of which every process has told all (``final_until``), and those that waited too long."""
        for number in sorted(self._cells):
            cell = self._cells[number]
            end = cell.first_second + math.ceil(self._cadence_seconds)
            if final_until < end and now_second < end + self._settle_seconds:
                return
            del self._cells[number]
            self._told_until = number
            yield self._close(cell)
            self._silent = {place: seconds for place, seconds in self._silent.items() if place[0] in cell.seconds}
            self._ended = {key: at for key, at in self._ended.items() if at >= end}
            self._listed = {on: at for on, at in self._listed.items() if at[1] + LISTED_SECONDS >= end}

    def _cell(self, second: int, offset_seconds: float) -> _Cell | None:
        number = math.floor((second + 0.5 + offset_seconds) / self._cadence_seconds)
        if self._told_until is not None and number <= self._told_until:
            return None
        if number not in self._cells:
            start_at = number * self._cadence_seconds
            self._cells[number] = _Cell(math.ceil(start_at - offset_seconds - 0.5), start_at)
        return self._cells[number]

    def _close(self, cell: _Cell) -> tuple[list[Told], list[Stretch]]:
        told: list[Told] = []
        stretches: list[Stretch] = []
        named = {device for seconds in cell.seconds.values() for one in seconds.values() for device in one.devices}
        held = {device for device, said in cell.devices.items() if said.pids}
        for device in sorted(named | held):
            said = cell.devices.get(device, Driver())
            keys = [key for key in cell.seconds if said.pids is None or self._is_on(cell, device, key)]
            deaf = {key for key in keys if self._is_deaf(cell, device, key, said, alone=len(keys) == 1)}
            told += [one for key in keys if (one := self._told(cell, device, key, said, deaf=key in deaf)) is not None]
            strangers = (said.pids or set()) - {cell.processes[key].pid for key in keys}
            if keys and not deaf and not strangers:
                stretches += self._stretches(cell, device, keys)
        return told, stretches

    def _is_on(self, cell: _Cell, device: str, key: str) -> bool:
        """Say whether the driver listed a process on a device about the time of a cell."""
        listed = self._listed.get((device, cell.processes[key].pid))
        if listed is None:
            return False
        end = cell.first_second + math.ceil(self._cadence_seconds)
        return listed[0] <= end + LISTED_SECONDS and listed[1] >= cell.first_second - LISTED_SECONDS

    def _is_deaf(self, cell: _Cell, device: str, key: str, said: Driver, *, alone: bool) -> bool:
        """Say whether the driver has called a process busy while its tracer told of nothing for too long."""
        place = (key, device)
        seconds = cell.seconds[key].values()
        if any(one.devices.get(device, NOTHING).busy_seconds for one in seconds) or not said.calls_busy(
            cell.processes[key].pid, alone=alone
        ):
            self._silent.pop(place, None)
            return False
        self._silent[place] = self._silent.get(place, 0) + sum(not one.lost for one in seconds)
        return self._silent[place] >= self._silent_seconds

    def _told(self, cell: _Cell, device: str, key: str, said: Driver, *, deaf: bool) -> Told | None:
        seconds = cell.seconds[key]
        holds = cell.processes[key].pid in (said.pids or ()) and all(one.complete for one in seconds.values())
        if not any(device in one.devices for one in seconds.values()) and not (deaf or holds):
            return None
        covered = 0.0 if deaf else sum(one.covered_seconds for one in seconds.values())
        lost = len(seconds) if deaf else sum(one.lost for one in seconds.values())
        busy = added(one.devices[device] for one in seconds.values() if device in one.devices)
        return Told(cell.processes[key], device, cell.start_at, self._cadence_seconds, covered, float(lost), busy)

    def _stretches(self, cell: _Cell, device: str, keys: list[str]) -> Iterator[Stretch]:
        wanted = range(cell.first_second, cell.first_second + round(self._cadence_seconds))
        runs = groupby(wanted, lambda second: all(self._knows(cell, device, key, second) for key in keys))
        for known, run in runs:
            if not known:
                continue
            seconds = list(run)
            there = [self._there(cell, device, keys, second) for second in seconds]
            if not any(there):
                continue
            united = [self._united(list(busy.values())) for busy in there]
            by_pid: dict[int, float] = {}
            for busy in there:
                for key, one in busy.items():
                    pid = cell.processes[key].pid
                    by_pid[pid] = by_pid.get(pid, 0.0) + one.bound_seconds
            bound, copy, any_busy = (math.fsum(column) for column in zip(*united, strict=True))
            start_at = cell.start_at + seconds[0] - cell.first_second
            yield Stretch(device, start_at, len(seconds), bound, copy, any_busy, by_pid)

    def _knows(self, cell: _Cell, device: str, key: str, second: int) -> bool:
        """Say whether a process is known not to have been there, or all that it did in a second is known."""
        seconds = cell.seconds[key]
        if second in seconds:
            one = seconds[second]
            return one.covered_seconds >= WHOLE and (one.complete or device in one.devices)
        ended = self._ended.get(key)
        if second < cell.processes[key].unknown_before:
            return False
        return second < min(seconds) or (ended is not None and second > ended)

    def _there(self, cell: _Cell, device: str, keys: list[str], second: int) -> dict[str, Busy]:
        return {
            key: cell.seconds[key][second].devices.get(device, NOTHING) for key in keys if second in cell.seconds[key]
        }

    def _united(self, busy: list[Busy]) -> tuple[float, float, float]:
        if not busy:
            return 0.0, 0.0, 0.0
        active = [one for one in busy if one.slots]
        bound = [one.bound_seconds for one in active]
        kernels = united_seconds(bound, [one.slots for one in active], overlapping=self.overlapping) if active else 0.0
        copies = independent_seconds([one.copy_seconds for one in busy])
        whole = bounded(independent_seconds([one.busy_seconds for one in busy]), [one.busy_seconds for one in busy])
        return kernels, copies, min(1.0, max(whole, kernels, copies))


def added(parts: Iterable[Busy]) -> Busy:
    """Add up what was done in several seconds; without slots."""
    found = list(parts)
    return Busy(
        bound_seconds=math.fsum(one.bound_seconds for one in found),
        copy_seconds=math.fsum(one.copy_seconds for one in found),
        busy_seconds=math.fsum(one.busy_seconds for one in found),
        kernel_seconds=math.fsum(one.kernel_seconds for one in found),
        overhead_idle_seconds=math.fsum(one.overhead_idle_seconds for one in found),
        late_seconds=math.fsum(one.late_seconds for one in found),
        kernels=sum(one.kernels for one in found),
        launches=sum(one.launches for one in found),
        gaps=sum(one.gaps for one in found),
    )
