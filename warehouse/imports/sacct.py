"""Slurm's accounting as ``sacct -P`` prints it. docs/import.md says which columns to ask for.

Read three times: which job ids come more than once, what their starts are (so that keys do not depend on the order of
rows, see ``_sacct_history``), and then the rows themselves. An allocation is one row per start and GPU model, without
devices, for accounting knows only counts. AllocGRES, the column before AllocTRES, is taken to count the whole job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Allocation, Attempt, AttemptState, Job, Record, Step
from warehouse.importer import Imported, Importer, ImportOptions, PastAttempt, Rejected
from warehouse.imports import _slurm_values as slurm
from warehouse.imports._sacct_history import LOST_STATES, History, Place, Run, new_place
from warehouse.imports._sacct_rows import SacctRow, sacct_rows
from warehouse.imports._values import BadRowError, Clock, Lenient, cluster_name, short_text, whole

SOURCE = "sacct"
_BLOCK_ROWS = 4096
"""Rows that are placed together: one question to the store for all their jobs."""

_NEVER_STARTED = "None assigned"
"""NodeList of a job that was cancelled while it waited."""

_EXIT = re.compile(r"([0-9]{1,9}):([0-9]{1,9})\Z", re.ASCII)
_INTERACTIVE = re.compile(r"(?:\S*/)?salloc\b|.*\s--pty\b")
_SINGLE_NODE = re.compile(r"[^\[\],\s]{1,200}\Z")

_Number = TypeVar("_Number", int | None, float | None)
_Key: TypeAlias = tuple[str, str]
"""Cluster and raw job id."""


@dataclass(frozen=True, slots=True)
class _JobRow:
    """A checked row of a job: one start of it, or its waiting."""

    line: int
    row: SacctRow
    key: _Key
    shown: slurm.JobId
    state: AttemptState
    run: Run
    gpus: tuple[slurm.Gpus, ...]


@dataclass(frozen=True, slots=True)
class _StepRow:
    line: int
    row: SacctRow
    key: _Key
    step_id: str
    db_index: str | None
    start_at: float | None
    end_at: float | None


@dataclass(frozen=True, slots=True)
class _WaitingRow:
    """The rest of a job array that waits on one row: not jobs yet."""

    line: int
    row: SacctRow
    key: _Key


_Checked: TypeAlias = _JobRow | _StepRow | _WaitingRow


class _Reader:
    """Turns rows into checked ones, and checked ones into records."""

    def __init__(self, options: ImportOptions) -> None:
        self._options = options
        self._clock = Clock(options.zone)
        self._lenient = Lenient(options.max_field_characters)

    def check(self, line: int, row: SacctRow) -> _Checked:
        """Read what decides about a row.

        Raises:
            BadRowError: the row cannot be used.

        """
        shown = slurm.job_id("JobID", row.job_id)
        raw = slurm.job_id("JobIDRaw", row.job_id_raw) if row.job_id_raw else shown
        key = (cluster_name(row.cluster or self._options.cluster), raw.shown)
        if shown.is_array_rest:
            return _WaitingRow(line, row, key)
        start_at, end_at = self._at("Start", row.start), self._at("End", row.end)
        if start_at is not None and end_at is not None and end_at < start_at:
            raise BadRowError("ends before it starts", f"Start is {row.start}, End is {row.end}")
        db_index = row.db_index if row.db_index not in slurm.NOTHING else None
        step = raw.step or shown.step
        if step is not None:
            return _StepRow(line, row, key, step, db_index, start_at, end_at)
        state = slurm.state(row.state)
        if (state is AttemptState.PENDING and end_at is None) or row.node_list == _NEVER_STARTED:
            start_at = None
        end_at = _known_end(row, state, start_at, end_at)
        state = _settled(state, end_at)
        run = Run(self._at("Submit", row.submit), start_at, end_at, state in LOST_STATES, db_index)
        gpus = slurm.gpus("AllocTRES", row.allocated) or slurm.gpus_of_gres("AllocGRES", row.allocated_gres)
        return _JobRow(line, row, key, shown, state, run, gpus)

    def record(self, checked: _Checked, history: History | None) -> Imported:
        """Turn a checked row into a record.

        Raises:
            BadRowError: the row cannot be used.

        """
        cluster, raw = checked.key
        job = f"{cluster}/{raw}"
        if isinstance(checked, _WaitingRow):
            return self._imported(checked, f"{job}:waiting", ())
        if isinstance(checked, _StepRow):
            attempt_key = _attempt_of_step(checked, job, history)
            return self._imported(checked, f"{attempt_key}.{checked.step_id}", (self._step(checked, attempt_key),))
        place = new_place(job, checked.run) if history is None else history.place(checked.run)
        run = checked.run
        start = run.db_index or run.start_at or run.submit_at or ""
        return self._imported(checked, f"{job}:{start}", tuple(self._rows(checked, place)))

    def _at(self, column: str, text: str) -> float | None:
        return None if text in slurm.NOTHING else self._clock.at(column, text)

    def _imported(self, checked: _Checked, record_key: str, rows: tuple[Record, ...]) -> Imported:
        # Elapsed grows while a job runs and decides nothing, unless the end is told by it alone.
        row = checked.row if checked.row.end in slurm.NOTHING and _has_ended(checked) else checked.row[:-1]
        content = "\x1f".join((*row, self._options.zone))
        return Imported(checked.line, record_key, content, rows, self._lenient.take_altered())

    def _rows(self, checked: _JobRow, place: Place) -> Iterator[Record]:
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

    def _job(self, checked: _JobRow, job_key: str) -> Job:
        row, shown = checked.row, checked.shown
        asked = slurm.resources(row.requested)
        cpus, nodes = _count("ReqTRES cpu", asked.get("cpu", "")), _count("ReqTRES node", asked.get("node", ""))
        memory = slurm.size_bytes(asked.get("mem") or row.requested_memory, nodes=nodes, cpus=cpus)
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
            requested_gpu_count=_requested_gpus(row.requested),
            requested_cpu_count=cpus,
            requested_memory_bytes=memory,
            requested_node_count=nodes,
            time_limit_seconds=_time_limit_seconds(row.time_limit),
            interactive=True if command and _INTERACTIVE.match(command) else None,
        )

    def _attempt(self, checked: _JobRow, place: Place) -> Attempt:
        row, run = checked.row, checked.run
        ended = _EXIT.match(row.exit_code)
        return Attempt(
            attempt_key=place.attempt_key,
            job_key=place.job_key,
            state=checked.state,
            raw_state=short_text("State", row.state),
            start_at=run.start_at,
            end_at=run.end_at,
            source=SOURCE,
            submit_at=run.submit_at,
            exit_code=int(ended[1]) if ended else None,
            exit_signal=int(ended[2]) if ended else None,
            node_count=_count("NNodes", row.node_count),
            node_list=self._lenient.text("NodeList", row.node_list),
            cpu_count=_count("NCPUS", row.cpu_count),
        )

    def _step(self, checked: _StepRow, attempt_key: str) -> Step:
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


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a file; see ``Importer.read``."""
    reader = _Reader(options)
    runs = _runs(path, reader, _ids_to_sort_out(path))
    histories: dict[_Key, History] = {}
    block: list[_Checked] = []
    try:
        for line, row in sacct_rows(path, options.consumed):
            try:
                block.append(_checked(reader, line, row))
            except BadRowError as bad:
                yield Rejected(line, bad.reason, bad.detail)
            if len(block) >= _BLOCK_ROWS:
                yield from _placed(block, reader, runs, histories, options)
                block = []
    except BadInputError:
        yield from _placed(block, reader, runs, histories, options)
        raise
    yield from _placed(block, reader, runs, histories, options)


