"""A machine without a scheduler: every program that uses a GPU is a job of its own.

The control group of a container or of a login says nothing of who shall be told, so a job is a process, by its id and
its start; its owner is the user that runs it. Command lines are not read: they hold passwords too often.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collector import job_source as kind
from collector.aside import Aside
from collector.processes import ProcessId, ProcessTable
from warehouse.contract.errors import UnreachableError
from warehouse.contract.model import Attempt, AttemptState, Job, Record
from warehouse.contract.settings import Settings

ASKED_MAX: Final = 8
"""Users whose name is asked for at a time: each is a thread while a directory service does not answer."""


@dataclass(slots=True)
class UserNames:
    """Names of users. A site's directory may hang: whose name does not come in time is told by number."""

    patience_seconds: float
    ask: Callable[[int], str]
    _known: dict[int, str] = field(default_factory=dict)
    _asked: dict[int, Aside[str]] = field(default_factory=dict)

    def __call__(self, user_id: int) -> str:
        """Give the name, or the number where there is none or it is not told in time."""
        if user_id in self._known:
            return self._known[user_id]
        if user_id not in self._asked:
            if len(self._asked) >= ASKED_MAX:
                return str(user_id)
            self._asked[user_id] = Aside(f"user {user_id}", lambda: self.ask(user_id), self.patience_seconds)
        try:
            name = self._asked[user_id]()
        except UnreachableError:
            return str(user_id)
        del self._asked[user_id]
        self._known[user_id] = name
        return name


def name_of(user_id: int) -> str:
    """Ask the system for a user's name, which may ask a directory service; the number where it knows none."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


@dataclass(slots=True)
class Processes:
    """Names processes and tells the server of them as jobs."""

    knows_allocations = False

    cluster: str
    node: str
    processes: ProcessTable
    ticks_per_second: int = 100
    remembered: int = 1024
    """Processes that are known before those that have ended are looked for; grows with those that live."""

    user_name: Callable[[int], str] = name_of

    _running: dict[ProcessId, str] = field(default_factory=dict)
    _news: list[Record] = field(default_factory=list)

    def holdings(self) -> list[kind.Holding]:
        """Give nothing: nobody is given a device here."""
        return []

    def claim(self, witness: kind.Witness) -> kind.Claim | None:
        """Say which job a process is: its own."""
        who = self.processes.identity(witness.pid)
        if who is None:
            return None
        if who in self._running:  # a step of the clock would move the boot, and make another job of it
            return kind.Claim(self._running[who], "process")
        start_at = self.processes.boot_at() + who.start_ticks / self.ticks_per_second
        job_key = f"{self.cluster}/{self.node}-{who.pid}-{int(start_at)}#0"
        attempt_key = f"{job_key}:{int(start_at)}"
        self._running[who] = attempt_key
        self._news += [
            Job(
                job_key=job_key,
                cluster=self.cluster,
                scheduler_job_id=str(who.pid),
                source="process",
                name=self.processes.name(who.pid),
                user=None if witness.user_id is None else self.user_name(witness.user_id),
                submit_at=start_at,
            ),
            Attempt(attempt_key, job_key, AttemptState.RUNNING, None, start_at, None, "process", node_list=self.node),
        ]
        return kind.Claim(attempt_key, "process")

    def records(self) -> list[Record]:
        """Give what is new since the last call: jobs that began. Those that have ended are forgotten now and then."""
        news, self._news = self._news, []
        if len(self._running) > self.remembered:
            living = {who: key for who, key in self._running.items() if self.processes.identity(who.pid) == who}
            self._running, self.remembered = living, max(self.remembered, 2 * len(living))
        return news


def _open(settings: Settings) -> Processes:
    from collector.agent import node_name
    from collector.settings import CALL_PATIENCE_SECONDS, CLUSTER, PROC_ROOT

    table = ProcessTable(Path(settings[PROC_ROOT]))
    names = UserNames(settings[CALL_PATIENCE_SECONDS], name_of)
    return Processes(settings[CLUSTER], node_name(settings), table, os.sysconf("SC_CLK_TCK"), user_name=names)


JOB_SOURCE = kind.JobSource(
    name="process",
    description="A machine without a scheduler: each process on a GPU is a job, of the user that runs it.",
    open=_open,
)
