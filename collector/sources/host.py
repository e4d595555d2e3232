"""The host side: what the node, and each job that is seen on a device, uses of CPUs, memory, disks and network.

Read once per cadence, for all that matters is counted by the kernel. A job is its control group (of the whole pod or
Slurm job), or where it has none of its own its processes on devices with their descendants. It is known from the first
time that one of its processes is on a device until its group or its process ends.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collector.aggregate import Moment
from collector.processes import ProcessTable
from collector.source import Settled, Source, SourceContext
from collector.sources._host_counts import Amounts, Look
from collector.sources._host_groups import Group, Groups
from collector.sources._host_node import Disks, Node
from collector.sources._host_trees import Trees
from warehouse.contract.model import HostSample
from warehouse.contract.settings import Setting

if TYPE_CHECKING:
    from collector.source import Reading

LOG = logging.getLogger("trueload.host")
NAME: Final = "host"
NODE, GROUP, TREE = "node", "group", "tree"
WAITS: Final = "waits"
DONE_MAX: Final = 10_000
COUNTS: Final = ("major_fault_count", "blocked_count")
DIGITS: Final = 3

CGROUP_ROOT = Setting(
    "agent", "host_cgroup_root", "/sys/fs/cgroup", "path", "Where every Linux mounts them; a container may differ."
)
SYS_ROOT = Setting("agent", "host_sys_root", "/sys", "path", "Tells disks and interfaces from what lies over them.")
SUBJECTS_MAX = Setting(
    "agent",
    "host_subjects_max",
    256,
    "jobs",
    "More than any node runs on its cards at once; each costs a tenth of a millisecond per cadence.",
    1,
    10_000,
)
PROCESSES_MAX = Setting(
    "agent",
    "host_processes_max",
    8192,
    "processes",
    "Looked through for descendants where jobs have no control groups; a big node runs some thousands.",
    1,
    1_000_000,
)


@dataclass(slots=True)
class _Subject:
    """A job as the host sees it: a group, or the root of a tree. ``pids`` are its processes on devices now."""

    key: object
    name: str
    group: Group | None
    root: tuple[int, int] | None = None
    owners: set[str] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)

    @property
    def scope(self) -> str:
        return TREE if self.group is None else GROUP

    @property
    def attempt_key(self) -> str | None:
        """Give its owner; processes of two attempts in one group are nobody's."""
        return next(iter(self.owners)) if len(self.owners) == 1 else None