def _checked(reader: _Reader, line: int, row: SacctRow | BadRowError) -> _Checked:
    if isinstance(row, BadRowError):
        raise row
    return reader.check(line, row)


def _ids_to_sort_out(path: Path) -> set[str]:
    """Find the raw job ids with several rows, or with steps that do not say which start they belong to."""
    seen: set[str] = set()
    several: set[str] = set()
    for row in _readable_rows(path):
        raw, dot, _step = (row.job_id_raw or row.job_id).partition(".")
        if dot:
            if not row.db_index:
                several.add(raw)
        elif raw in seen:
            several.add(raw)
        elif "[" not in row.job_id:
            seen.add(raw)
    return several


def _runs(path: Path, reader: _Reader, wanted: set[str]) -> dict[_Key, list[Run]]:
    """Collect all starts of the wanted ids."""
    runs: dict[_Key, list[Run]] = {}
    if not wanted:
        return runs
    for row in _readable_rows(path):
        if (row.job_id_raw or row.job_id) in wanted:
            try:
                checked = reader.check(0, row)
            except BadRowError:
                continue
            if isinstance(checked, _JobRow):
                runs.setdefault(checked.key, []).append(checked.run)
    return runs


def _readable_rows(path: Path) -> Iterator[SacctRow]:
    """Give the rows without the bad ones; what is wrong with the file is said when it is read for its records."""
    try:
        for _line, row in sacct_rows(path, lambda _bytes: None):
            if isinstance(row, SacctRow):
                yield row
    except BadInputError:
        return


