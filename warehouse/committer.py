"""Group commit: many small batches, few transactions.

A transaction costs milliseconds whatever its size, so one a batch would cap a server at about 130 batches a second
(measured; docs/benchmarks.md). One thread gathers what arrives within a short window, or enough rows before it ends,
and writes it together; every sender gets its answer only after the commit. What arrives during a write is the next
group, whose window began with its first batch: under load one group is written while the next one is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from warehouse import batches
from warehouse.batches import Checked
from warehouse.contract.errors import OverloadedError
from warehouse.settings import COMMIT_WINDOW_SECONDS, FREE_SPACE_FLOOR_BYTES, MAX_WAITING_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from warehouse.batches import Acceptance
    from warehouse.contract.settings import Settings
    from warehouse.contract.wire import Batch
    from warehouse.store import Store

LOG = logging.getLogger("trueload.committer")

SPACE_SECONDS = 0.2
"""How long what is free on the disk is believed: the floor leaves room for far more than arrives meanwhile."""


GROUP_ROWS = 10_000
"""So many rows are written at once, however short they have waited: larger groups make a row hardly cheaper, and who
waits for them idles meanwhile. A group of 125 batches of 80 rows costs 0.3 ms a batch, one of 500 0.24 ms."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A batch, and who waits for what becomes of it: a thread, or a task of an event loop."""

    batch: Batch | Checked
    answer: Future[Acceptance] | asyncio.Future[Acceptance]
    loop: asyncio.AbstractEventLoop | None = None


class Committer:
    """One thread that writes batches in groups. Use as a context manager; leaving it writes what still waits."""

    def __init__(self, store: Store, data: Path, settings: Settings) -> None:
        """Prepare; the thread starts on entering the context."""
        self._store = store
        self._data = data
        self._window_seconds = settings[COMMIT_WINDOW_SECONDS]
        self._max_rows = settings[MAX_WAITING_ROWS]
        self._floor_bytes = settings[FREE_SPACE_FLOOR_BYTES]
        self._guard = threading.Lock()
        self._group: list[_Waiting] = []
        self._group_rows = self._waiting_rows = 0
        self._due_at = 0.0
        self._begun, self._enough = threading.Event(), threading.Event()
        self._leaving = False
        self._free_bytes, self._look_again_at = 0, 0.0
        self._thread = threading.Thread(target=self._run, name="committer")
        self.on_commit: Callable[[float], object] = float
        """Told the seconds of each write."""

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Write what waits, then end the thread."""
        with self._guard:
            self._leaving = True
            self._begun.set()
            self._enough.set()
        self._thread.join()

    def submit(self, batch: Batch | Checked) -> Future[Acceptance]:
        """Queue a batch, checked or not; the future gives what became of it, after the commit.

        It raises BadInputError where the batch was not checked and is wrong.

        Raises:
            OverloadedError: more rows wait than the setting allows, or the disk is nearly full; send again later.

        """
        answer: Future[Acceptance] = Future()
        self._take(_Waiting(batch, answer))
        return answer

    async def write(self, batch: Batch | Checked) -> Acceptance:
        """Queue a batch from a task of an event loop and wait until it is committed.

        Raises:
            OverloadedError: as ``submit``.
            BadInputError: the batch was not checked, and is wrong.
            StoreError: the store refused; nothing of the batch is kept.

        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Acceptance] = loop.create_future()
        self._take(_Waiting(batch, answer, loop))
        return await answer

    def _take(self, waiting: _Waiting) -> None:
        self.require_space()
        rows = waiting.batch.rows
        with self._guard:
            if self._waiting_rows + rows > self._max_rows and self._waiting_rows:
                raise OverloadedError(f"{self._waiting_rows} rows wait to be written; send again later")
            self._waiting_rows += rows
            self._group_rows += rows
            self._group.append(waiting)
            # The thread sleeps between these two: woken by each batch, it would take the interpreter's lock from the
            # thread that reads them.
            if len(self._group) == 1:
                self._due_at = time.monotonic() + self._window_seconds
                self._begun.set()
            if self._group_rows >= GROUP_ROWS:
                self._enough.set()

    def require_space(self) -> None:
        """Refuse new data where the disk is nearly full.

        Raises:
            OverloadedError: less is free than the setting wants.

        """
        now = time.monotonic()
        if now >= self._look_again_at:
            self._free_bytes = shutil.disk_usage(self._data).free
            # A full disk is looked at each time, so that taking goes on at once when there is space again.
            self._look_again_at = now + (SPACE_SECONDS if self._free_bytes >= self._floor_bytes else 0.0)
        free_bytes = self._free_bytes
        if free_bytes < self._floor_bytes:
            raise OverloadedError(
                f"{self._data}: {free_bytes} bytes free, below the floor of {self._floor_bytes}; make space"
            )

    @property
    def waiting_rows(self) -> int:
        """Give the number of rows that were taken and are not yet written."""
        return self._waiting_rows

    def _run(self) -> None:
        while group := self._gather():
            self._write(group)

    def _gather(self) -> list[_Waiting]:
        """Wait for a first batch, then for the end of its window or for enough rows; none: it was the last group."""
        self._begun.wait()
        self._enough.wait(max(0.0, self._due_at - time.monotonic()))
        with self._guard:
            group, self._group, self._group_rows = self._group, [], 0
            if not self._leaving:
                self._begun.clear()
                self._enough.clear()
            return group

    def _write(self, group: list[_Waiting]) -> None:
        began = time.monotonic()
        results: list[Acceptance | Exception]
        try:
            results = self._outcomes([waiting.batch for waiting in group])
        except Exception as error:  # whatever broke, every sender must get an answer, and the thread go on
            LOG.exception("%d batches could not be written together", len(group))
            results = [error] if len(group) == 1 else [self._alone(waiting.batch) for waiting in group]
        else:
            self.on_commit(time.monotonic() - began)
        finally:
            with self._guard:
                self._waiting_rows -= sum(waiting.batch.rows for waiting in group)
        _answer(list(zip(group, results, strict=True)))

    def _alone(self, batch: Batch | Checked) -> Acceptance | Exception:
        """Write a batch by itself, since a batch of its group broke the writing of all: the good ones are kept."""
        try:
            return self._outcomes([batch])[0]
        except Exception as error:  # as above
            LOG.exception("a batch of agent %r could not be written; its sender keeps it", batch.agent)
            return error

    def _outcomes(self, group: Sequence[Batch | Checked]) -> list[Acceptance | Exception]:
        """Check and write; gives what became of each, or why it is refused."""
        checked = batches.check_all(group)
        written = iter(batches.commit(self._store, [batch for batch in checked if isinstance(batch, Checked)]))
        return [next(written) if isinstance(batch, Checked) else batch for batch in checked]


def _answer(given: Sequence[tuple[_Waiting, Acceptance | Exception]]) -> None:
    """Answer everybody, a loop's waiters all at once: to wake a loop costs a system call and a wait for its thread."""
    for loop in {waiting.loop for waiting, _ in given}:
        answers = [(waiting.answer, result) for waiting, result in given if waiting.loop is loop]
        if loop is None:
            _settle(answers)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, answers)


def _settle(
    answers: Sequence[tuple[Future[Acceptance] | asyncio.Future[Acceptance], Acceptance | Exception]],
) -> None:
    for answer, result in answers:
        if answer.done():  # the sender went away meanwhile
            continue
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)
