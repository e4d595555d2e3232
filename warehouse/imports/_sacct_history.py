"""Which starts belong to one job: a requeue goes on with the job, an id that comes back begins a new one.

The keys do not depend on the order of rows or files: all starts of a job id, those of the file and those of the store,
are sorted by time and cut into generations. A start goes on with the one before when both have the same submit time
(a resized job), or when the one before was lost (requeued, preempted, its node failed) and the new submit time, which
Slurm sets at the requeue, follows closely.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from warehouse.contract.model import LOST_STATES
from warehouse.importer import PastAttempt

_CLOCK_SLACK_SECONDS = 60.0
"""How much before the end of a lost start its successor may be submitted: node and controller end it apart."""


@dataclass(slots=True)
class Run:
    """One start of a job id as a row tells it. ``db_index`` is Slurm's own key of it, where the file has one."""

    submit_at: float | None
    start_at: float | None
    end_at: float | None
    is_lost: bool
    db_index: str | None


class Place(NamedTuple):
    """Where a row belongs.

    ``speaks_for_job``: it is the first start of its job, whose fields the job takes. ``is_stale``: the row says
    "running", but another one knows the end.
    """

    job_key: str
    attempt_key: str
    speaks_for_job: bool
    is_stale: bool


@dataclass(slots=True)
class _Start:
    run: Run
    known_key: str | None = None
    generation: int | None = None
    is_first: bool = False

    def is_same(self, run: Run) -> bool:
        if self.run.db_index and run.db_index:
            return self.run.db_index == run.db_index
        return self.run.start_at == run.start_at and (
            self.run.submit_at == run.submit_at or None in (self.run.submit_at, run.submit_at)
        )


def new_place(job: str, run: Run) -> Place:
    """Place the only start of a job id, ``job`` being ``cluster/id``."""
    return Place(f"{job}#0", _attempt_key(f"{job}#0", run), speaks_for_job=True, is_stale=False)


class History:
    """All known starts of one job id."""

    def __init__(self, job: str, runs: Iterable[Run], past: Iterable[PastAttempt], requeue_seconds: float) -> None:
        """Sort out which starts belong together. ``job`` is ``cluster/id``."""
        self._job = job
        self._starts = [_of_store(attempt) for attempt in past]
        for run in runs:
            self._add(run)
        _number(self._starts, requeue_seconds)

    def place(self, run: Run) -> Place:
        """Place one of the runs that the history was made of."""
        start = next(start for start in self._starts if start.is_same(run))
        job_key = f"{self._job}#{start.generation}"
        attempt_key = start.known_key or _attempt_key(job_key, start.run)
        return Place(job_key, attempt_key, start.is_first, run.end_at is None and start.run.end_at is not None)

    def attempt_of_step(self, db_index: str | None, start_at: float | None) -> str | None:
        """Find the attempt that a step belongs to: by Slurm's own key, else the last one begun before the step."""
        for start in self._starts:
            if db_index and start.run.db_index == db_index:
                return self.place(start.run).attempt_key
        if db_index or start_at is None:
            return None
        begun = [start for start in self._starts if start.run.start_at is not None and start.run.start_at <= start_at]
        return self.place(max(begun, key=_order).run).attempt_key if begun else None

    def _add(self, run: Run) -> None:
        for start in self._starts:
            if start.is_same(run):
                known = start.run
                start.run = Run(
                    known.submit_at if run.submit_at is None else run.submit_at,
                    known.start_at if run.start_at is None else run.start_at,
                    known.end_at if run.end_at is None else run.end_at,
                    known.is_lost or run.is_lost,
                    known.db_index or run.db_index,
                )
                return
        self._starts.append(_Start(run))


def _of_store(past: PastAttempt) -> _Start:
    """Read a start back from the store; what follows its job key is Slurm's key unless it is the start time."""
    suffix = past.attempt_key.removeprefix(f"{past.job_key}:")
    is_start = past.start_at is not None and suffix == str(int(past.start_at))
    run = Run(past.submit_at, past.start_at, past.end_at, past.state in LOST_STATES, None if is_start else suffix)
    return _Start(run, past.attempt_key, int(past.job_key.rpartition("#")[2]))


def _number(starts: list[_Start], requeue_seconds: float) -> None:
    generations: list[list[_Start]] = []
    for start in sorted(starts, key=_order):
        if generations and _goes_on(generations[-1], start.run, requeue_seconds):
            generations[-1].append(start)
        else:
            generations.append([start])
    free = 1 + max((start.generation for start in starts if start.generation is not None), default=-1)
    for generation in generations:
        known = [start.generation for start in generation if start.generation is not None]
        number = min(known) if known else free
        free += not known
        for start in generation:
            start.generation = number
        generation[0].is_first = True


def _order(start: _Start) -> tuple[float, float]:
    submit, begin = start.run.submit_at, start.run.start_at
    return (begin if submit is None else submit) or 0.0, math.inf if begin is None else begin


def _goes_on(generation: list[_Start], run: Run, requeue_seconds: float) -> bool:
    if run.submit_at is not None and any(start.run.submit_at == run.submit_at for start in generation):
        return True
    before = generation[-1].run
    if not before.is_lost or before.end_at is None:
        return False
    return run.submit_at is None or -_CLOCK_SLACK_SECONDS <= run.submit_at - before.end_at <= requeue_seconds


def _attempt_key(job_key: str, run: Run) -> str:
    return f"{job_key}:{run.db_index or int(run.start_at or 0)}"
