"""B5: how fast two jobs run on one card, from the telemetry of each alone, and which pairs may share one."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_least, at_most
from analysis.benchmarks._outcome import Outcome, binomial_band
from analysis.benchmarks._sources import files, rows
from analysis.interference import Demand, both_keep, shared_speed
from warehouse.contract.units import ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

SOURCE, LAW_SOURCE = "lucid_colocation", "gavel_throughputs"
KEPT_RATIO = 0.9
_SOLO = ("model", "dataset", "batchsize", "amp", "gpu_util", "gmem_util")
_PAIR = tuple(f"{name}{side}" for side in (1, 2) for name in ("model", "dataset", "batchsize", "amp", "speed"))
_NOT_SHOWN = (
    "constants: none is fitted on this source; which of some twenty simple laws is shipped was chosen by a look at it",
    "more than two jobs on a card, other GPUs than the source's, MPS limits of threads",
    "cores of the host, which jobs that wait for their host compete for: the source does not tell of them",
    "miso_a100_mig: speeds on slices need kernels of the jobs; only times are published",
)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two jobs on one card: names of their models, what each needs alone, and the speed that each kept."""

    models: tuple[str, str]
    item: str
    demands: tuple[Demand, Demand]
    speeds: tuple[float, float]

    @property
    def keeps(self) -> bool:
        return min(self.speeds) >= KEPT_RATIO


def run(request: BenchRequest) -> BenchResult:
    """Judge all pairs of the source, and the law behind the estimator on measured pairs of another."""
    not_shown = list(_NOT_SHOWN)
    pairs = _pairs(request.data_root)
    if not pairs:
        not_shown.append(f"{SOURCE}: not below {request.data_root}")
        return BenchResult({}, (at_least("pairs", 0, 1),), not_shown)
    outcomes = _outcomes(pairs)
    error = fmean(_error(one, None) for one in outcomes)
    baselines = {name: fmean(_error(one, name) for one in outcomes) for name in outcomes[0].baselines}
    decided = _decision(pairs, lambda pair: both_keep(*pair.demands, KEPT_RATIO))
    by_sum = _decision(pairs, lambda pair: sum(one.busy_ratio for one in pair.demands) <= 1)
    covered, clusters = _coverage(outcomes)
    band = binomial_band(0.8, clusters)
    figures: dict[str, object] = {
        "pairs": len(pairs),
        "mean_absolute_error": error,
        "mean_absolute_error_by_baseline": baselines,
        "both_keep_90_percent": decided,
        "both_keep_by_utilization_sum": by_sum,
        "coverage_of_80_percent_intervals": covered,
        "mean_width_of_intervals": fmean(one.range.high - one.range.low for one in outcomes),
        "models": clusters,
        "law_on_measured_pairs": _law(request.data_root),
    }
    bars: list[Bar] = [
        at_most("error over the utilization sum's", error / baselines["utilization sum"], 0.95),
        at_least("both keep 90 %: precision", decided["precision"], 0.80),
        at_least("both keep 90 %: recall", decided["recall"], 0.70),
        Bar(
            "80 % intervals: coverage, pooled over models",
            covered,
            f"{band[0]:.3f} to {band[1]:.3f}",
            band[0] <= covered <= band[1],
        ),
    ]
    return BenchResult(figures, bars, not_shown, Outcome.COLUMNS, [one.row() for one in outcomes])


def _pairs(root: Path) -> list[_Pair]:
    alone = {
        tuple(row[name] for name in _SOLO[:4]): Demand(float(row["gpu_util"]) / 100, float(row["gmem_util"]) / 100)
        for row in rows(files(root, SOURCE, "single_data.csv"), _SOLO)
    }
    found: dict[str, _Pair] = {}
    for row in rows(files(root, SOURCE, "colocate_info.csv"), _PAIR):
        one, other = (tuple(row[f"{name}{side}"] for name in _SOLO[:4]) for side in (1, 2))
        if one in alone and other in alone:
            item = f"{'/'.join(one)} beside {'/'.join(other)}"
            speeds = (float(row["speed1"]), float(row["speed2"]))
            found[item] = _Pair((row["model1"], row["model2"]), item, (alone[one], alone[other]), speeds)
    return list(found.values())


