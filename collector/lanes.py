"""A bounded number of threads for calls that may never return: one per lane at most, which takes one job at a time.

A call into a driver cannot be interrupted. So it is made on the lane of its device: where it does not come back, that
lane alone is stuck, and whoever asked goes on without its answer. A stuck lane takes no second job; threads are
daemons, so that the process can end while a call is still out.

One thread does the jobs of all lanes one after the other as long as they are quick, and others come to its help when
they are not: threads that call a driver at the same time spend more on passing the interpreter around than on calling.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SLICE_SECONDS: Final = 0.05
"""How often a patient wait looks whether it is still wanted."""

HELP_SECONDS: Final = 0.005
"""After so long without any job taken another thread comes to help: ten slow lanes are all at work within 50 ms."""


@dataclass(slots=True)
class Job:
    """One piece of work on a lane: what it gave, or the exception that it ended with."""

    function: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    value: Any = None
    error: BaseException | None = None

    def run(self) -> None:
        """Run, on a thread that then says that it is done."""
        try:
            self.value = self.function()
        except BaseException as error:  # noqa: BLE001 - carried over to whoever asked
            self.error = error

    def result(self) -> Any:
        """Give what it gave, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.value


_Inbox = queue.SimpleQueue[deque[Job] | None]
"""Of a thread: jobs that are taken one after the other, by it and by whoever helps. None ends it."""


class Lanes:
    """Lanes by name, each made when it is first used."""

    def __init__(self) -> None:
        """Begin without any thread."""
        self._current: dict[str, Job] = {}
        self._inboxes: list[_Inbox] = []
        self._idle: list[_Inbox] = []

    def busy(self, name: str) -> bool:
        """Say whether a lane's last job has not returned yet."""
        job = self._current.get(name)
        return job is not None and not job.done.is_set()

    @property
    def stuck(self) -> list[str]:
        """Give the lanes whose last job has not returned, as of now."""
        return [name for name in self._current if self.busy(name)]

    def run(
        self,
        functions: Mapping[str, Callable[[], Any]],
        patience_seconds: float,
        wanted: Callable[[], bool] | None = None,
    ) -> dict[str, Job]:
        """Run one function on each named lane at the same time; give those that returned within the patience.

        A lane that is still busy with an earlier job is passed over. ``wanted`` ends the wait early when it says no.
        """
        jobs = {name: Job(function) for name, function in functions.items() if not self.busy(name)}
        self._current |= jobs
        deadline = time.monotonic() + patience_seconds
        untaken = deque(jobs.values())
        before, helpers = len(untaken), 0
        while left := len(untaken):
            if left == before and helpers < len(jobs):  # nothing went forward
                helpers += 1
                self._thread().put(untaken)
            before = left
            next(reversed(jobs.values())).done.wait(HELP_SECONDS)
        for job in reversed(jobs.values()):  # in the usual order of their ends, one wait does for all
            _wait(job, deadline, wanted)
        return {name: job for name, job in jobs.items() if job.done.is_set()}

    def close(self) -> None:
        """End the threads that are free; a stuck one ends when its call returns."""
        for inbox in self._inboxes:
            inbox.put(None)
        self._inboxes, self._idle = [], []

    def _thread(self) -> _Inbox:
        """Give the inbox of a thread that has nothing to do."""
        if self._idle:
            return self._idle.pop()
        inbox: _Inbox = queue.SimpleQueue()
        self._inboxes.append(inbox)
        threading.Thread(
            target=_work, args=(inbox, self._idle), name=f"lanes {len(self._inboxes)}", daemon=True
        ).start()
        return inbox


def _wait(job: Job, deadline: float, wanted: Callable[[], bool] | None) -> None:
    if wanted is None:
        job.done.wait(max(0.0, deadline - time.monotonic()))
        return
    while wanted() and not job.done.wait(min(SLICE_SECONDS, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return


def _work(inbox: _Inbox, idle: list[_Inbox]) -> None:
    while (untaken := inbox.get()) is not None:
        job = _taken(untaken)
        if job is None:
            idle.append(inbox)
        while job is not None:
            job.run()
            following = _taken(untaken)
            if following is None:
                idle.append(inbox)  # before anybody hears that all is done, and asks for a thread
            job.done.set()
            job = following


def _taken(untaken: deque[Job]) -> Job | None:
    try:
        return untaken.popleft()
    except IndexError:  # the others have taken all
        return None
