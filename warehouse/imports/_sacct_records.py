"""What rows of sacct become: checked values first, then jobs, attempts, allocations and steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

from warehouse.contract.model import LOST_STATES, Allocation, Attempt, AttemptState, AttemptSummary, Job, Record, Step
from warehouse.importer import Imported, ImportOptions
from warehouse.imports import _slurm_values as slurm
from warehouse.imports._jobstats_summary import summary as jobstats_summary
from warehouse.imports._sacct_history import History, Place, Run, new_place
from warehouse.imports._sacct_rows import SacctRow
from warehouse.imports._values import BadRowError, Clock, Lenient, cluster_name, short_text, whole

SOURCE = "sacct"
_NEVER_STARTED = "None assigned"
"""NodeList of a job that was cancelled while it waited."""

_EXIT = re.compile(r"([0-9]{1,9}):([0-9]{1,9})\Z", re.ASCII)
_INTERACTIVE = re.compile(r"(?:\S*/)?salloc\b|.*\s--pty\b")
_SLUID = re.compile(r"s[0-9A-Z]{13}\Z", re.ASCII)
"""The id of one start of a job, new at each requeue: Slurm 26.05 names control groups by it."""

_SINGLE_NODE = re.compile(r"[^\[\],\s]{1,200}\Z")

_CACHED_TEXTS = 4096
"""Readings of texts that come again and again (nodes, limits, exit codes) are kept up to this number."""

_Number = TypeVar("_Number", int | None, float | None)
JobKey: TypeAlias = tuple[str, str]
"""Cluster and raw job id."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A checked row of a job: one start of it, or its waiting."""

    line: int
    row: SacctRow
    key: JobKey
    shown: slurm.JobId
    state: AttemptState
    run: Run
    gpus: tuple[slurm.Gpus, ...]


@dataclass(frozen=True, slots=True)
class StepRow:
    line: int
    row: SacctRow
    key: JobKey
    step_id: str
    db_index: str | None
    start_at: float | None
    end_at: float | None


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """The rest of a job array that waits on one row: not jobs yet."""

    line: int
    row: SacctRow
    key: JobKey


CheckedRow: TypeAlias = JobRow | StepRow | WaitingRow