def _placed(
    block: Sequence[_Checked],
    reader: _Reader,
    runs: dict[_Key, list[Run]],
    histories: dict[_Key, History],
    options: ImportOptions,
) -> Iterator[Imported | Rejected]:
    """Turn a block of checked rows into records, with the keys that file and store together give them."""
    past = _past(block, options)
    for checked in block:
        key = checked.key
        history = histories.get(key)
        if history is None and (key in runs or key in past):
            own = runs.get(key) or ([checked.run] if isinstance(checked, _JobRow) else [])
            history = History("/".join(key), own, past.get(key, ()), options.requeue_window_seconds)
            if key in runs:
                histories[key] = history
        try:
            yield reader.record(checked, history)
        except BadRowError as bad:
            yield Rejected(checked.line, bad.reason, bad.detail)


def _past(block: Sequence[_Checked], options: ImportOptions) -> dict[_Key, list[PastAttempt]]:
    ids: dict[str, dict[str, None]] = {}
    for checked in block:
        ids.setdefault(checked.key[0], {})[checked.key[1]] = None
    past: dict[_Key, list[PastAttempt]] = {}
    for cluster, raw_ids in ids.items():
        for attempt in options.past_attempts(cluster, list(raw_ids)):
            raw = attempt.job_key.removeprefix(f"{cluster}/").rpartition("#")[0]
            past.setdefault((cluster, raw), []).append(attempt)
    return past


def _attempt_of_step(checked: _StepRow, job: str, history: History | None) -> str:
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


def _has_ended(checked: _Checked) -> bool:
    return isinstance(checked, _JobRow) and checked.run.end_at is not None


def _single_node(node_list: str) -> str | None:
    return node_list if _SINGLE_NODE.match(node_list) else None


def _count(column: str, text: str) -> int | None:
    return whole(column, text) if text else None


def _requested_gpus(requested: str) -> float | None:
    return float(sum(held.count for held in slurm.gpus("ReqTRES", requested))) if requested else None


def _time_limit_seconds(text: str) -> float | None:
    """Read TimelimitRaw (minutes) or Timelimit; UNLIMITED and Partition_Limit are no limit of the job's own."""
    return whole("TimelimitRaw", text) * 60.0 if text.isdecimal() else slurm.seconds(text)


EXAMPLE = """\
JobID|JobIDRaw|JobName|User|Account|Partition|QOS|State|ExitCode|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS\
|NodeList|ReqTRES|AllocTRES|MaxRSS|TotalCPU|Comment|SubmitLine|WorkDir|Cluster|DBIndex
101|101|train|alice|ml|gpu|normal|COMPLETED|0:0|1790000000|1790000010|1790003610|3600|1440|1|8|gpu1\
|billing=8,cpu=8,gres/gpu=2,mem=64G,node=1|billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1||01:10:00|\
|sbatch train.sh|/home/alice|example|11
101.batch|101.batch|batch||ml|||COMPLETED|0:0|1790000010|1790000010|1790003610|3600||1|8|gpu1||cpu=8,mem=64G,node=1\
|93168K|01:10:00||||example|11
102_1|103|sweep|bob|bio|gpu|normal|RUNNING|0:0|1790000100|1790000200|Unknown|500|60|1|2|gpu2|cpu=2,gres/gpu=1,node=1\
|cpu=2,gres/gpu:a100=1,gres/gpu=1,node=1||00:00:00||sbatch --array=1-3 sweep.sh|/home/bob|example|12
102_[2-3]|102|sweep|bob|bio|gpu|normal|PENDING|0:0|1790000100|Unknown|Unknown|0|60|1|2|None assigned\
|cpu=2,gres/gpu=1,node=1|||00:00:00||sbatch --array=1-3 sweep.sh|/home/bob|example|13
104|104|long|alice|ml|gpu|normal|REQUEUED|0:0|1790000300|1790000310|1790000400|90|60|2|4|gpu[1-2]\
|cpu=4,gres/gpu=4,node=2|cpu=4,gres/gpu:a100=4,gres/gpu=4,node=2||00:03:00||sbatch long.sh|/home/alice|example|14
104|104|long|alice|ml|gpu|normal|COMPLETED|0:0|1790000400|1790000500|1790000600|100|60|2|4|gpu[1-2]\
|cpu=4,gres/gpu=4,node=2|cpu=4,gres/gpu:a100=4,gres/gpu=4,node=2||00:03:20||sbatch long.sh|/home/alice|example|15
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads Slurm's accounting as `sacct -P` prints it, with steps, arrays and requeued jobs.",
    example=EXAMPLE,
    read=read,
)
