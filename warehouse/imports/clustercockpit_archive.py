"""ClusterCockpit's job archive: a folder for each job with ``meta.json`` and ``data.json``, packed or not.

Format: ClusterCockpit/cc-specifications, ``datastructures/job-meta.schema.json`` and ``job-data.schema.json``. The path
is an archive, a job's folder, or a ``meta.json``. One job is one record. Its series per accelerator
(``acc_utilization``, ``acc_mem_used``, ``acc_power``) become readings of devices, which are named by node and
accelerator. Keys are those of the importer ``clustercockpit``: job table and archive of one site tell of the same jobs.

Memory is read as binary units (MiB for prefix M), as its collector divides what NVML says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from warehouse.contract.errors import BadInputError
from warehouse.contract.metrics import BY_NAME
from warehouse.contract.model import Allocation, Attempt, AttemptState, AttemptSummary, Device, Job, Record
from warehouse.importer import Altered, Imported, Importer, ImportOptions, Rejected, Sample
from warehouse.imports import _slurm_values as slurm
from warehouse.imports._measures import UNITS, Measures
from warehouse.imports._text import whole_file
from warehouse.imports._values import LATEST_AT, BadRowError, Lenient, cluster_name, short_text

NAME: Final = "clustercockpit_archive"
SOURCE: Final = "clustercockpit"
META, DATA = ("meta.json", "meta.json.gz"), ("data.json", "data.json.gz")
MOST_BYTES: Final = 1 << 30
METRICS: Final = {
    "acc_utilization": ("driver_util_ratio", "%"),
    "acc_mem_used": ("memory_used_bytes", "mib"),
    "acc_power": ("power_watts", "w"),
}
"""Metrics of accelerators, what they become, and their unit where the file says none."""

_MOST_DEVICES: Final = 100_000
_MOST_ALTERED: Final = 1000


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Stream the records of an archive; see ``Importer.read``. A broken job costs only itself."""
    if not path.is_dir():
        yield _job_record(path, 1, options)
        return
    found = sorted(entry for entry in path.rglob("meta.json*") if entry.name in META and entry.is_file())
    if not found:
        raise BadInputError(
            str(path), None, "is a folder without jobs; expected meta.json, one in a folder for each job"
        )
    for number, meta in enumerate(found, 1):
        try:
            yield _job_record(meta, number, options)
        except BadInputError as error:
            yield Rejected(number, "no job of an archive", str(error))


def _job_record(path: Path, number: int, options: ImportOptions) -> Imported | Rejected:
    body = whole_file(path, options.consumed, MOST_BYTES)
    meta = _object(path, body)
    data_path = next((path.parent / name for name in DATA if (path.parent / name).is_file()), None)
    series = b"" if data_path is None or path.name not in META else whole_file(data_path, options.consumed, MOST_BYTES)
    lenient, altered = Lenient(options.max_field_characters), list[Altered]()
    try:
        attempt, rows = _rows(meta, options, lenient)
        data = _object(data_path, series) if data_path is not None and series else meta.get("data", {})
        samples = _samples(data if isinstance(data, dict) else {}, attempt, altered)
    except BadRowError as bad:
        return Rejected(number, bad.reason, f"{path}: {bad.detail}")
    rows += _devices(samples)
    digest = blake2b(body, digest_size=16)
    digest.update(series)
    altered += lenient.take_altered()
    key = f"{attempt.attempt_key}:archive"
    return Imported(number, key, digest.hexdigest(), tuple(rows), tuple(altered[:_MOST_ALTERED]), tuple(samples))


