"""Jobs of ClusterCockpit with the means of their metrics: its job table written as CSV, columns found by name.

The card of a job is not in the table; the subcluster, which names it at most sites (``a40``, ``a100``), is taken.

Unit of ``footprint_acc_mem_used_avg``: sites write different ones, and the table does not say which. In data of a
university centre an idle A100 shows 590.125, a job with two 1180.25, eight on a node 4721.0, and so do three nodes with
eight each: MiB, summed over the cards of a node, mean over nodes. So a value per card is this number times nodes over
cards; where that is at most 288, the GB of the largest card, it could be GB as well, and is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from warehouse.contract.model import Allocation, Attempt, AttemptState, AttemptSummary, Job, Record
from warehouse.contract.units import BYTES_PER_MIB
from warehouse.importer import Imported, Importer, ImportOptions, Rejected
from warehouse.imports import _slurm_values as slurm
from warehouse.imports._csv import open_csv
from warehouse.imports._values import BadRowError, Clock, Lenient, cluster_name, short_text, whole

SOURCE = "clustercockpit"
LARGEST_CARD_GB = 288.0
"""Memory of the largest card on the market in 2026 (NVIDIA B300, AMD MI355X)."""

_NEEDED = ("job_id", "start_time", "duration", "num_acc", "job_state")
_USED = (
    *_NEEDED,
    "cluster",
    "subcluster",
    "submit_time",
    "hpc_user",
    "project",
    "cluster_partition",
    "array_job_id",
    "walltime",
    "num_nodes",
    "num_hwthreads",
    "job_name",
    "accelerators",
    "footprint_acc_mem_used_avg",
    "footprint_acc_utilization_avg",
    "footprint_cpu_load_avg",
)


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a file; see ``Importer.read``."""
    clock, lenient = Clock(options.zone), Lenient(options.max_field_characters)
    file = open_csv(path, _NEEDED, options.consumed)
    for line, fields in file.rows:
        if isinstance(fields, BadRowError):
            yield Rejected(line, fields.reason, fields.detail)
            continue
        values = {name: fields.get(name, "") for name in _USED}
        values["cluster"] = values["cluster"] or options.cluster
        try:
            job = _job(values, clock, lenient)
            attempt = _attempt(values, job, clock, lenient)
            held = _allocation(values, attempt)
            summary = _summary(values, attempt.attempt_key, held, lenient)
        except BadRowError as bad:
            lenient.take_altered()
            yield Rejected(line, bad.reason, bad.detail)
            continue
        rows: list[Record | None] = [job, attempt, held, summary]
        content = "\x1f".join((*values.values(), options.zone))
        found = tuple(row for row in rows if row is not None)
        yield Imported(line, attempt.attempt_key, content, found, lenient.take_altered())


def _attempt(values: Mapping[str, str], job: Job, clock: Clock, lenient: Lenient) -> Attempt:
    if values["start_time"] in slurm.NOTHING:
        raise BadRowError("no start", f"start_time is {values['start_time']!r}; expected seconds since the epoch")
    start_at = clock.at("start_time", values["start_time"])
    state = slurm.state(values["job_state"].upper())
    is_running = state in slurm.LIVE_STATES
    return Attempt(
        attempt_key=f"{job.job_key}:{int(start_at)}",
        job_key=job.job_key,
        state=AttemptState.RUNNING if is_running else state,
        raw_state=short_text("job_state", values["job_state"]),
        start_at=start_at,
        end_at=None if is_running else start_at + whole("duration", values["duration"]),
        source=SOURCE,
        submit_at=job.submit_at,
        node_count=_count("num_nodes", values),
        node_list=lenient.text("accelerators", ",".join(_nodes(values["accelerators"], lenient))),
        cpu_count=_count("num_hwthreads", values),
    )


def _allocation(values: Mapping[str, str], attempt: Attempt) -> Allocation | None:
    gpus = whole("num_acc", values["num_acc"])
    if not gpus or attempt.start_at is None:
        return None
    return Allocation(
        allocation_key=f"{attempt.attempt_key}:0",
        attempt_key=attempt.attempt_key,
        gpu_count=float(gpus),
        start_at=attempt.start_at,
        end_at=attempt.end_at,
        source=SOURCE,
        certainty="accounting",
        node=attempt.node_list if attempt.node_list and "," not in attempt.node_list else None,
        gpu_model=short_text("subcluster", values["subcluster"]),
    )


