"""Processes and their descendants: what a job uses where it has no control group of its own.

The kernel adds a child's times and bytes to its parent's when the parent takes note of its end (proc_pid_stat(5),
``cutime``), so the total over a living tree only grows. One that shrank lost a child that nobody waited for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector.sources._host_counts import Look
from collector.sources._host_text import interfaces, pairs, read_text, whole

STAT_BYTES: Final = 4096
FIELDS_MIN: Final = 40
PASSING_ON: Final = ("lo", "docker", "br-", "veth", "virbr", "cni", "ifb", "dummy")
"""Beginnings of the names of interfaces that carry nothing to the outside, or what another carries again."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What is used of ``/proc/PID/stat``, by the names of proc_pid_stat(5). Times are in clock ticks."""

    pid: int
    state: str
    parent: int
    major_faults: int
    ticks: int
    start_ticks: int
    block_delay_ticks: int


class Trees:
    """Reads processes below a root that is usually ``/proc``."""

    def __init__(self, root: Path, processes_max: int) -> None:
        """At most ``processes_max`` processes are looked through for descendants."""
        self._root = root
        self._at = str(root)
        self._processes_max = processes_max
        self._parents: dict[int, int] = {}
        self._ticks_per_second = float(os.sysconf("SC_CLK_TCK"))
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        accounting = (read_text(root / "sys/kernel/task_delayacct") or "").strip()
        self._has_delays = accounting == "1"

    def stat(self, pid: int) -> Stat | None:
        """Read one process; None where it is gone or what stands there is no such line."""
        return parse_stat(pid, read_text(f"{self._at}/{pid}/stat", STAT_BYTES))

    def network_namespace(self, pid: int) -> str | None:
        """Name the network namespace of a process, where that can be read."""
        try:
            return os.readlink(f"{self._at}/{pid}/ns/net")  # noqa: PTH115 - paths cost more than what is read
        except OSError:
            return None

    def network_bytes(self, pid: int) -> tuple[float, float] | None:
        """Give the bytes received and transmitted by the network namespace of a process, to and from the outside."""
        text = read_text(f"{self._at}/{pid}/net/dev")
        rows = [row for row in interfaces(text) if not row[0].startswith(PASSING_ON)]
        if not rows:
            return None
        return float(sum(received for _, received, _ in rows)), float(sum(sent for _, _, sent in rows))

    def members(self, roots: Iterable[int]) -> dict[int, list[int]]:
        """Give each root with its descendants; who descends from another root belongs to the nearer one."""
        wanted = set(roots)
        found: dict[int, list[int]] = {pid: [pid] for pid in wanted}
        self._look_through()
        for pid in self._parents.keys() - wanted:
            above, steps = self._parents[pid], 0
            while above not in wanted and above in self._parents and steps < self._processes_max:
                above, steps = self._parents[above], steps + 1
            if above in wanted:
                found[above].append(pid)
        return found

    def look(self, pids: Iterable[int]) -> Look | None:
        """Add up processes; None where none of them is there. What one of them does not tell is not known of all."""
        stats = [stat for pid in pids if (stat := self.stat(pid)) is not None]
        if not stats:
            return None
        look = waits(stats, self._ticks_per_second, has_delays=self._has_delays)
        look.totals["cpu_seconds"] = sum(stat.ticks for stat in stats) / self._ticks_per_second
        look.totals["major_fault_count"] = float(sum(stat.major_faults for stat in stats))
        pages = [self._private_pages(stat.pid) for stat in stats]
        known = [count for count in pages if count is not None]
        if len(known) == len(pages):
            look.gauges["memory_resident_bytes"] = float(sum(known) * self._page_bytes)
        traffic = [pairs(read_text(f"{self._at}/{stat.pid}/io")) for stat in stats]
        for column, name in (("disk_read_bytes", "read_bytes"), ("disk_written_bytes", "write_bytes")):
            if all(name in one for one in traffic):
                look.totals[column] = float(sum(one[name] for one in traffic))
        return look

    def waits_of(self, pids: Iterable[int]) -> dict[tuple[int, int], Look]:
        """Give what each process, by number and start, tells of its waits alone, where their group tells all else."""
        stats = [stat for pid in pids if (stat := self.stat(pid)) is not None]
        return {
            (stat.pid, stat.start_ticks): waits([stat], self._ticks_per_second, has_delays=self._has_delays)
            for stat in stats
        }

    def _private_pages(self, pid: int) -> int | None:
        words = (read_text(f"{self._at}/{pid}/statm") or "").split()
        resident, shared = (whole(words[1]), whole(words[2])) if len(words) > 2 else (None, None)  # noqa: PLR2004
        return None if resident is None or shared is None or shared > resident else resident - shared

    def _look_through(self) -> None:
        """Learn the parents of processes that are new. An orphan, whose parent has changed, is in no tree any more."""
        try:
            names = os.listdir(self._root)  # noqa: PTH208 - names are all that is wanted of thousands
        except OSError:
            names = []
        there = {int(name) for name in names if name.isascii() and name.isdigit()}
        self._parents = {pid: parent for pid, parent in self._parents.items() if pid in there}
        for pid in sorted(there - self._parents.keys())[: max(0, self._processes_max - len(self._parents))]:
            words = (read_text(f"{self._at}/{pid}/stat", STAT_BYTES) or "").rpartition(")")[2].split(maxsplit=2)
            parent = whole(words[1]) if len(words) > 1 else None
            if parent is not None:
                self._parents[pid] = parent


def waits(stats: list[Stat], ticks_per_second: float, *, has_delays: bool) -> Look:
    """Give how many processes sleep without being interruptible, and their delays by block devices, if counted."""
    look = Look(gauges={"blocked_count": float(sum(stat.state == "D" for stat in stats))})
    if has_delays:
        look.totals["block_delay_seconds"] = sum(stat.block_delay_ticks for stat in stats) / ticks_per_second
    return look


def parse_stat(pid: int, text: str | None) -> Stat | None:
    """Read the line; the program's name, which is its user's to choose, ends at the last bracket."""
    head, bracket, tail = (text or "").rpartition(")")
    words = tail.split()
    if not bracket or not head.startswith(f"{pid} (") or len(words) < FIELDS_MIN:
        return None
    numbers = [whole(words[place]) for place in (1, 9, 10, 11, 12, 13, 14, 19, 39)]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return None
    parent, faults, child_faults, user, system, child_user, child_system, start, delay = known
    ticks = user + system + child_user + child_system
    return Stat(pid, words[0], parent, faults + child_faults, ticks, start, delay)
