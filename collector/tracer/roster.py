"""Which processes are traced: found by what they publish, remembered while they live, and counted where refused."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collector.processes import ProcessId, ProcessTable
from collector.tracer.find import Refused, find_memory
from collector.tracer.process import TracedProcess
from collector.tracer.profiles import Profile

MPS_NAME: Final = "nvidia-cuda-mps"
"""What the kernel keeps, of 15 characters, of the name of the MPS server."""

TRIES_MAX: Final = 10
"""Rounds in which a process that is on a device and publishes nothing is looked at, until the next scan: in the first,
the second, the fourth and the eighth of them."""

REFUSALS_MAX: Final = 10
"""Refusals in a row after which a process is given up: it does not mend. One proves nothing: memory that is just being
made is not sealed yet."""

SEARCH_SECONDS: Final = 0.1
"""After this long the search of a round stops, and the next one goes on: whoever starts thousands of processes with
thousands of open files delays that others are found, and no reading."""


@dataclass(slots=True)
class Member:
    """A traced process that is being read."""

    who: ProcessId
    own_pid: int
    user_id: int
    traced: TracedProcess
    profile: Profile
    owner: str | None = None
    refusals: int = 0
    unknown_before: int = 0
    profiled_at: float = field(default=0.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """See the settings of the same names."""

    processes: int
    processes_per_user: int
    scan_seconds: float


class Roster:
    """The traced processes of one node, found below a root that is usually ``/proc``. Used from one thread."""

    def __init__(self, root: Path, node: str, limits: Limits) -> None:
        """Look for nothing yet."""
        self.members: dict[ProcessId, Member] = {}
        self.refused: Counter[str] = Counter()
        self.overlapping = False
        """Whether an MPS server was seen at the last scan."""

        self._root = root
        self._node = node
        self._limits = limits
        self._table = ProcessTable(root)
        self._given_up: set[ProcessId] = set()
        self._refusals: Counter[ProcessId] = Counter()
        self._waiting: dict[int, None] = {}
        self._scan_at = 0.0
        self._tried: dict[int, int] = {}
        self._scans: dict[int, int] = {}
        self._mps: set[int] = set()

    def update(self, named: Iterable[int]) -> None:
        """Look at the processes that the driver names and, now and then, at all others."""
        by_driver = wanted = set(named)
        if time.monotonic() >= self._scan_at:
            self._scan_at = time.monotonic() + self._limits.scan_seconds
            wanted = wanted | self._whose_turn_it_is()
            self._tried.clear()
        else:
            wanted = self._worth_a_try(wanted)
        strangers = wanted - {who.pid for who in self.members}  # a member whose number came again is seen to be gone
        if strangers:
            strangers.discard(self._own_number() or 0)  # what is read here stands among our own open files
        self._search(strangers, by_driver)
        if len(self._given_up) > 4 * self._limits.processes:
            self._given_up.clear()

    def _search(self, strangers: set[int], named: set[int]) -> None:
        """Look at as many as there is time for, at one in any case: whom the driver names first, then who waits."""
        self._waiting = dict.fromkeys(sorted(strangers & named)) | self._waiting | dict.fromkeys(sorted(strangers))
        until = time.monotonic() + SEARCH_SECONDS
        while self._waiting:
            pid = next(iter(self._waiting))
            del self._waiting[pid]
            who = self._table.identity(pid)
            if who is not None and who not in self._given_up and who not in self.members:
                self._try(who)
            if time.monotonic() >= until:
                return

    def _whose_turn_it_is(self) -> set[int]:
        """Give who is looked at in this scan: who is new, and who was new one, two, four, eight and so on scans ago.

        A node runs thousands of processes that will never be traced. One that begins late is found before it is twice
        as old, and at once if the driver names it.
        """
        everybody = set(self._pids())
        self._scans = {pid: self._scans.get(pid, -1) + 1 for pid in everybody}
        due = {pid for pid, scans in self._scans.items() if scans & (scans - 1) == 0}
        self._mps = (self._mps & everybody) | {pid for pid in due if self._table.name(pid) == MPS_NAME}
        self.overlapping = bool(self._mps)
        return due

    def _worth_a_try(self, named: set[int]) -> set[int]:
        """Leave out who was looked at often: a process that is on a device for long will hardly be traced later.

        What is traced at all publishes within the first moments on a device; the next scan looks at everybody again.
        """
        self._tried = {pid: times for pid, times in self._tried.items() if pid in named}
        for pid in named:
            self._tried[pid] = min(self._tried.get(pid, 0) + 1, TRIES_MAX)
        return {pid for pid, times in self._tried.items() if times & (times - 1) == 0}

    def gone(self) -> list[Member]:
        """Give the members whose process has ended; their memory still stands as it was left.

        Who has just written lives, and is not looked up: it is a round later, if it does not write again.
        """
        silent = [member for member in self.members.values() if not member.traced.is_writing]
        return [member for member in silent if self._table.identity(member.who.pid) != member.who]

    def drop(self, member: Member) -> None:
        """Let a member's memory go."""
        del self.members[member.who]
        for looks in (self._tried, self._scans):  # who gets its number next is looked at like anybody new
            looks.pop(member.who.pid, None)

    def refuse(self, member: Member, why: str) -> None:
        """Count a refusal; a process that is refused again and again is given up."""
        self.refused[why] += 1
        member.refusals += 1
        if member.refusals >= REFUSALS_MAX:
            self._given_up.add(member.who)
            self.drop(member)

    def _refuse_stranger(self, who: ProcessId, why: str) -> None:
        self.refused[why] += 1
        self._refusals[who] += 1
        if self._refusals[who] >= REFUSALS_MAX:
            self._given_up.add(who)
            del self._refusals[who]
        if len(self._refusals) > 4 * self._limits.processes:
            self._refusals.clear()

    def _own_number(self) -> int | None:
        """Give the number that this process has below the root; None where it is not to be found there."""
        try:
            return int((self._root / "self").readlink().name)
        except (OSError, ValueError):
            return None

    def _pids(self) -> Iterator[int]:
        with os.scandir(self._root) as entries:
            for entry in entries:
                if entry.name.isdigit():
                    yield int(entry.name)

    def _try(self, who: ProcessId) -> None:
        folder = self._root / str(who.pid)
        try:
            memory = find_memory(folder)
        except Refused as refused:
            self._refuse_stranger(who, str(refused))
            return
        if memory is None:
            return
        user_id, inner_pid = self._table.user_id(who.pid), own_pid(folder)
        if user_id is None or inner_pid is None or self._table.identity(who.pid) != who:
            return
        if len(self.members) >= self._limits.processes:
            self.refused["too many processes"] += 1
        elif sum(one.user_id == user_id for one in self.members.values()) >= self._limits.processes_per_user:
            self.refused["too many processes of one user"] += 1
        else:
            key = f"{self._node}/{who.pid}/{who.start_ticks}"
            traced = TracedProcess(who.pid, key, memory, -clock_ahead_seconds(folder))
            self.members[who] = Member(who, inner_pid, user_id, traced, Profile(key, began_before=False))


def own_pid(folder: Path) -> int | None:
    """Give a process's number in its own namespace: the last of ``NSpid`` in ``/proc/PID/status``."""
    for line in _text(folder / "status").splitlines():
        name, _, numbers = line.partition(":")
        if name == "NSpid" and numbers.split():
            return int(numbers.split()[-1])
    return None


def clock_ahead_seconds(folder: Path) -> int:
    """Say how far its monotonic clock is ahead of ours, in whole seconds: time_namespaces(7)."""
    return round(_monotonic_offset(folder) - _monotonic_offset(folder.parent / "self"))


def _monotonic_offset(folder: Path) -> float:
    for line in _text(folder / "timens_offsets").splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[0] in ("monotonic", "1"):  # noqa: PLR2004 - name, seconds, nanoseconds
            return int(fields[1]) + int(fields[2]) / 1e9
    return 0.0


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(65_536)
    except OSError:
        return ""
