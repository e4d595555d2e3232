"""B3: how much is wasted, on sources whose figures are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult
from analysis.benchmarks._sources import files, imported
from warehouse.contract.errors import BadInputError
from warehouse.contract.units import SECONDS_PER_HOUR, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SOURCE = "clustercockpit_nhr"
NO_IMPORTER = ("llview_jsc_gpu", "alibaba_genai_v2026", "alibaba_gpu_v2023")
TOLERANCE_RATIO = 0.001
"""Figures are to be met to 0.1 %."""
_EXPECTED = {
    "gpu_jobs": "gpu_jobs",
    "gpu_hours": "gpu_hours",
    "time_weighted_used_percent": "util_weighted_mean_pct",
    "held_idle_gpu_hours": "wasted_gpu_hours(1-util)",
}
"""Our figures, and what they are called in the source's ``expected.json``."""


def run(request: BenchRequest) -> BenchResult:
    """Measure all parts of the source together, and compare each with the figures that stand beside it."""
    bars: list[Bar] = []
    not_shown = [f"{source}: no importer yet" for source in NO_IMPORTER]
    not_shown.append("means of whole jobs do not tell long idle stretches from short gaps")
    tables = files(request.data_root, SOURCE, "jobs.csv")
    if not tables:
        return BenchResult({}, (), [*not_shown, f"{SOURCE}: not below {request.data_root}"])
    figures: dict[str, object] = {}
    together = figures[SOURCE] = _measure(request, tables)
    for table in tables:
        part = str(table.parent.relative_to(request.data_root))
        expected = _expected(table.parent / "expected.json")
        if expected is None:
            not_shown.append(f"{part}: no expected.json beside it")
            continue
        measured = together if len(tables) == 1 else _measure(request, [table])
        figures[part] = measured
        bars += [_met(part, name, measured[name], expected.get(theirs)) for name, theirs in _EXPECTED.items()]
    return BenchResult(figures, bars, not_shown)


def _measure(request: BenchRequest, tables: Sequence[Path]) -> dict[str, float | None]:
    with imported(request, "clustercockpit", tables) as client:
        document = client.ask("waste", {"by": "job"})
    seconds, jobs = document["gpu_seconds"], document["rows"]
    if not isinstance(seconds, dict) or not isinstance(jobs, list):
        raise TypeError("the answer `waste` does not keep its contract")
    shares = [row["used_ratio"] for row in jobs if row["used_ratio"] is not None]
    idle = seconds["held_idle"]
    used_ratio = document["used_ratio"]
    mean = ratio(sum(shares), len(shares))
    return {
        "gpu_jobs": float(len(jobs)),
        "gpu_hours": seconds["allocated"] / SECONDS_PER_HOUR,
        "time_weighted_used_percent": 100 * used_ratio if isinstance(used_ratio, float) else None,
        "job_mean_used_percent": None if mean is None else 100 * mean,
        "held_idle_gpu_hours": None if idle is None else idle / SECONDS_PER_HOUR,
    }


def _expected(path: Path) -> dict[str, object] | None:
    if not path.exists():
        return None
    try:
        jobs = json.loads(path.read_text(encoding="utf-8"))["jobs"]
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise BadInputError(str(path), "jobs", f"cannot be read as expected figures ({cause})") from cause
    return dict(jobs)


def _met(part: str, name: str, value: float | None, wanted: object) -> Bar:
    if not isinstance(wanted, (int, float)):
        return Bar(f"{part}: {name}", value, "not among the expected figures", holds=False)
    holds = value is not None and abs(value - wanted) <= TOLERANCE_RATIO * abs(wanted)
    return Bar(f"{part}: {name}", value, f"{wanted:g} within {TOLERANCE_RATIO:.1%}", holds)


BENCHMARK = Benchmark(
    name="waste",
    description="B3: used and idle GPU-hours against the figures of the sources; time-weighted and per-job means.",
    run=run,
)
