"""Jobs in a CSV file that any site can write. docs/import.md explains the columns; ``--template`` prints an example.

One row is one start of a job. Without a job_id a row is known by its content and its occurrence number within the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path

from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Allocation, Attempt, AttemptState, AttemptSummary, Job, Record
from warehouse.importer import Imported, Importer, ImportOptions, Rejected
from warehouse.imports import _slurm_values as slurm
from warehouse.imports._csv import open_csv
from warehouse.imports._identity import Occurrences
from warehouse.imports._values import BadRowError, Clock, Lenient, cluster_name, number, short_text, whole

SOURCE = "jobs_csv"

REQUIRED = ("gpu_count", "start_at", "end_at")
COLUMNS: dict[str, str] = {
    "gpu_count": "number of GPUs held, 0 for a CPU job",
    "start_at": "when the job started; empty: it did not yet",
    "end_at": "when it ended; empty: it still runs",
    "job_id": "the scheduler's id; the same id with another start is another attempt of the same job",
    "cluster": "name of the cluster; default: `--cluster`",
    "name": "name of the job",
    "user": "who submitted it",
    "account": "whom it is charged to",
    "namespace": "Kubernetes namespace",
    "partition": "partition or queue",
    "qos": "quality of service",
    "gpu_model": "model of the GPUs, such as `A100`",
    "share_ratio": "share of each GPU that is held, above 0 up to 1; default 1",
    "node": "node, where it is a single one",
    "node_count": "number of nodes",
    "cpu_count": "number of CPUs held",
    "submit_at": "when it was submitted",
    "state": "`completed`, `failed`, `cancelled`, `timeout`, `out_of_memory`, `node_fail`, `preempted`, `requeued`, "
    "`running`, `pending` or `unknown`; Slurm's words too",
    "exit_code": "exit code",
    "driver_util_ratio": "mean share of time in which some kernel ran, as the driver says (NVML, nvidia-smi), 0 to 1",
    "engine_active_ratio": "mean share of time in which the engine was busy (GPM, DCGM), 0 to 1",
    "gpu_bound_ratio": "share of time in which kernels ran, from a tracer or profiler, 0 to 1",
    "sm_active_ratio": "mean share of SM-time with a resident warp, 0 to 1",
    "coverage_ratio": "share of the run that these means cover, 0 to 1; default 1, marked as assumed",
    "gpu_memory_used_bytes": "mean GPU memory in use, per GPU",
    "gpu_memory_peak_bytes": "highest GPU memory in use, per GPU",
    "power_watts": "mean power, per GPU",
    "energy_joules": "energy of all GPUs over the run",
    "requested_gpu_count": "number of GPUs asked for",
    "time_limit_seconds": "time limit",
    "array_job_id": "id of the job array",
    "array_task_index": "index within the job array",
    "command": "command line",
    "work_dir": "working directory",
    "image": "container image",
    "comment": "comment",
    "interactive": "`true` for a notebook or shell, `false` for a batch job",
}
"""All columns with their meaning; the first three are needed."""

_RATIOS = ("driver_util_ratio", "engine_active_ratio", "gpu_bound_ratio", "sm_active_ratio")
_AMOUNTS = ("gpu_memory_used_bytes", "gpu_memory_peak_bytes", "power_watts", "energy_joules")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a file; see ``Importer.read``."""
    clock, lenient, occurrences = Clock(options.zone), Lenient(options.max_field_characters), Occurrences()
    file = open_csv(path, REQUIRED, options.consumed)
    _refuse_unknown(path, file.header_line, file.names)
    for line, fields in file.rows:
        if isinstance(fields, BadRowError):
            yield Rejected(line, fields.reason, fields.detail)
            continue
        values = {name: fields.get(name, "").strip() for name in COLUMNS}
        values["cluster"] = values["cluster"] or options.cluster
        content = "\x1f".join((*values.values(), options.zone))
        try:
            job = _job(values, occurrences.name(content), clock, lenient)
            rows: tuple[Record, ...] = (job, *_held(values, job, clock, lenient))
        except BadRowError as bad:
            lenient.take_altered()
            yield Rejected(line, bad.reason, bad.detail)
            continue
        yield Imported(line, f"{job.job_key}:{values['start_at']}", content, rows, lenient.take_altered())


def _refuse_unknown(path: Path, line: int, names: tuple[str, ...]) -> None:
    for position, name in enumerate(names):
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.0)[0]
            raise BadInputError(str(path), f"line {line}", f"unknown column {name[:80]!r}; the nearest is {near}")
        if name in names[:position]:
            raise BadInputError(str(path), f"line {line}", f"column {name} comes twice")


def _job(values: Mapping[str, str], default_id: str, clock: Clock, lenient: Lenient) -> Job:
    cluster = cluster_name(values["cluster"])
    job_id = short_text("job_id", values["job_id"]) or default_id
    if "#" in job_id or not job_id.isprintable():
        raise BadRowError("bad job id", f"job_id is {job_id!r}; expected printable text without #")
    return Job(
        job_key=f"{cluster}/{job_id}#0",
        cluster=cluster,
        scheduler_job_id=job_id,
        source=SOURCE,
        array_job_id=short_text("array_job_id", values["array_job_id"]),
        array_task_index=_count("array_task_index", values),
        name=lenient.text("name", values["name"]),
        user=short_text("user", values["user"]),
        account=short_text("account", values["account"]),
        namespace=short_text("namespace", values["namespace"]),
        partition=short_text("partition", values["partition"]),
        qos=short_text("qos", values["qos"]),
        command=lenient.text("command", values["command"]),
        work_dir=lenient.text("work_dir", values["work_dir"]),
        image=lenient.text("image", values["image"]),
        comment=lenient.text("comment", values["comment"]),
        submit_at=_at("submit_at", values, clock),
        requested_gpu_count=lenient.measure("requested_gpu_count", values["requested_gpu_count"]),
        time_limit_seconds=lenient.measure("time_limit_seconds", values["time_limit_seconds"]),
        interactive=_truth(values["interactive"], lenient),
    )