def _object(path: Path, body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as cause:
        raise BadInputError(
            str(path), None, f"is no JSON ({cause}); expected a job of ClusterCockpit's archive"
        ) from cause
    if not isinstance(document, dict):
        raise BadInputError(str(path), None, "expected an object: a job of ClusterCockpit's archive")
    return document


def _rows(meta: Mapping[str, Any], options: ImportOptions, lenient: Lenient) -> tuple[Attempt, list[Record]]:
    cluster = cluster_name(str(meta.get("cluster") or options.cluster))
    number = slurm.job_id("jobId", str(meta.get("jobId", ""))).shown
    start = _amount(meta, "startTime")
    if start is None or not 0 < start <= LATEST_AT:
        raise BadRowError("no start", f"startTime is {meta.get('startTime')!r}; expected seconds since the epoch")
    words = meta.get("metaData") if isinstance(meta.get("metaData"), dict) else {}
    state = slurm.state(str(meta.get("jobState", "")).upper()) if meta.get("jobState") else AttemptState.UNKNOWN
    is_running = state in slurm.LIVE_STATES
    duration = _amount(meta, "duration")
    if duration is None and not is_running:
        raise BadRowError("no duration", f"duration is {meta.get('duration')!r}; expected seconds")
    job = Job(
        job_key=f"{cluster}/{number}#0",
        cluster=cluster,
        scheduler_job_id=number,
        source=SOURCE,
        array_job_id=str(meta["arrayJobId"]) if meta.get("arrayJobId") else None,
        name=lenient.text("jobName", str((words or {}).get("jobName") or "")),
        user=short_text("user", str(meta.get("user") or "")),
        account=short_text("project", str(meta.get("project") or "")),
        partition=short_text("partition", str(meta.get("partition") or "")),
        time_limit_seconds=_amount(meta, "walltime"),
    )
    nodes = [str(part.get("hostname")) for part in _parts(meta.get("resources")) if part.get("hostname")]
    attempt = Attempt(
        attempt_key=f"{job.job_key}:{int(start)}",
        job_key=job.job_key,
        state=AttemptState.RUNNING if is_running else state,
        raw_state=short_text("jobState", str(meta.get("jobState") or "")),
        start_at=start,
        end_at=None if is_running or duration is None else start + duration,
        source=SOURCE,
        node_count=int(_amount(meta, "numNodes") or len(nodes)) or None,
        node_list=lenient.text("hostnames", ",".join(nodes)),
        cpu_count=int(_amount(meta, "numHwthreads") or 0) or None,
    )
    rows: list[Record] = [job, attempt, *_held(meta, attempt)]
    if (summary := _summary(meta, attempt, lenient)) is not None:
        rows.append(summary)
    return attempt, rows


def _held(meta: Mapping[str, Any], attempt: Attempt) -> list[Allocation]:
    """Give the accelerators by name where the job lists as many as it says it held, else their number."""
    count = _amount(meta, "numAcc") or 0.0
    model = short_text("subCluster", str(meta.get("subCluster") or ""))
    named: list[tuple[str, str]] = []
    for part in _parts(meta.get("resources")):
        node, listed = str(part.get("hostname")), part.get("accelerators")
        named += [(_device(node, str(name)), node) for name in (listed if isinstance(listed, list) else [])]
    if not count and not named:
        return []
    if len(dict(named)) != (count or len(named)) or len(named) > _MOST_DEVICES:
        named = []
    places: Sequence[tuple[str | None, str | None]] = list(dict(named).items()) or [(None, None)]
    return [
        Allocation(
            allocation_key=f"{attempt.attempt_key}:{device or 0}",
            attempt_key=attempt.attempt_key,
            gpu_count=1.0 if device else count,
            start_at=attempt.start_at or 0.0,
            end_at=attempt.end_at,
            source=SOURCE,
            certainty="accounting",
            device_uuid=device,
            node=node,
            gpu_model=model,
        )
        for device, node in places
    ]


def _summary(meta: Mapping[str, Any], attempt: Attempt, lenient: Lenient) -> AttemptSummary | None:
    """Give the site's own means; it does not say how much of the job they cover, so all of it is assumed."""
    told = meta.get("statistics") if isinstance(meta.get("statistics"), dict) else {}
    means = {name: part.get("avg") for name, part in (told or {}).items() if isinstance(part, dict)}

    def mean(name: str, highest: float) -> float | None:
        value = means.get(name)
        return None if value is None else lenient.measure(f"statistics.{name}", str(value), highest=highest)

    percent, watts, load = mean("acc_utilization", 100.0), mean("acc_power", 5000.0), mean("cpu_load", 1e6)
    if percent is None and watts is None and load is None:
        return None
    return AttemptSummary(
        attempt_key=attempt.attempt_key,
        source=SOURCE,
        coverage_ratio=1.0,
        coverage_assumed=True,
        driver_util_ratio=None if percent is None else percent / 100,
        power_watts=watts,
        cpu_load_count=load,
    )


def _samples(data: Mapping[str, Any], attempt: Attempt, altered: list[Altered]) -> list[Sample]:
    """Give one reading for each device and step; absent values of a series are absent."""
    found: dict[tuple[str, str, float, float], Measures] = {}
    for metric, (column, default) in METRICS.items():
        scopes = data.get(metric) if isinstance(data.get(metric), dict) else {}
        part = (scopes or {}).get("accelerator")
        if not isinstance(part, dict):
            continue
        factor = _factor(part.get("unit"), column, default)
        step = _amount(part, "timestep")
        if factor is None or step is None or step <= 0:
            altered.append(Altered(metric, "unit or timestep not understood, left out", repr(part.get("unit"))[:80]))
            continue
        for series in _parts(part.get("series")):
            node, name = str(series.get("hostname") or ""), str(series.get("id") or "")
            values = series.get("data")
            if not node or not name or not isinstance(values, list):
                altered.append(Altered(metric, "series without a device, left out", repr(series)[:80]))
                continue
            for number, value in enumerate(values):
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    at = (attempt.start_at or 0.0) + number * step
                    place = (_device(node, name), node, at, step)
                    found.setdefault(place, Measures()).put(column, float(value), factor, metric)
    cluster = attempt.job_key.partition("/")[0]
    samples = []
    for (device, node, at, step), measures in sorted(found.items(), key=lambda item: item[0]):
        altered += measures.altered
        samples.append(
            Sample(
                cluster=cluster,
                node=node,
                device_uuid=device,
                sampled_at=at,
                cadence_seconds=step,
                source=SOURCE,
                metrics=measures.metrics,
                attempt_key=attempt.attempt_key,
                attribution="scheduler",
            )
        )
    return samples


def _devices(samples: Sequence[Sample]) -> list[Device]:
    spans: dict[tuple[str, str, str], tuple[float, float]] = {}
    for sample in samples:
        place = (sample.device_uuid, sample.cluster, sample.node)
        since, until = spans.get(place, (sample.sampled_at, sample.sampled_at))
        spans[place] = (min(since, sample.sampled_at), max(until, sample.sampled_at + sample.cadence_seconds))
    return [Device(*place, *span) for place, span in spans.items()]


def _device(node: str, name: str) -> str:
    text = name if name.startswith(("GPU-", "MIG-")) else f"{node}/{name}"
    return short_text("accelerator", text) or node


def _factor(unit: object, column: str, default: str) -> float | None:
    """Give the factor to the metric's base unit; None where the unit is of another kind."""
    text = default
    if isinstance(unit, dict) and unit.get("base"):
        base, prefix = str(unit["base"]), str(unit.get("prefix") or "")
        text = {"B": f"{prefix}iB" if prefix else "B", "percentage": "%", "percent": "%"}.get(base, f"{prefix}{base}")
    kind, factor = UNITS.get(text.lower(), (None, 1.0))
    return factor if kind is BY_NAME[column].unit else None


def _parts(value: object) -> list[Mapping[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _amount(part: Mapping[str, Any], name: str) -> float | None:
    value = part.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:  # noqa: PLR2004 - a count
        return None
    return float(value)


EXAMPLE = """\
{"jobId": 501, "user": "alice", "project": "ml", "cluster": "example", "subCluster": "a100", "partition": "a100",
 "numNodes": 1, "numHwthreads": 16, "numAcc": 2, "jobState": "completed", "startTime": 1790000000, "duration": 180,
 "walltime": 86400, "metaData": {"jobName": "train"},
 "resources": [{"hostname": "gpu1", "accelerators": ["00000000:01:00.0", "00000000:41:00.0"]}],
 "statistics": {"acc_utilization": {"unit": {"base": "percentage"}, "avg": 46.5, "min": 0, "max": 95}},
 "data": {"acc_utilization": {"accelerator": {"unit": {"base": "percentage"}, "timestep": 60, "series": [
   {"hostname": "gpu1", "id": "00000000:01:00.0", "data": [90, 94, 95]},
   {"hostname": "gpu1", "id": "00000000:41:00.0", "data": [0, null, 0]}]}}}}
"""

IMPORTER = Importer(
    name=NAME,
    description="Reads ClusterCockpit's job archive: jobs with their series for each accelerator.",
    example=EXAMPLE,
    read=read,
    gives="driver utilization, memory and power by the minute and as means, with job, user and project",
)
