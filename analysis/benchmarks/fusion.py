"""B6: how long B fused members take, from the first points of a published curve; and how many fit into memory."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_least, at_most
from analysis.benchmarks._outcome import Outcome, median_width
from analysis.benchmarks._sources import files, rows
from analysis.fusing import Fill, fit_curve, most_beside, most_fused, stretch_from_fill
from analysis.remedies.fuse import BASE_BYTES
from warehouse.contract.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.contract.settings import Settings

SOURCE = "hfta"
FIRST_POINTS = 4
FUSED, BESIDE = "hfta", "mps"
_COLUMNS = ("gpu", "mode", "precision", "num_models", "normalised_throughput")
_CAPACITY_BYTES = {"V100": 16 * BYTES_PER_GIB, "A100": 40 * BYTES_PER_GIB}
_SERIAL_A100_AMP = 1.1
"""Throughput of serial AMP on the A100 over serial FP32, of the source's README."""

Points = list[tuple[int, float]]
Curves = dict[tuple[str, str, str], Points]


def run(request: BenchRequest) -> BenchResult:
    """Judge the curves of each GPU, mode and number type that the source has."""
    found = files(request.data_root, SOURCE, "pointnet_cls_throughput_v100_a100.csv")
    not_shown = [
        (
            "other models: one workload's whole curves are published, so that there is no cross-validation by model; "
            "nothing is fitted across curves, each is foretold from its own first points"
        ),
        "waves (kernel profiles of fused members): none is published; a command that measures comes later",
        "limits of FP32: the points stop at 5 and 10, which no single footprint explains; other things end them",
    ]
    if not found:
        return BenchResult({}, (at_least("curves", 0, 1),), [*not_shown, f"{SOURCE}: not below {request.data_root}"])
    curves: Curves = defaultdict(list)
    for row in rows(found, _COLUMNS):
        curves[row["gpu"], row["precision"], row["mode"]].append(
            (int(row["num_models"]), float(row["normalised_throughput"]))
        )
    outcomes = [one for key, points in curves.items() if key[2] == FUSED for one in _rest(key, sorted(points))]
    errors = [one.error for one in outcomes]
    limits = _limits(curves, request.settings)
    figures: dict[str, object] = {
        "curves": len({one.key for one in outcomes}),
        "points_foretold": len(outcomes),
        "mean_error": fmean(errors),
        "worst_error": max(errors),
        "mean_error_of_straight_line": fmean(abs(_baseline(one, "line") / one.truth - 1) for one in outcomes),
        "mean_error_of_no_further_gain": fmean(abs(_baseline(one, "plateau") / one.truth - 1) for one in outcomes),
        "worst_error_of_straight_line": max(abs(_baseline(one, "line") / one.truth - 1) for one in outcomes),
        "coverage_of_80_percent_intervals": fmean(one.is_covered for one in outcomes),
        "median_width_high_over_low": median_width(outcomes),
        "memory_limits": limits,
        **_telemetry(request, curves),
    }
    wrong = sum(one["found"] != one["published"] for one in limits.values())
    bars: list[Bar] = [
        at_most("rest of each curve: worst error", max(errors), 0.10),
        at_most("rest of each curve: mean error over the straight line's", _ratio(figures), 1.0),
        at_most("memory limits that one base does not give", wrong if limits else None, 0),
    ]
    return BenchResult(figures, bars, not_shown, Outcome.COLUMNS, [one.row() for one in outcomes])


def _baseline(one: Outcome, name: str) -> float:
    value = one.baselines[name]
    return one.truth if value is None else value


def _ratio(figures: Mapping[str, object]) -> float | None:
    ours, line = figures["mean_error"], figures["mean_error_of_straight_line"]
    return ours / line if isinstance(ours, float) and isinstance(line, float) and line > 0 else None


def _rest(key: tuple[str, str, str], points: Points) -> list[Outcome]:
    """Foretell the throughput of all but the first points from those; beside it the straight line, and no more gain."""
    first, rest = points[:FIRST_POINTS], points[FIRST_POINTS:]
    curve = fit_curve([(count, count / throughput) for count, throughput in first])
    line = fit_curve(first)
    return [
        Outcome(
            (SOURCE, key[0], key[1]),
            "PointNet",
            f"{key[0]} {key[1]} {count}",
            curve.seconds(count).falling(lambda seconds, own=count: own / seconds),  # type: ignore[misc]
            throughput,
            {"line": line.start + line.slope * count, "plateau": first[-1][1]},
        )
        for count, throughput in rest
    ]


def _limits(curves: Curves, settings: Settings) -> dict[str, dict[str, int]]:
    """Take the members' footprint from the first GPU's limits and the setting's base; foretell the other GPU's."""
    published = {(gpu, mode): max(counts)[0] for (gpu, kind, mode), counts in curves.items() if kind == "amp"}
    wanted = [(gpu, mode) for gpu in ("V100", "A100") for mode in (FUSED, BESIDE)]
    if any(key not in published for key in wanted):
        return {}
    base, capacity = settings[BASE_BYTES], _CAPACITY_BYTES["V100"]
    fused, beside = published["V100", FUSED], published["V100", BESIDE]
    least = max((capacity - base) / (fused + 1), capacity / (beside + 1) - base)
    most = min((capacity - base) / fused, capacity / beside - base)
    member = median((least, most))
    count = {FUSED: most_fused, BESIDE: most_beside}
    return {
        f"{gpu} {mode}": {
            "published": published[gpu, mode],
            "found": count[mode](_CAPACITY_BYTES[gpu], base, member),
        }
        for gpu, mode in wanted
    }


def _telemetry(request: BenchRequest, curves: Curves) -> dict[str, object]:
    """Foretell the A100's curve from counters of one member alone (those of two, halved): what fuse has at first."""
    found = files(request.data_root, SOURCE, "pointnet_cls_a100_amp_dcgm.csv")
    points = curves.get(("A100", "amp", FUSED))
    if not found or not points:
        return {}
    two = next(row for row in rows(found, ("num_models", "sm_active", "sm_occupancy")) if row["num_models"] == "2")
    fill = Fill(1.0, float(two["sm_active"]) / 2, float(two["sm_occupancy"]) / 2)
    ranges = [(stretch_from_fill(fill, count), count / throughput * _SERIAL_A100_AMP) for count, throughput in points]
    judged = [(one, truth) for one, truth in ranges if one is not None]
    return {
        "from_counters_alone_mean_error": fmean(abs(one.likely / truth - 1) for one, truth in judged),
        "from_counters_alone_coverage": fmean(one.low <= truth <= one.high for one, truth in judged),
        "from_counters_alone_median_width": median(one.high / one.low for one, _ in judged),
    }


BENCHMARK = Benchmark(
    name="fusion",
    description="B6: throughput of B fused members from the first four points of a curve, and memory limits.",
    run=run,
)
