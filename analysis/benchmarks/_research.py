"""Readers of research traces, for benchmarks: pods that serve, with samples (GenAI 2026), pods that share (openb 2023).

The traces tell time from an origin of their own, or anonymised; what they say is put into the store as it would be of a
cluster, so that the account and its questions are judged and not a sum made for the occasion.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Allocation, Attempt, AttemptState, Job, Record
from warehouse.importer import Imported, Importer, ImportOptions, Sample
from warehouse.imports._cadence import Cadence

ORIGIN_AT: Final = 1_600_000_000.0
"""Stands for the second 0 of a trace without dates."""

USUAL_STEP_SECONDS: Final = 57.0
"""The step of the GenAI trace, for a pod that was seen once (its README)."""

LONGEST_STEP_SECONDS: Final = 600.0
DUTY, MEMORY = "pod_gpu_duty_cycle_anon.csv.gz", "pod_gpu_memory_used_bytes_anon.csv.gz"
_STATES: Final = {
    "Running": AttemptState.RUNNING,
    "Failed": AttemptState.FAILED,
    "Succeeded": AttemptState.COMPLETED,
    "Pending": AttemptState.PENDING,
}


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
            yield from csv.DictReader(stream)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as cause:
        raise BadInputError(str(path), None, f"cannot be read as a packed CSV ({cause})") from cause


def _serving(path: Path, options: ImportOptions) -> Iterator[Imported]:
    """Read one metric of every pod; a pod is a job that holds one GPU from its first value to its last."""
    column, factor = ("driver_util_ratio", 0.01) if path.name == DUTY else ("memory_used_bytes", 1.0)
    by_pod: dict[str, list[tuple[float, float]]] = {}
    for row in _rows(path):
        by_pod.setdefault(row["container_ip"], []).append((float(row["timestamp_anon"]), float(row["value"]) * factor))
    for pod, values in sorted(by_pod.items()):
        values.sort()
        cadence = Cadence(USUAL_STEP_SECONDS, LONGEST_STEP_SECONDS)
        job_key = f"{options.cluster}/{pod}#0"
        lengths = [cadence.of(after - at) for (at, _), (after, _) in pairwise(values)]
        lengths.append(cadence.of(None))
        attempt_key = f"{job_key}:{int(values[0][0])}"
        owner = attempt_key if column == "driver_util_ratio" else None
        samples = tuple(
            Sample(options.cluster, "serving", pod, at, length, f"genai:{column}", {column: value}, owner)
            for (at, value), length in zip(values, lengths, strict=True)
        )
        start, end = values[0][0], values[-1][0] + lengths[-1]
        rows: tuple[Record, ...] = ()
        if column == "driver_util_ratio":
            rows = (
                Job(job_key, options.cluster, pod, "genai"),
                Attempt(attempt_key, job_key, AttemptState.UNKNOWN, None, start, end, "genai"),
                Allocation(f"{attempt_key}:0", attempt_key, 1.0, start, end, "genai", device_uuid=pod, node="serving"),
            )
        content = f"{path.parent}:{len(values)}:{values[0][0]}"
        yield Imported(1, f"{column}:{path.parent}:{pod}", content, rows, samples=samples, count=len(values))


def _pods(path: Path, options: ImportOptions) -> Iterator[Imported]:
    """Read pods that ask for whole GPUs or a share of one; a pod that was never scheduled is a job without a start."""
    for line, row in enumerate(_rows(path), 2):
        job_key = f"{options.cluster}/{row['name']}#0"
        count = float(row["num_gpu"] or 0)
        job = Job(
            job_key,
            options.cluster,
            row["name"],
            "openb",
            qos=row["qos"] or None,
            submit_at=ORIGIN_AT + float(row["creation_time"]),
            requested_gpu_count=count,
        )
        if not row["scheduled_time"]:
            yield Imported(line, job_key, str(row), (job,))
            continue
        start, end = (ORIGIN_AT + float(row[name]) for name in ("scheduled_time", "deletion_time"))
        state = _STATES.get(row["pod_phase"], AttemptState.UNKNOWN)
        attempt = Attempt(f"{job_key}:1", job_key, state, row["pod_phase"], start, end, "openb")
        held = Allocation(
            f"{job_key}:1:0",
            attempt.attempt_key,
            count,
            start,
            end,
            "openb",
            share_ratio=float(row["gpu_milli"] or 1000) / 1000 if count == 1 else 1.0,
        )
        yield Imported(line, job_key, str(row), (job, attempt, *([held] if count else [])))


def _importer(name: str, description: str, read: Callable[[Path, ImportOptions], Iterator[Imported]]) -> Importer:
    return Importer(name, description, "", read)


SERVING: Final = _importer("genai", "Samples of serving pods of a research trace, for benchmarks.", _serving)
PODS: Final = _importer("openb", "Pods of a research trace of GPU sharing, for benchmarks.", _pods)
