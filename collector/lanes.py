"""A bounded number of threads for calls that may never return: one per lane, and a lane takes one job at a time.

A call into a driver cannot be interrupted. So it is made on the lane of its device: where it does not come back, that
lane alone is stuck, and whoever asked goes on without its answer. No second thread is ever started for a stuck lane;
its threads are daemons, so that the process can end while a call is still out.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SLICE_SECONDS: Final = 0.05
"""How often a patient wait looks whether it is still wanted."""


@dataclass(slots=True)
class Job:
    """One piece of work on a lane: what it gave, or the exception that it ended with."""

    function: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    value: Any = None
    error: BaseException | None = None

    def run(self) -> None:
        """Run, on the lane's thread."""
        try:
            self.value = self.function()
        except BaseException as error:  # noqa: BLE001 - carried over to whoever asked
            self.error = error
        self.done.set()

    def result(self) -> Any:
        """Give what it gave, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.value


class Lanes:
    """Lanes by name, each made when it is first used."""

    def __init__(self) -> None:
        """Begin without any thread."""
        self._inboxes: dict[str, queue.SimpleQueue[Job | None]] = {}
        self._current: dict[str, Job] = {}

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
        jobs = {name: self._start(name, function) for name, function in functions.items() if not self.busy(name)}
        deadline = time.monotonic() + patience_seconds
        for job in jobs.values():
            _wait(job, deadline, wanted)
        return {name: job for name, job in jobs.items() if job.done.is_set()}

    def close(self) -> None:
        """End the threads of lanes that are free; a stuck one ends when its call returns."""
        for inbox in self._inboxes.values():
            inbox.put(None)
        self._inboxes.clear()

    def _start(self, name: str, function: Callable[[], Any]) -> Job:
        inbox = self._inboxes.get(name)
        if inbox is None:
            inbox = self._inboxes[name] = queue.SimpleQueue()
            threading.Thread(target=_work, args=(inbox,), name=f"lane {name}", daemon=True).start()
        job = self._current[name] = Job(function)
        inbox.put(job)
        return job


def _wait(job: Job, deadline: float, wanted: Callable[[], bool] | None) -> None:
    if wanted is None:
        job.done.wait(max(0.0, deadline - time.monotonic()))
        return
    while wanted() and not job.done.wait(min(SLICE_SECONDS, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return


def _work(inbox: queue.SimpleQueue[Job | None]) -> None:
    while (job := inbox.get()) is not None:
        job.run()
