"""B3: how much is wasted, on sources whose figures are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult
from analysis.benchmarks._waste_sources import SOURCES, Source, parts
from warehouse.contract.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOLERANCE_RATIO = 0.001
"""Figures are to be met to 0.1 %."""


def run(request: BenchRequest) -> BenchResult:
    """Measure all parts of each source together, and compare each part with the figures that stand beside it."""
    bars: list[Bar] = []
    not_shown = [
        "means of whole jobs do not tell long idle stretches from short gaps",
        "where samples and a report speak of one job, the account is that of the samples",
    ]
    figures: dict[str, object] = {}
    for source in SOURCES:
        found = parts(request, source)
        if not found:
            not_shown.append(f"{source.name}: not below {request.data_root}")
            continue
        together = figures[source.name] = source.measure(request, found)
        for folder in dict.fromkeys(path.parent for path in found):
            own = [path for path in found if path.parent == folder]
            part = str(folder.relative_to(request.data_root))
            expected = _expected(folder, source, request.data_root)
            if expected is None:
                not_shown.append(f"{part}: no expected.json beside it")
                continue
            measured = together if len(own) == len(found) else source.measure(request, own)
            if part != source.name:
                figures[part] = measured
            for name, theirs in source.names.items():
                bars.append(_met(part, name, measured[name], expected.get(theirs)))
    return BenchResult(figures, bars, not_shown)


def _expected(folder: Path, source: Source, data_root: Path) -> Mapping[str, Any] | None:
    """Find the expected figures of a part: in its folder, or above it within the source."""
    while folder != data_root and data_root in folder.parents:
        path = folder / "expected.json"
        if path.exists():
            try:
                return source.told(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, KeyError, TypeError) as cause:
                raise BadInputError(str(path), "jobs", f"cannot be read as expected figures ({cause})") from cause
        folder = folder.parent
    return None


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