def _held(values: Mapping[str, str], job: Job, clock: Clock, lenient: Lenient) -> Iterator[Record]:
    start_at, end_at = _at("start_at", values, clock), _at("end_at", values, clock)
    gpu_count, share_ratio = _gpu_count(values["gpu_count"]), _share_ratio(values["share_ratio"])
    if start_at is None:
        return
    if end_at is not None and end_at < start_at:
        raise BadRowError("ends before it starts", f"start_at is {values['start_at']}, end_at is {values['end_at']}")
    attempt_key = f"{job.job_key}:{int(start_at)}"
    node = short_text("node", values["node"])
    yield Attempt(
        attempt_key=attempt_key,
        job_key=job.job_key,
        state=_state(values["state"], has_ended=end_at is not None),
        raw_state=short_text("state", values["state"]),
        start_at=start_at,
        end_at=end_at,
        source=SOURCE,
        submit_at=job.submit_at,
        exit_code=_exit_code(values["exit_code"], lenient),
        node_count=_count("node_count", values),
        node_list=node,
        cpu_count=_count("cpu_count", values),
    )
    if gpu_count > 0:
        yield Allocation(
            allocation_key=f"{attempt_key}:0",
            attempt_key=attempt_key,
            gpu_count=gpu_count,
            start_at=start_at,
            end_at=end_at,
            source=SOURCE,
            certainty="accounting",
            share_ratio=share_ratio,
            node=node,
            gpu_model=short_text("gpu_model", values["gpu_model"]),
        )
    yield from _summary(values, attempt_key, lenient)


def _summary(values: Mapping[str, str], attempt_key: str, lenient: Lenient) -> Iterator[AttemptSummary]:
    """Give the means over the run, if there are any; without a coverage all of it is assumed."""
    means = {name: lenient.measure(name, values[name], highest=1.0) for name in _RATIOS}
    means |= {name: lenient.measure(name, values[name]) for name in _AMOUNTS}
    stated = lenient.measure("coverage_ratio", values["coverage_ratio"], highest=1.0)
    is_assumed = not values["coverage_ratio"]
    if all(mean is None for mean in means.values()) or (stated is None and not is_assumed):
        return
    coverage = 1.0 if stated is None else stated
    yield AttemptSummary(attempt_key, SOURCE, coverage, is_assumed, **means)


def _gpu_count(text: str) -> float:
    count = number("gpu_count", text)
    if count < 0:
        raise BadRowError("negative count", f"gpu_count is {text}; expected 0 or more")
    return count


def _share_ratio(text: str) -> float:
    share = number("share_ratio", text) if text else 1.0
    if not 0 < share <= 1:
        raise BadRowError("bad share", f"share_ratio is {text}; expected above 0 up to 1")
    return share


def _state(text: str, *, has_ended: bool) -> AttemptState:
    if not text:
        return AttemptState.UNKNOWN if has_ended else AttemptState.RUNNING
    word = text.lower()
    return AttemptState(word) if word in set(AttemptState) else slurm.state(text.upper())


def _exit_code(text: str, lenient: Lenient) -> int | None:
    code = lenient.measure("exit_code", text, lowest=-255, highest=2**32)
    return None if code is None else int(code)


def _truth(text: str, lenient: Lenient) -> bool | None:
    if text and text.lower() not in _TRUTH:
        lenient.note("interactive", "not understood, left out", text)
    return _TRUTH.get(text.lower())


def _at(column: str, values: Mapping[str, str], clock: Clock) -> float | None:
    return clock.at(column, values[column]) if values[column] else None


def _count(column: str, values: Mapping[str, str]) -> int | None:
    return whole(column, values[column]) if values[column] else None


TEMPLATE = """\
job_id,name,user,account,partition,gpu_model,gpu_count,node,submit_at,start_at,end_at,state,driver_util_ratio,command
1001,train,alice,ml,gpu,A100,4,gpu1,2026-11-02T08:00:00Z,2026-11-02T08:01:00Z,2026-11-02T12:01:00Z,completed,0.82,\
python train.py
1002,sweep,bob,bio,gpu,A100,1,gpu2,2026-11-02T09:00:00Z,2026-11-02T09:05:00Z,2026-11-02T09:35:00Z,failed,0.11,\
"python sweep.py --rates 0.1,0.2"
1003,notebook,bob,bio,gpu,A100,1,gpu2,2026-11-02T09:30:00Z,2026-11-02T09:40:00Z,,running,,
1004,prepare,alice,ml,cpu,,0,cpu7,2026-11-02T07:00:00Z,2026-11-02T07:00:30Z,2026-11-02T07:50:00Z,completed,,
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads jobs from a CSV file with documented columns, which any site can write.",
    example=TEMPLATE,
    read=read,
    gives="whatever rung the site writes, as means over whole jobs",
)