class Reader:
    """Turns rows into checked ones, and checked ones into records."""

    def __init__(self, options: ImportOptions) -> None:
        self._options = options
        self._clock = Clock(options.zone)
        self._lenient = Lenient(options.max_field_characters)

    def check(self, line: int, row: SacctRow) -> CheckedRow:
        """Read what decides about a row.

        Raises:
            BadRowError: the row cannot be used.

        """
        shown = slurm.job_id("JobID", row.job_id)
        is_raw_other = row.job_id_raw and row.job_id_raw != row.job_id
        raw = slurm.job_id("JobIDRaw", row.job_id_raw) if is_raw_other else shown
        key = (cluster_name(row.cluster or self._options.cluster), raw.shown)
        if shown.is_array_rest:
            return WaitingRow(line, row, key)
        start_at, end_at = self._at("Start", row.start), self._at("End", row.end)
        if start_at is not None and end_at is not None and end_at < start_at:
            raise BadRowError("ends before it starts", f"Start is {row.start}, End is {row.end}")
        db_index = row.db_index if row.db_index not in slurm.NOTHING else None
        step = raw.step or shown.step
        if step is not None:
            return StepRow(line, row, key, step, db_index, start_at, end_at)
        state = slurm.state(row.state)
        if (state is AttemptState.PENDING and end_at is None) or row.node_list == _NEVER_STARTED:
            start_at = None
        end_at = _known_end(row, state, start_at, end_at)
        state = _settled(state, end_at)
        run = Run(self._at("Submit", row.submit), start_at, end_at, state in LOST_STATES, db_index)
        gpus = slurm.gpus("AllocTRES", row.allocated) or slurm.gpus_of_gres("AllocGRES", row.allocated_gres)
        return JobRow(line, row, key, shown, state, run, gpus)

    def record(self, checked: CheckedRow, history: History | None) -> Imported:
        """Turn a checked row into a record.

        Raises:
            BadRowError: the row cannot be used.

        """
        cluster, raw = checked.key
        job = f"{cluster}/{raw}"
        if isinstance(checked, WaitingRow):
            return self._imported(checked, f"{job}:waiting", ())
        if isinstance(checked, StepRow):
            attempt_key = _attempt_of_step(checked, job, history)
            return self._imported(checked, f"{attempt_key}.{checked.step_id}", (self._step(checked, attempt_key),))
        place = new_place(job, checked.run) if history is None else history.place(checked.run)
        run = checked.run
        start = run.db_index or run.start_at or run.submit_at or ""
        return self._imported(checked, f"{job}:{start}", tuple(self._rows(checked, place)))

    def _at(self, column: str, text: str) -> float | None:
        return None if text in slurm.NOTHING else self._clock.at(column, text)

    def _imported(self, checked: CheckedRow, record_key: str, rows: tuple[Record, ...]) -> Imported:
        # Elapsed grows while a job runs and decides nothing, unless the end is told by it alone.
        row = checked.row
        used = row[:-1] if row.end in slurm.NOTHING and _has_ended(checked) else row[:-2]
        # Slurm before 26.05 has no SLUID: what was imported of it stays the same record.
        content = "\x1f".join((*used, row.sluid, self._options.zone) if row.sluid else (*used, self._options.zone))
        return Imported(checked.line, record_key, content, rows, self._lenient.take_altered())

    def _rows(self, checked: JobRow, place: Place) -> Iterator[Record]:
        if place.is_stale:
            return
        if place.speaks_for_job:
            yield self._job(checked, place.job_key)
        if checked.run.start_at is None:
            return
        yield self._attempt(checked, place)
        for number, held in enumerate(checked.gpus):
            yield Allocation(
                allocation_key=f"{place.attempt_key}:{number}",
                attempt_key=place.attempt_key,
                gpu_count=float(held.count),
                start_at=checked.run.start_at,
                end_at=checked.run.end_at,
                source=SOURCE,
                certainty="accounting",
                node=_single_node(checked.row.node_list),
                gpu_model=held.model,
            )
        if (summary := self._summary(checked.row.admin_comment, place.attempt_key)) is not None:
            yield summary

    def _summary(self, comment: str, attempt_key: str) -> AttemptSummary | None:
        """Give what jobstats left of the attempt."""
        try:
            found = jobstats_summary(comment)
        except BadRowError as bad:
            self._lenient.note("AdminComment", f"{bad.reason}, left out", bad.detail)
            return None
        return None if found is None else found.row(attempt_key)

    def _job(self, checked: JobRow, job_key: str) -> Job:
        row, shown = checked.row, checked.shown
        asked = slurm.request(row.requested, row.requested_memory)
        is_part_of_array = shown.array_index is not None
        is_part_of_het = shown.het_offset is not None
        command = self._lenient.text("SubmitLine", row.command)
        return Job(
            job_key=job_key,
            cluster=checked.key[0],
            scheduler_job_id=checked.key[1],
            source=SOURCE,
            array_job_id=shown.number if is_part_of_array else None,
            array_task_index=shown.array_index,
            het_job_id=shown.number if is_part_of_het else None,
            het_offset=shown.het_offset,
            name=self._lenient.text("JobName", row.name),
            user=short_text("User", row.user),
            account=short_text("Account", row.account),
            partition=short_text("Partition", row.partition),
            qos=short_text("QOS", row.qos),
            command=command,
            work_dir=self._lenient.text("WorkDir", row.work_dir),
            image=self._lenient.text("Container", row.container),
            comment=self._lenient.text("Comment", row.comment),
            submit_at=checked.run.submit_at,
            requested_gpu_count=asked.gpu_count,
            requested_cpu_count=asked.cpu_count,
            requested_memory_bytes=asked.memory_bytes,
            requested_node_count=asked.node_count,
            time_limit_seconds=_time_limit_seconds(row.time_limit),
            interactive=True if command and _is_interactive(command) else None,
        )

    def _attempt(self, checked: JobRow, place: Place) -> Attempt:
        row, run = checked.row, checked.run
        exit_code, exit_signal = _exit(row.exit_code)
        return Attempt(
            attempt_key=place.attempt_key,
            job_key=place.job_key,
            state=checked.state,
            raw_state=short_text("State", row.state),
            start_at=run.start_at,
            end_at=run.end_at,
            source=SOURCE,
            submit_at=run.submit_at,
            exit_code=exit_code,
            exit_signal=exit_signal,
            node_count=_count("NNodes", row.node_count),
            node_list=self._lenient.text("NodeList", row.node_list),
            cpu_count=_count("NCPUS", row.cpu_count),
            other_id=row.sluid if _SLUID.match(row.sluid) else None,
        )

    def _step(self, checked: StepRow, attempt_key: str) -> Step:
        row = checked.row
        return Step(
            attempt_key=attempt_key,
            step_id=checked.step_id,
            name=self._lenient.text("JobName", row.name),
            raw_state=short_text("State", row.state),
            start_at=checked.start_at,
            end_at=checked.end_at,
            memory_peak_bytes=self._understood("MaxRSS", row.memory_peak, slurm.size_bytes(row.memory_peak)),
            cpu_seconds=self._understood("TotalCPU", row.cpu_time, slurm.seconds(row.cpu_time)),
        )

    def _understood(self, column: str, text: str, value: _Number) -> _Number:
        if text and value is None:
            self._lenient.note(column, "not understood, left out", text)
        return value


