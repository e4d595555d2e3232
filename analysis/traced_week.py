"""What kernels truly did in a week: the driver's word beside GPU-bound time, for the jobs in which it was measured.

Shares are means over GPU-seconds in which GPU-bound time is known, by whatever source; ``coverage_ratio`` is their part
of all that was allocated. It says nothing of the rest: those who opt into tracing need not be like the others.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Any, Final

from analysis.job import inflation_ratio
from analysis.summaries import RUNG_COLUMNS
from analysis.tracing import gap_lengths, traced
from warehouse.contract.metrics import Rung

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.evidence import AttemptEvidence
    from analysis.tracing import Rows

MOST_ROWS: Final = 1000
"""Attempts that the document names, those first of whose GPU time the driver's word hides most: 300 kB of JSON."""

DRIVER, BOUND = RUNG_COLUMNS[Rung.DRIVER_UTIL], RUNG_COLUMNS[Rung.GPU_BOUND]


def week_document(evidence: Sequence[AttemptEvidence], rows: Rows) -> dict[str, object]:
    """Give the week's ladder of the attempts whose GPU-bound time is known; null figures where there are none."""
    known = [one for one in evidence if BOUND in one.ladder]
    tracer = traced(rows) if known else {}
    weights = [_known_seconds(one) for one in known]
    whole, allocated = fsum(weights), fsum(one.gpu_seconds.allocated for one in evidence)
    lines = [_row(one, weight, tracer.get(one.attempt_key, {})) for one, weight in zip(known, weights, strict=True)]
    lines.sort(key=lambda line: (-(line["inflation_ratio"] or 0.0) * line["known_gpu_seconds"], line["attempt"]))
    return {
        "sources": sorted({one.ladder[BOUND].source for one in known}),
        "attempts": len(known),
        "jobs": len({one.job_key for one in known}),
        "known_gpu_seconds": whole if known else None,
        "coverage_ratio": whole / allocated if allocated else None,
        **_compared(lines),
        **_work(tracer, [one.attempt_key for one in known]),
        "gap_lengths": gap_lengths(rows) if tracer else [],
        "rows": lines[:MOST_ROWS],
        "rows_left_out": max(0, len(lines) - MOST_ROWS),
    }


def _known_seconds(one: AttemptEvidence) -> float:
    return one.ladder[BOUND].coverage_ratio * one.gpu_seconds.allocated


def _row(one: AttemptEvidence, weight: float, tracer: Mapping[str, Any]) -> dict[str, Any]:
    bound, driver = one.ladder[BOUND], one.ladder.get(DRIVER)
    return {
        "attempt": one.attempt_key,
        "job_key": one.job_key,
        "name": one.name,
        "user": one.user,
        "gpu_model": one.gpu_model,
        "known_gpu_seconds": weight,
        "source": bound.source,
        "coverage_ratio": bound.coverage_ratio,
        DRIVER: None if driver is None else driver.value,
        BOUND: bound.value,
        "inflation_ratio": inflation_ratio({key: one.ladder[key] for key in (DRIVER, BOUND) if key in one.ladder}),
        "launches_per_second": tracer.get("launches_per_second"),
        "mean_kernel_seconds": tracer.get("mean_kernel_seconds"),
    }


def _compared(lines: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Give the means of both words over the same attempts, those of which both are known: one less the other holds.

    ``compared_gpu_seconds`` is their time; where nobody tells the driver's word, GPU-bound time stands alone.
    """
    both = [line for line in lines if line[DRIVER] is not None and line["inflation_ratio"] is not None]
    figures = {name: _mean(both, name) for name in (DRIVER, BOUND, "inflation_ratio")}
    if not both:
        figures[BOUND] = _mean(lines, BOUND)
    return {**figures, "compared_gpu_seconds": fsum(line["known_gpu_seconds"] for line in both) if both else None}


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Give the mean over GPU-seconds of those that have the figure."""
    having = [(line["known_gpu_seconds"], line[name]) for line in lines if line[name] is not None]
    whole = fsum(weight for weight, _ in having)
    return fsum(weight * value for weight, value in having) / whole if whole > 0 else None


def _work(tracer: Mapping[str, Mapping[str, Any]], keys: Sequence[str]) -> dict[str, float | None]:
    """Give how many launches there were per second and GPU, how long a kernel took, and what part copies were."""
    parts = [tracer[key] for key in keys if key in tracer]

    def total(name: str) -> float | None:
        values = [part[name] for part in parts if part[name] is not None]
        return fsum(values) if values else None

    lengths = [(part["kernel_count"], part["mean_kernel_seconds"]) for part in parts if part["mean_kernel_seconds"]]
    kernels = sum(count for count, _ in lengths)
    launches, known, covered = total("launch_count"), total("covered_seconds"), total("busy_covered_seconds")
    busy = {f"{name}_ratio": total(f"{name}_seconds") for name in ("copy", "gpu_busy")}
    return {
        "launches_per_second": launches / known if launches is not None and known else None,
        "mean_kernel_seconds": fsum(count * mean for count, mean in lengths) / kernels if kernels else None,
        **{name: value / covered if value is not None and covered else None for name, value in busy.items()},
    }