def _job(values: Mapping[str, str], clock: Clock, lenient: Lenient) -> Job:
    cluster = cluster_name(values["cluster"])
    job_id = str(whole("job_id", values["job_id"]))
    submit, array, walltime = values["submit_time"], values["array_job_id"], values["walltime"]
    return Job(
        job_key=f"{cluster}/{job_id}#0",
        cluster=cluster,
        scheduler_job_id=job_id,
        source=SOURCE,
        array_job_id=None if array in slurm.NOTHING else short_text("array_job_id", array),
        name=lenient.text("job_name", values["job_name"]),
        user=short_text("hpc_user", values["hpc_user"]),
        account=short_text("project", values["project"]),
        partition=short_text("cluster_partition", values["cluster_partition"]),
        submit_at=None if submit in slurm.NOTHING else clock.at("submit_time", submit),
        time_limit_seconds=None if walltime in slurm.NOTHING else float(whole("walltime", walltime)),
    )


def _summary(
    values: Mapping[str, str], attempt_key: str, held: Allocation | None, lenient: Lenient
) -> AttemptSummary | None:
    """Give the means over the job; the site does not say how much of it they cover, so all of it is assumed."""
    driver_percent = lenient.measure(
        "footprint_acc_utilization_avg", values["footprint_acc_utilization_avg"], highest=100.0
    )
    cpu_load = lenient.measure("footprint_cpu_load_avg", values["footprint_cpu_load_avg"])
    memory = None if held is None else _memory_bytes(values, held.gpu_count, lenient)
    if driver_percent is None and cpu_load is None and memory is None:
        return None
    return AttemptSummary(
        attempt_key=attempt_key,
        source=SOURCE,
        coverage_ratio=1.0,
        coverage_assumed=True,
        driver_util_ratio=None if driver_percent is None else driver_percent / 100.0,
        gpu_memory_used_bytes=memory,
        cpu_load_count=cpu_load,
    )


def _memory_bytes(values: Mapping[str, str], gpu_count: float, lenient: Lenient) -> float | None:
    """Give the mean memory per card; see the module about the unit."""
    column = "footprint_acc_mem_used_avg"
    per_node = lenient.measure(column, values[column])
    nodes = _count("num_nodes", values)
    if per_node is None or not nodes:
        return None
    per_card = per_node * nodes / gpu_count
    if 0 < per_card <= LARGEST_CARD_GB:
        lenient.note(column, "MiB or GB, left out", values[column])
        return None
    if per_card > LARGEST_CARD_GB * 1024:
        lenient.note(column, "impossible value, left out", f"{per_card:g} MiB on a card")
        return None
    return per_card * BYTES_PER_MIB


def _nodes(accelerators: str, lenient: Lenient) -> tuple[str, ...]:
    if not accelerators:
        return ()
    try:
        return tuple(str(entry["hostname"]) for entry in json.loads(accelerators))
    except (ValueError, TypeError, KeyError, RecursionError):
        lenient.note("accelerators", "not understood, left out", accelerators)
        return ()


def _count(column: str, values: Mapping[str, str]) -> int | None:
    return whole(column, values[column]) if values[column] else None


EXAMPLE = """\
job_id,cluster,subcluster,submit_time,start_time,hpc_user,project,cluster_partition,array_job_id,duration,walltime,\
job_state,num_nodes,num_hwthreads,num_acc,job_name,accelerators,footprint_acc_mem_used_avg,\
footprint_acc_utilization_avg,footprint_cpu_load_avg
501,example,a40,0,1790000000,alice,ml,a40,0,3600,86400,completed,1,16,1,train,\
"[{""hostname"": ""gpu1"", ""accelerators"": [""00000000:E1:00.0""]}]",12000.5,93.5,3.2
502,example,a100,0,1790000000,bob,bio,a100,0,600,86400,failed,1,32,2,explore,\
"[{""hostname"": ""gpu2"", ""accelerators"": [""00000000:01:00.0"", ""00000000:41:00.0""]}]",1180.25,0.0,1.1
503,example,main,0,1790000000,bob,bio,cpu,0,600,86400,completed,1,72,0,prepare,\
"[{""hostname"": ""cpu1"", ""accelerators"": null}]",,,71.5
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads the job table of ClusterCockpit as CSV, with the means of its metrics.",
    example=EXAMPLE,
    read=read,
    gives="driver utilization and memory as means over whole jobs, with job, user and project",
)