def _attempt_of_step(checked: StepRow, job: str, history: History | None) -> str:
    found = history.attempt_of_step(checked.db_index, checked.start_at) if history else None
    if found is None and checked.db_index:
        found = f"{job}#0:{checked.db_index}"
    if found is None:
        raise BadRowError("step without its job", f"no row of job {job.partition('/')[2]} says when it started")
    return found


def _known_end(row: SacctRow, state: AttemptState, start_at: float | None, end_at: float | None) -> float | None:
    """Give the end of a start; where sacct lost it, it follows from the elapsed time."""
    if start_at is None or end_at is not None or state in slurm.LIVE_STATES or state is AttemptState.UNKNOWN:
        return end_at
    elapsed = float(row.elapsed) if row.elapsed.isdecimal() else slurm.seconds(row.elapsed)
    if elapsed is None:
        raise BadRowError(
            "ended without an end", f"State is {row.state}, End is {row.end!r}, and nothing tells how long"
        )
    return start_at + elapsed


def _settled(state: AttemptState, end_at: float | None) -> AttemptState:
    """Give the state of a start that is over although Slurm names what comes next (held again, resized)."""
    if end_at is None or state not in slurm.LIVE_STATES:
        return state
    return AttemptState.REQUEUED if state is AttemptState.PENDING else AttemptState.COMPLETED


def _has_ended(checked: CheckedRow) -> bool:
    return isinstance(checked, JobRow) and checked.run.end_at is not None


def _is_interactive(command: str) -> bool:
    # The pattern looks at every place of a long command; most hold neither word.
    return ("salloc" in command or "--pty" in command) and _INTERACTIVE.match(command) is not None


@lru_cache(maxsize=_CACHED_TEXTS)
def _exit(text: str) -> tuple[int | None, int | None]:
    """Read ``code:signal``."""
    found = _EXIT.match(text)
    return (int(found[1]), int(found[2])) if found else (None, None)


@lru_cache(maxsize=_CACHED_TEXTS)
def _single_node(node_list: str) -> str | None:
    return node_list if _SINGLE_NODE.match(node_list) else None


def _count(column: str, text: str) -> int | None:
    return whole(column, text) if text else None


@lru_cache(maxsize=_CACHED_TEXTS)
def _time_limit_seconds(text: str) -> float | None:
    """Read TimelimitRaw (minutes) or Timelimit; UNLIMITED and Partition_Limit are no limit of the job's own."""
    return whole("TimelimitRaw", text) * 60.0 if text.isdecimal() else slurm.seconds(text)
