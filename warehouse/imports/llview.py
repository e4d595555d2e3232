"""LLview: reports of jobs (``jobreport_….json``) and their tables of GPUs by the minute (``GPU_…_node.dat``).

A report tells a job with its means; a table tells the readings of its GPUs, which belong to the attempt of that job
that the store knows at that time. In a folder, which is read with its subfolders, reports come first. Other tables of
LLview (load, fabric, file systems) say nothing of GPUs. The cluster is named by ``--cluster``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Attempt, Device, Record
from warehouse.importer import Imported, Importer, ImportOptions, PastAttempt, Rejected, Sample
from warehouse.imports import _slurm_values as slurm
from warehouse.imports._cadence import Cadence
from warehouse.imports._llview_records import SOURCE, device_of, records_of
from warehouse.imports._measures import BLANK_WORDS, Measures
from warehouse.imports._prom_labels import Workload
from warehouse.imports._prom_workloads import Run, Workloads
from warehouse.imports._smi_fields import Head, put
from warehouse.imports._text import MAX_LINE_BYTES, numbered_lines, whole_file
from warehouse.imports._values import BadRowError, Clock, Lenient, cluster_name
from warehouse.settings import IMPORT_LONE_CADENCE_SECONDS, IMPORT_LONGEST_CADENCE_SECONDS

MOST_REPORT_BYTES: Final = 64 * MAX_LINE_BYTES
"""A report of 10,000 GPUs is a few megabytes."""

_NEEDED: Final = ("jobid", "ts", "nodeid", "gpu_usage")
_METRICS: Final = {
    "gpu_usage": (Head("gpu_usage", "%"), "driver_util_ratio"),
    "gpu_memu": (Head("gpu_memu", "gib"), "memory_used_bytes"),
    "gpu_pu": (Head("gpu_pu", "w"), "power_watts"),
    "gpu_temp": (Head("gpu_temp", "c"), "temperature_celsius"),
    "gpu_sclk": (Head("gpu_sclk", "mhz"), "sm_clock_hertz"),
    "gpu_clk": (Head("gpu_clk", "mhz"), "memory_clock_hertz"),
}
"""Columns of a table of GPUs, with their units as the reports show them (memory in GiB of 1024³ bytes)."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a table: what one GPU did."""

    line: int
    text: str
    job: str
    at: float
    device: str
    node: str
    index: int
    measures: Measures


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of a report, a table, or a folder of them; see ``Importer.read``."""
    told: list[PastAttempt] = []

    def past_attempts(cluster: str, job_ids: Sequence[str]) -> tuple[PastAttempt, ...]:
        """Give what the store knows, and what reports of this very folder told."""
        keys = {f"{cluster}/{job_id}#0" for job_id in job_ids}
        return (*options.past_attempts(cluster, job_ids), *(one for one in told if one.job_key in keys))

    workloads = Workloads(replace(options, past_attempts=past_attempts), cluster_name(options.cluster), SOURCE)
    if not path.is_dir():
        yield from _file(path, options, workloads)
        return
    found = [entry for entry in path.rglob("*") if entry.is_file()]
    files = sorted(found, key=lambda entry: (not _is_report(entry), entry))
    if not files:
        raise BadInputError(str(path), None, "is an empty folder; expected jobreport_….json and GPU_….dat")
    for number, file in enumerate(files, 1):
        try:
            for record in _file(file, options, workloads):
                told += _attempts(record)
                yield record
        except BadInputError as error:
            yield Rejected(number, "no report or table of GPUs", str(error))


def _attempts(record: Imported | Rejected) -> list[PastAttempt]:
    """Give the attempts that a report told of."""
    rows = record.rows if isinstance(record, Imported) and record.record_key.endswith(":report") else ()
    return [
        PastAttempt(row.job_key, row.attempt_key, row.state, row.submit_at, row.start_at, row.end_at)
        for row in rows
        if isinstance(row, Attempt)
    ]


def _is_report(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".json")


def _file(path: Path, options: ImportOptions, workloads: Workloads) -> Iterator[Imported | Rejected]:
    lines = numbered_lines(path, options.consumed)
    for number, text in lines:
        if text.strip():
            if text.lstrip().startswith("{"):
                yield from _report(path, options)
            else:
                yield from _table(_columns(path, number, text), lines, options, workloads)
            return
    raise BadInputError(str(path), None, "holds no text; expected a report or a table of GPUs of LLview")


# ----------------------------------------------------------------------------------------------------------- reports


def _report(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    body = whole_file(path, options.consumed, MOST_REPORT_BYTES)
    try:
        report = json.loads(body)
    except (ValueError, RecursionError) as cause:
        raise BadInputError(str(path), None, f"is no JSON ({cause}); expected a report of LLview") from cause
    if not isinstance(report, dict) or not isinstance(report.get("job"), dict):
        raise BadInputError(str(path), "job", "expected an object with job, gpu and rc: a report of LLview")
    lenient = Lenient(options.max_field_characters)
    try:
        job, rows = records_of(report, options, lenient)
    except BadRowError as bad:
        yield Rejected(1, bad.reason, bad.detail)
        return
    content = json.dumps({name: report.get(name) for name in ("job", "gpu", "rc")}, sort_keys=True)
    yield Imported(1, f"{job.job_key}:report", f"{content}\x1f{options.zone}", rows, lenient.take_altered())


# ------------------------------------------------------------------------------------------------------------ tables


def _columns(path: Path, line: int, text: str) -> dict[str, int]:
    names = text.split()
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        detail = f"expected the header of a table of GPUs with {', '.join(_NEEDED)}; found no {', '.join(missing)}"
        raise BadInputError(str(path), f"line {line}", detail)
    if len(set(names)) < len(names):
        raise BadInputError(str(path), f"line {line}", "a column comes twice in the header of the table")
    return {name: at for at, name in enumerate(names)}


def _table(
    columns: Mapping[str, int],
    lines: Iterator[tuple[int, str]],
    options: ImportOptions,
    workloads: Workloads,
) -> Iterator[Imported | Rejected]:
    """Read a table whole (it is one job's) and give a record for each of its lines."""
    clock = Clock("UTC")
    by_device: dict[str, list[_Row]] = {}
    broken: BadInputError | None = None
    try:
        for line, text in lines:
            if not text.strip():
                continue
            try:
                row = _row(line, text.split(), columns, clock)
            except BadRowError as bad:
                yield Rejected(line, bad.reason, bad.detail)
                continue
            by_device.setdefault(row.device, []).append(row)
    except BadInputError as cause:
        broken = cause
    for device in sorted(by_device):
        yield from _readings(sorted(by_device[device], key=lambda row: row.at), options, workloads)
    if broken is not None:
        raise broken


def _row(line: int, fields: Sequence[str], columns: Mapping[str, int], clock: Clock) -> _Row:
    if len(fields) != len(columns):
        reason = "too few fields" if len(fields) < len(columns) else "too many fields"
        raise BadRowError(reason, f"{len(fields)} fields, the header has {len(columns)}")
    device, node, index = device_of(fields[columns["nodeid"]])
    measures = Measures()
    for name, (head, column) in _METRICS.items():
        text = fields[columns[name]] if name in columns else ""
        if text.lower() not in BLANK_WORDS:
            put(measures, head, column, text, decimal_comma=False)
    job = slurm.job_id("jobid", fields[columns["jobid"]]).shown
    return _Row(line, " ".join(fields), job, clock.at("ts", fields[columns["ts"]]), device, node, index, measures)


def _readings(rows: Sequence[_Row], options: ImportOptions, workloads: Workloads) -> Iterator[Imported]:
    cluster, settings = cluster_name(options.cluster), options.settings
    cadence = Cadence(settings[IMPORT_LONE_CADENCE_SECONDS], settings[IMPORT_LONGEST_CADENCE_SECONDS])
    last = len(rows) - 1
    runs: dict[str, Run] = {}
    until = rows[0].at
    for number, row in enumerate(rows):
        length = cadence.of(None if number == last else rows[number + 1].at - row.at)
        until = max(until, row.at + length)
        run = workloads.run_of(Workload("slurm", row.job), row.at, {})
        run.sees(row.device, row.at, row.at + length)
        runs.setdefault(run.attempt_key, run)
        told: list[Record] = []
        if number == last:
            told.append(Device(row.device, cluster, row.node, rows[0].at, until, device_index=row.index))
            for one in runs.values():
                told += workloads.rows(one, row.device, row.node, None, 1.0)
        sample = Sample(
            cluster=cluster,
            node=row.node,
            device_uuid=row.device,
            sampled_at=row.at,
            cadence_seconds=length,
            source=SOURCE,
            metrics=row.measures.metrics,
            attempt_key=run.attempt_key,
            attribution="scheduler",
        )
        key = f"{cluster}/{row.device}@{row.at:.3f}:{row.job}"
        yield Imported(row.line, key, row.text, tuple(told), tuple(row.measures.altered), (sample,))


EXAMPLE = """\
jobid              ts       nodeid  gpu_usage gpu_memu     gpu_pu   gpu_temp
501        1790000000      gpu1_00     90.000   12.000    280.000     60.000
501        1790000000      gpu1_01      0.000    0.500     55.000     40.000
501        1790000060      gpu1_00     95.000   12.000    285.000     61.000
501        1790000060      gpu1_01      0.000    0.500     55.000     40.000
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads LLview: reports of jobs as JSON, and their tables of GPUs by the minute.",
    example=EXAMPLE,
    read=read,
    gives="driver utilization by the minute from tables, means over a job from reports, with job, user and account",
)
