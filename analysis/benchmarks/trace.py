"""B8 and P7: profiler timelines against values summed from the raw files, and against HolisticTraceAnalysis 0.5.0."""

from __future__ import annotations

import json
import math
import statistics
from typing import TYPE_CHECKING, Any

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_least
from analysis.benchmarks._hta_timing import hta_timing, our_seconds
from analysis.benchmarks._sources import files
from analysis.traces.document import Convention, rank_document
from warehouse.contract.errors import BadInputError
from warehouse.imports.kineto import read_timeline

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "hta"
REFERENCE = "reference_values.json"
RATIO_TOLERANCE = 1e-9
"""Means of HTA are doubles; whole numbers and rounded shares have to be equal."""

FASTER_RATIO = 20.0
OUR_REPEATS = 5
THEIR_REPEATS = 2


def run(request: BenchRequest) -> BenchResult:
    """Compare every trace that has reference values, and time the largest one."""
    figures: dict[str, object] = {}
    bars: list[Bar] = []
    not_shown = [
        "HTA's own rows without any time (classes that touch, but never overlap) are not told by us",
        "which cause a gap has beyond HTA's three; files of several GB (docs/trace.md says what was measured)",
    ]
    references = files(request.data_root, SOURCE, REFERENCE)
    if not references:
        not_shown.append(f"{SOURCE}: no {REFERENCE} below {request.data_root}")
    traces: list[Path] = []
    for path in references:
        for name, expected in _expected(path).items():
            trace = path.parent / name
            if not trace.exists():
                not_shown.append(f"{name}: named in {REFERENCE}, not beside it")
                continue
            traces.append(trace)
            figures[name] = _judge(trace, expected, bars)
    if traces:
        figures["largest"] = _race(max(traces, key=lambda trace: trace.stat().st_size), bars, not_shown)
    return BenchResult(figures, bars, not_shown)


def _expected(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {name: values[name] for name in values if "direct" in values[name]}
    except (OSError, ValueError, TypeError, LookupError) as cause:
        raise BadInputError(str(path), None, f"cannot be read as reference values ({cause})") from cause


def _judge(trace: Path, expected: dict[str, Any], bars: list[Bar]) -> dict[str, object]:
    timeline = read_timeline(trace)
    wrong = _different(direct_values(rank_document(timeline, trace.name)), expected["direct"])
    bars.append(_none_wrong(f"{trace.name}: direct values that differ", wrong))
    figures: dict[str, object] = {"direct_differ": wrong}
    if "hta_0_5_0" in expected:
        tables: Any = rank_document(timeline, trace.name, Convention.HTA)["hta"]
        wrong = differing_tables(tables, expected["hta_0_5_0"])
        bars.append(_none_wrong(f"{trace.name}: tables of HTA that differ", wrong))
        figures["hta_differ"] = wrong
    return figures


def direct_values(rank: dict[str, Any]) -> dict[str, object]:
    """Give a rank's document in the words of the reference values."""
    if not rank["gpu_events"]:
        return {"gpu_events": 0}
    return {
        "gpu_events": rank["gpu_events"],
        "counts": {name: count for name, count in rank["counts"].items() if count},
        "streams": rank["streams"],
        "summed_ns": {name: total for name, total in rank["summed_ns"].items() if rank["counts"][name]},
        "span_ns": rank["span_ns"],
        "busy_union_ns": rank["gpu_busy_ns"],
        "kernel_only_union_ns": rank["gpu_bound_ns"],
        "busy_pct": round(100 * rank["gpu_busy_ns"] / rank["span_ns"], 4),
    }


def differing_tables(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Give the names of HTA's tables that we do not reproduce.

    Rows of theirs without any time are passed over, and so is the rank, which there is whatever its caller says.
    """
    wrong = []
    for name, expected in theirs.items():
        rows = [expected] if isinstance(expected, dict) else [row for row in expected if row.get("sum") != 0]
        found = [ours[name]] if isinstance(ours[name], dict) else list(ours[name])
        order = _row_order if len(rows) > 1 else str
        pairs = zip(sorted(found, key=order), sorted(rows, key=order), strict=False)
        if len(found) != len(rows) or any(_different(mine, row | {"rank": mine.get("rank")}) for mine, row in pairs):
            wrong.append(name)
    return wrong


def _row_order(row: dict[str, Any]) -> str:
    return str([row.get(key) for key in ("stream", "idle_category", "kernel_type")])


def _different(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Give the names of expected values that were not found."""
    return [name for name, value in expected.items() if not _is_same(found.get(name), value)]


def _is_same(found: object, expected: object) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return found is None
    if isinstance(expected, list):
        return isinstance(found, list) and sorted(map(str, found)) == sorted(map(str, expected))
    if isinstance(expected, float) and isinstance(found, int | float):
        return math.isclose(found, expected, rel_tol=RATIO_TOLERANCE)
    return found == expected


def _none_wrong(name: str, wrong: list[str]) -> Bar:
    return Bar(name, float(len(wrong)), "0", holds=not wrong)


def _race(trace: Path, bars: list[Bar], not_shown: list[str]) -> dict[str, object]:
    """Time the same breakdowns, each side in a fresh process of its own, from the packed file to the answers."""
    ours = our_seconds(trace, OUR_REPEATS)
    figures: dict[str, object] = {"file": trace.name, "seconds_median": statistics.median(ours), "seconds": ours}
    theirs = hta_timing(trace, THEIR_REPEATS)
    if isinstance(theirs, str):
        not_shown.append(f"P7: {theirs}")
        return figures
    figures |= {"hta_seconds": theirs["seconds"], "hta_version": theirs["version"]}
    faster = statistics.median(theirs["seconds"]) / statistics.median(ours)
    bars.append(at_least("P7: times as fast as HTA on the largest trace", faster, FASTER_RATIO))
    return figures


BENCHMARK = Benchmark(
    name="trace",
    description="B8, P7: profiler timelines to the nanosecond, HTA's figures reproduced, and faster than HTA.",
    run=run,
)