class HostReader:
    """Reads on its own lane once a cadence; what is ready is taken by the agent's thread."""

    def __init__(self, context: SourceContext, clock: Callable[[], Moment] | None = None) -> None:
        """Read below the places of the settings; ``clock`` gives both clocks."""
        from collector import settings as names  # which imports this module for its constant

        settings = context.settings
        proc, sys_root = Path(settings[names.PROC_ROOT]), Path(settings[SYS_ROOT])
        self._place = (settings[names.CLUSTER], settings[names.NODE] or socket.gethostname())
        self._interval_seconds = settings[names.INTERVAL_SECONDS]
        self._cadence_seconds = settings[names.CADENCE_SECONDS]
        self._gap_seconds = settings[names.GAP_INTERVALS] * self._cadence_seconds
        self._clock = clock or (lambda: Moment(time.time(), time.monotonic()))
        disks = Disks(sys_root)
        self._node = Node(proc, sys_root, disks)
        self._groups = Groups(Path(settings[CGROUP_ROOT]), disks)
        self._trees = Trees(proc, settings[PROCESSES_MAX])
        self._processes = ProcessTable(proc)
        self._sees_pids = self._processes.sees_host_pids()
        self._count = context.driver.count
        self._amounts = Amounts(self._count, os.cpu_count() or 1)
        self._subjects_max = settings[SUBJECTS_MAX]
        self._seen: Mapping[int, str | None] = {}
        self._subject_of: dict[int, _Subject] = {}
        self._subjects: dict[object, _Subject] = {}
        self._before: Moment | None = None
        self._told_until = 0.0
        self._waiting: set[object] = set()
        self._done: deque[HostSample] = deque(maxlen=DONE_MAX)
        self._asked_cell = 0

    def read(self) -> Sequence[Reading]:
        """Look at everything when a cadence has ended; what was found waits for :meth:`settled`."""
        now = self._clock()
        before = self._before
        if before is not None and self._cell(now) == self._cell(before):
            return []
        self._before = now
        seconds = 0.0 if before is None else now.monotonic - before.monotonic
        stepped = before is not None and abs(now.wall - before.wall - seconds) > self._interval_seconds / 2
        if stepped or seconds > self._gap_seconds:
            self._amounts.clear()  # nobody knows which part of what has risen since belongs to which time
        self._find_subjects()
        start_at = now.wall if before is None else self._snap(before.wall)
        self._look_at_all(start_at, self._snap(now.wall), seconds)
        return []

    def settled(
        self, moment: Moment, found: Mapping[str, Sequence[Reading]], owner_of: Callable[[int], str | None]
    ) -> Settled:
        """Take which processes are on devices and whose they are; give the rows that are ready."""
        pids = {pid for readings in found.values() for reading in readings for pid in reading.pids or ()}
        if self._sees_pids:
            ask_again, self._asked_cell = self._cell(moment) != self._asked_cell, self._cell(moment)
            known = self._seen
            self._seen = {
                pid: owner_of(pid) if pid not in known or (ask_again and known[pid] is None) else known[pid]
                for pid in pids
            }
        done = [self._done.popleft() for _ in range(len(self._done))]
        return Settled([], done)

    def uses(self, device_uuid: str, start_at: float, end_at: float) -> Mapping[int, float]:  # noqa: ARG002 - the protocol
        """Nothing here says how much of a device anybody used."""
        return {}

    def close(self) -> None:
        """Nothing stays open."""

    def _cell(self, moment: Moment) -> int:
        return int((moment.wall + self._interval_seconds / 2) // self._cadence_seconds)

    def _snap(self, at: float) -> float:
        edge = round(at / self._cadence_seconds) * self._cadence_seconds
        return edge if abs(at - edge) <= self._interval_seconds / 2 else round(at, 3)

    def _find_subjects(self) -> None:
        """Bring what is known of jobs up to date with the processes that were seen on devices last."""
        seen = self._seen
        self._subject_of = {pid: subject for pid, subject in self._subject_of.items() if pid in seen}
        self._subjects = {key: one for key, one in self._subjects.items() if self._is_there(one)}
        for one in self._subjects.values():
            one.pids.clear()
        for pid, owner in seen.items():
            subject = self._subject_of.get(pid) or self._subject(pid)
            if subject is None or subject.key not in self._subjects:
                self._subject_of.pop(pid, None)
                continue
            self._subject_of[pid] = subject
            subject.pids.add(pid)
            if owner is not None:
                subject.owners.add(owner)

    def _subject(self, pid: int) -> _Subject | None:
        group = self._groups.find(self._processes.cgroup_lines(pid))
        if group is not None:
            made = _Subject((group.path, group.inode), group.path, group)
        else:
            stat = self._trees.stat(pid)
            if stat is None:
                return None
            made = _Subject((pid, stat.start_ticks), f"{pid}:{stat.start_ticks}", None, (pid, stat.start_ticks))
        if made.key not in self._subjects and len(self._subjects) >= self._subjects_max:
            self._count("host", f"jobs beyond {SUBJECTS_MAX.name}")
            return None
        return self._subjects.setdefault(made.key, made)

    def _is_there(self, subject: _Subject) -> bool:
        if subject.group is not None:
            return subject.group.is_there()
        assert subject.root is not None  # noqa: S101 - what is no group is a tree
        stat = self._trees.stat(subject.root[0])
        return stat is not None and stat.start_ticks == subject.root[1]

    def _look_at_all(self, start_at: float, end_at: float, seconds: float) -> None:
        self._tell(NODE, None, self._node.look(), start_at, end_at, seconds)
        roots = [one.root[0] for one in self._subjects.values() if one.root is not None]
        members = self._trees.members(roots) if roots else {}
        own = self._own_namespaces()
        self._waiting.clear()
        for subject in self._subjects.values():
            try:
                look = self._look(subject, members, seconds)
                if look is not None and (pid := own.get(subject.key)) is not None:
                    self._network(look, pid)
            except Exception:  # what one job has in its files costs nobody else
                LOG.exception("%s: what it uses of the host could not be read", subject.name)
                continue
            if look is not None:
                self._tell(subject.scope, subject, look, start_at, end_at, seconds)
        self._amounts.forget({NODE, *self._subjects, *self._waiting})
        self._told_until = max(self._told_until, end_at)

    def _look(self, subject: _Subject, members: Mapping[int, list[int]], seconds: float) -> Look | None:
        if subject.group is None:
            assert subject.root is not None  # noqa: S101 - what is no group is a tree
            return self._trees.look(members[subject.root[0]])
        look, waits = subject.group.look(), self._trees.waits_of(subject.pids)
        if waits:
            look.gauges["blocked_count"] = sum(one.gauges["blocked_count"] for one in waits.values())
        # Added up by process: one that comes onto a device brings its whole life's delays along.
        rises = [self._amounts.since_last((WAITS, *who), one.totals, seconds) for who, one in waits.items()]
        self._waiting.update((WAITS, *who) for who in waits)
        known = [rise["block_delay_seconds"] for rise in rises if rise and "block_delay_seconds" in rise]
        if known:
            look.gauges["block_delay_seconds"] = sum(known)
        return look

    def _own_namespaces(self) -> dict[object, int]:
        """Give a process of each job whose network namespace is neither the host's nor another job's."""
        places = {
            one.key: (name, pid)
            for one in self._subjects.values()
            if (pid := min(one.pids, default=one.root[0] if one.root else None)) is not None
            and (name := self._trees.network_namespace(pid)) is not None
        }
        users = Counter(name for name, _ in places.values())
        hosts = self._trees.network_namespace(1)
        if hosts is None:
            return {}
        return {key: pid for key, (name, pid) in places.items() if name != hosts and users[name] == 1}

    def _network(self, look: Look, pid: int) -> None:
        traffic = self._trees.network_bytes(pid)
        if traffic is not None:
            look.totals["network_received_bytes"], look.totals["network_transmitted_bytes"] = traffic

    def _tell(
        self, scope: str, subject: _Subject | None, look: Look, start_at: float, end_at: float, seconds: float
    ) -> None:
        key = NODE if subject is None else subject.key
        amounts = self._amounts.since_last(key, look.totals, seconds)
        if amounts is None or end_at <= start_at or start_at < self._told_until:
            return
        values: dict[str, Any] = {
            name: round(value) if name in COUNTS else round(value, DIGITS)
            for name, value in (amounts | look.gauges).items()
        }
        cluster, node = self._place
        sample = HostSample(
            cluster=cluster,
            node=node,
            scope=scope,
            sampled_at=start_at,
            cadence_seconds=round(end_at - start_at, 3),
            source=NAME,
            subject=None if subject is None else subject.name,
            attempt_key=None if subject is None else subject.attempt_key,
            **values,
        )
        self._done.append(sample)


SOURCE = Source(
    name=NAME,
    description="CPU, memory, disk and network use of the node and of each job on it, and how long they wait.",
    metrics=(),
    open=HostReader,
    settings=(CGROUP_ROOT, SYS_ROOT, SUBJECTS_MAX, PROCESSES_MAX),
)
