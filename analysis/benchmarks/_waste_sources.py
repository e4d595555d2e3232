"""What the benchmark of waste measures of each source, and what the source says it should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from analysis.benchmarks._research import DUTY, MEMORY, PODS, SERVING
from analysis.benchmarks._sources import files, imported, imported_by
from warehouse.contract.units import BYTES_PER_GIB, SECONDS_PER_HOUR, ratio

if TYPE_CHECKING:
    from analysis.benchmark import BenchRequest
    from warehouse.client import Client

Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Source:
    """One source: the file that names its parts, how a part is measured, and our figures by their names for them.

    ``told`` finds the expected figures within ``expected.json``.
    """

    name: str
    file: str
    measure: Callable[[BenchRequest, Sequence[Path]], Figures]
    names: Mapping[str, str]
    told: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict


def _clustercockpit(request: BenchRequest, tables: Sequence[Path]) -> Figures:
    with imported(request, "clustercockpit", tables) as client:
        return _account(client)


def _account(client: Client) -> Figures:
    document = client.ask("waste", {"by": "job"})
    seconds, jobs = document["gpu_seconds"], document["rows"]
    if not isinstance(seconds, dict) or not isinstance(jobs, list):
        raise TypeError("the answer `waste` does not keep its contract")
    shares = [row["used_ratio"] for row in jobs if row["used_ratio"] is not None]
    used_ratio, mean = document["used_ratio"], ratio(sum(shares), len(shares))
    return {
        "gpu_jobs": float(len(jobs)),
        "gpu_hours": seconds["allocated"] / SECONDS_PER_HOUR,
        "time_weighted_used_percent": _percent(used_ratio if isinstance(used_ratio, float) else None),
        "job_mean_used_percent": _percent(mean),
        "held_idle_gpu_hours": None if seconds["held_idle"] is None else seconds["held_idle"] / SECONDS_PER_HOUR,
    }


def _llview(request: BenchRequest, tables: Sequence[Path]) -> Figures:
    with imported(request, "llview", [_with_report(table) for table in tables]) as client:
        [row] = _select(
            client,
            "SELECT count(*), 100 * avg(driver_util_ratio), count(DISTINCT device_uuid) "
            "FROM device_sample WHERE driver_util_ratio IS NOT NULL",
        )
        [idle] = _select(
            client,
            "SELECT count(*) FROM (SELECT avg(driver_util_ratio) AS mean FROM device_sample GROUP BY device_uuid) "
            "WHERE mean < 0.01",
        )
        return _account(client) | {
            "samples": float(row[0]),
            "sample_mean_used_percent": row[1],
            "gpus": float(row[2]),
            "gpus_under_1_percent": float(idle[0]),
        }


def _with_report(table: Path) -> Path:
    """Give the folder of a table where its report lies beside it: then the job is told by the report."""
    return table.parent if any(table.parent.glob("jobreport_*.json")) else table


def _serving(request: BenchRequest, tables: Sequence[Path]) -> Figures:
    memory = [table.with_name(MEMORY) for table in tables if table.with_name(MEMORY).exists()]
    with imported_by(request, SERVING, [*tables, *memory]) as client:
        [row] = _select(
            client,
            "SELECT count(*), 100 * avg(driver_util_ratio), avg((driver_util_ratio = 0)::INT), "
            "avg((driver_util_ratio < 0.1)::INT) FROM device_sample WHERE driver_util_ratio IS NOT NULL",
        )
        [idle] = _select(
            client,
            "SELECT count(*), 100 * avg(mean) FROM (SELECT device_uuid, avg(driver_util_ratio) AS mean "
            "FROM device_sample GROUP BY device_uuid HAVING mean IS NOT NULL) WHERE mean < 0.1",
        )
        [held] = _select(
            client,
            "SELECT count(*), avg(memory_used_bytes) FROM device_sample WHERE memory_used_bytes IS NOT NULL",
        )
        return _account(client) | {
            "samples": float(row[0]),
            "sample_mean_used_percent": row[1],
            "share_of_samples_at_0": row[2],
            "share_of_samples_below_10_percent": row[3],
            "pods_with_a_mean_below_10_percent": float(idle[0]),
            "memory_samples": float(held[0]),
            "sample_mean_memory_gib": None if held[1] is None else held[1] / BYTES_PER_GIB,
        }


def _pods(request: BenchRequest, tables: Sequence[Path]) -> Figures:
    with imported_by(request, PODS, tables) as client:
        [jobs] = _select(
            client,
            "SELECT count(*), count(*) FILTER (requested_gpu_count > 0), count(*) FILTER (attempt.job_key IS NULL) "
            "FROM job LEFT JOIN attempt USING (job_key)",
        )
        [held] = _select(
            client,
            "SELECT sum(gpu_count * (epoch(end_at) - epoch(start_at))) FROM allocation",
        )
        document = client.ask("waste", {"by": "job"})
        seconds: Any = document["gpu_seconds"]
        return {
            "pods": float(jobs[0]),
            "gpu_pods": float(jobs[1]),
            "unscheduled_pods": float(jobs[2]),
            "gpu_hours": seconds["allocated"] / SECONDS_PER_HOUR,
            "gpu_hours_if_nobody_shared": held[0] / SECONDS_PER_HOUR,
        }


def _select(client: Any, statement: str) -> list[list[Any]]:
    """Ask the store what no question of the product asks."""
    return [list(row.values()) for row in client.sql(statement)["rows"]]


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _of_tables(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the figures of LLview's only table in a part; of several none can be added up."""
    told = [figures for figures in document.values() if isinstance(figures, dict)]
    return told[0] if len(told) == 1 else {}


SOURCES: Final = (
    Source(
        "clustercockpit_nhr",
        "jobs.csv",
        _clustercockpit,
        {
            "gpu_jobs": "gpu_jobs",
            "gpu_hours": "gpu_hours",
            "time_weighted_used_percent": "util_weighted_mean_pct",
            "held_idle_gpu_hours": "wasted_gpu_hours(1-util)",
        },
        lambda document: document["jobs"],
    ),
    Source(
        "llview_jsc_gpu",
        "GPU_*_node.dat*",
        _llview,
        {
            "samples": "rows",
            "gpus": "gpus",
            "sample_mean_used_percent": "mean gpu_usage",
            "gpus_under_1_percent": "gpus under 1%",
        },
        _of_tables,
    ),
    Source(
        "alibaba_genai_v2026",
        DUTY,
        _serving,
        {
            "samples": "samples",
            "gpu_jobs": "pods",
            "sample_mean_used_percent": "mean_pct",
            "share_of_samples_at_0": "share_zero",
            "share_of_samples_below_10_percent": "share<10",
            "pods_with_a_mean_below_10_percent": "pods_mean<10",
            "memory_samples": "mem_samples",
            "sample_mean_memory_gib": "gpu_mem_mean_GiB",
        },
    ),
    Source(
        "alibaba_gpu_v2023",
        "openb_pod_list_default.csv.gz",
        _pods,
        {
            "pods": "pods",
            "gpu_pods": "gpu_pods",
            "unscheduled_pods": "unscheduled",
            "gpu_hours": "gpu_hours_allocated",
            "gpu_hours_if_nobody_shared": "whole_gpu_hours_if_no_sharing",
        },
    ),
)


def parts(request: BenchRequest, source: Source) -> list[Path]:
    """Give the files of a source, in order of path."""
    return files(request.data_root, source.name, source.file)