def _outcomes(pairs: Sequence[_Pair]) -> list[Outcome]:
    fitted = _fitted(pairs)
    found: list[Outcome] = []
    for at, pair in enumerate(pairs):
        busy = sum(one.busy_ratio for one in pair.demands)
        for side in (0, 1):
            own, other = pair.demands[side], pair.demands[1 - side]
            baselines = {
                "no interference": 1.0,
                "utilization sum": 1.0 / max(1.0, busy),
                "mean of other models": fitted[at][0],
                "linear, of other models": fitted[at][1 + side],
            }
            key = (SOURCE, pair.models[side], pair.models[1 - side])
            expected = shared_speed(own, [other])
            found.append(Outcome(key, pair.models[side], pair.item, expected, pair.speeds[side], baselines))
    return found


def _fitted(pairs: Sequence[_Pair]) -> list[tuple[float, float, float]]:
    """Give the mean speed and a linear fit's two, learned from pairs without either model of the judged pair."""
    design = np.array([[_features(pair, side) for side in (0, 1)] for pair in pairs])
    speeds = np.array([pair.speeds for pair in pairs])
    names = np.array([pair.models for pair in pairs])
    found: dict[tuple[str, str], tuple[float, np.ndarray]] = {}
    for models in {pair.models for pair in pairs}:
        others = ~np.isin(names, models).any(axis=1)
        weights = np.linalg.lstsq(design[others].reshape(-1, 5), speeds[others].reshape(-1), rcond=None)[0]
        found[models] = (float(speeds[others].mean()), weights)
    fits = [(found[pair.models], design[at]) for at, pair in enumerate(pairs)]
    return [(mean, float(own[0] @ weights), float(own[1] @ weights)) for (mean, weights), own in fits]


def _features(pair: _Pair, side: int) -> list[float]:
    ordered = (pair.demands[side], pair.demands[1 - side])
    return [1.0, *(value for one in ordered for value in (one.busy_ratio, one.dram_ratio or 0.0))]


def _error(one: Outcome, baseline: str | None) -> float:
    value = one.range.likely if baseline is None else one.baselines[baseline]
    return abs((one.truth if value is None else value) - one.truth)


def _decision(pairs: Sequence[_Pair], chosen: Callable[[_Pair], bool]) -> dict[str, float | None]:
    right = sum(pair.keeps and chosen(pair) for pair in pairs)
    return {
        "precision": ratio(right, sum(chosen(pair) for pair in pairs)),
        "recall": ratio(right, sum(pair.keeps for pair in pairs)),
    }


def _coverage(outcomes: Sequence[Outcome]) -> tuple[float, int]:
    by_model: dict[str, list[bool]] = defaultdict(list)
    for one in outcomes:
        by_model[one.workload].append(one.is_covered)
    return fmean(fmean(own) for own in by_model.values()), len(by_model)


# ------------------------------------------------------------------------------------------------- the law behind it


_LAWS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "delays multiply": lambda one, other: one * other,
    "delays are what exceeds the card": lambda one, other: np.maximum(0.0, one + other - 1.0),
}
_ROUNDS = 20
_GRID = np.linspace(0.0, 1.0, 51)


def _law(root: Path) -> dict[str, float]:
    """Give how well one demand for each job explains the mean speeds of measured pairs, by law: mean absolute error.

    Source: P100 tables, whose pairs were measured. Demands are fitted, so that it judges the law and foretells nothing.
    """
    for path in files(root, LAW_SOURCE, "simulation_throughputs.json.gz"):
        table = json.loads(gzip.decompress(path.read_bytes())).get("p100", {})
        jobs = [job for job, others in table.items() if job.endswith(", 1)") and isinstance(others, dict)]
        jobs = [job for job in jobs if all(isinstance(table[job].get(other), list) for other in jobs)]
        alone = [own[0] if isinstance(own := table[job]["null"], list) else own for job in jobs]
        speeds = np.array([[table[job][other][0] / alone[at] for other in jobs] for at, job in enumerate(jobs)])
        if speeds.size:
            return {name: _fit_error(speeds, law) for name, law in _LAWS.items()}
    return {}


def _fit_error(speeds: np.ndarray, law: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
    means = (speeds + speeds.T) / 2.0
    demands = np.full(len(means), 0.7)
    for _ in range(_ROUNDS):
        for at in range(len(means)):
            other = np.repeat(demands[None, :], len(_GRID), axis=0)
            other[:, at] = _GRID
            misses = np.abs(1.0 / (1.0 + law(_GRID[:, None], other)) - means[at]).sum(axis=1)
            demands[at] = _GRID[int(misses.argmin())]
    return float(np.abs(1.0 / (1.0 + law(demands[:, None], demands[None, :])) - means).mean())


BENCHMARK = Benchmark(
    name="sharing",
    description="B5: speed of two jobs on one card from the telemetry of each alone, and which pairs may share one.",
    run=run,
)
