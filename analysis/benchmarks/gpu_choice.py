"""B4: how long the same work takes on another GPU, judged for each ordered pair of GPU models of each source."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_least, at_most
from analysis.benchmarks import _gpu_choice_sources as sources
from analysis.benchmarks._gpu_choice_kernels import KERNELS, kernel_outcomes
from analysis.benchmarks._gpu_choice_slices import SLICES, slice_figures
from analysis.benchmarks._outcome import Outcome, best_constant_error, binomial_band, median_width
from analysis.reference_times import learned, workload_family
from analysis.transfer import matrix_peak
from warehouse.contract.units import ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from analysis.benchmarks._gpu_choice_sources import Pair
    from analysis.gpu_catalogue import Gpu

Key = tuple[str, str, str]

FEW = 3
"""Workloads that a site has measured on both GPUs, in the second setting."""
DIFFERS = math.log(1.1)
"""GPUs whose times differ by less than a tenth are equally good."""
_NOT_SHOWN = (
    "several GPUs of a job (mlperf_training: other counts than eight): such rows measure the links too",
    "gavel_throughputs: other tables than `simulation`, from which its figures come; they are the same jobs again",
    "what the work is made of (kernels, counters): only its number type and whether it trains are told",
    "other GPUs than those of the sources, hosts, drivers, frameworks and batch sizes: sources vary them too",
    "the weights and spreads of the model's parts, a few round numbers, were chosen by a look at all sources",
)


def run(request: BenchRequest) -> BenchResult:
    """Judge every source that is there."""
    outcomes: list[Outcome] = []
    few: list[Outcome] = []
    not_shown = list(_NOT_SHOWN)
    for name, read in sources.SOURCES.items():
        pairs = read(request.data_root)
        if not pairs:
            not_shown.append(f"{name}: not below {request.data_root}")
        outcomes += [_from_specifications(pair) for pair in pairs]
        few += _with_a_few_measured(pairs)
    kernels = kernel_outcomes(request.data_root)
    if not kernels:
        not_shown.append(f"{KERNELS}: no paired kernels below {request.data_root}")
    outcomes += kernels
    if not outcomes:
        return BenchResult({}, (at_least("pairs of GPUs", 0, 1),), not_shown)
    slices = slice_figures(request.data_root)
    if slices is None:
        not_shown.append(f"{SLICES}: not below {request.data_root}")
    judged = _judged(outcomes, few)
    figures = {**judged.figures, "slices": slices, "by_source": _by_source(judged.pairs)}
    return BenchResult(figures, judged.bars, not_shown, Outcome.COLUMNS, [one.row() for one in outcomes])


# --------------------------------------------------------------------------------------------------------- predictions


def _from_specifications(pair: Pair) -> Outcome:
    """Foretell from one measured GPU: the catalogue, and references without the judged family of work."""
    one = pair.origin
    found = learned().time_ratio(
        one.gpus, pair.target.gpus, one.number_type, one.kind, without=workload_family(one.workload)
    )
    baselines = {
        "peak ratio": _spec_ratio(pair, lambda gpu: matrix_peak(gpu, one.number_type)),
        "bandwidth ratio": _spec_ratio(pair, lambda gpu: gpu.memory_bytes_per_second),
    }
    return Outcome(pair.key, one.workload, one.item, found.range, pair.ratio, baselines)


def _spec_ratio(pair: Pair, fact: Callable[[Gpu], float | None]) -> float | None:
    """Give the time that a figure of the data sheet foretells; of variants, their geometric mean."""
    means: list[float] = []
    for side in (pair.origin, pair.target):
        facts = [value for gpu in side.gpus if (value := fact(gpu))]
        if len(facts) < len(side.gpus):
            return None
        means.append(fmean(math.log(value) for value in facts))
    return math.exp(means[0] - means[1])


def _with_a_few_measured(pairs: Sequence[Pair]) -> list[Outcome]:
    """Foretell with three other workloads measured on both GPUs: the next three by name, of other families."""
    by_key: dict[Key, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_key[pair.key].append(pair)
    found: list[Outcome] = []
    for own in by_key.values():
        first: dict[str, Pair] = {}
        for pair in sorted(own, key=lambda one: one.origin.item):
            first.setdefault(pair.origin.workload, pair)
        names = sorted(first)
        logs = {name: math.log(first[name].ratio) for name in names}
        found += [_with_a_few(pair, names, logs) for pair in own]
    return found


def _with_a_few(pair: Pair, names: Sequence[str], logs: Mapping[str, float]) -> Outcome:
    one, family = pair.origin, workload_family(pair.origin.workload)
    start = names.index(one.workload)
    after = [*names[start + 1 :], *names[:start]]
    chosen = [name for name in after if workload_family(name) != family][:FEW]
    local = [math.exp(logs[name]) for name in chosen]
    found = learned().time_ratio(one.gpus, pair.target.gpus, one.number_type, one.kind, local, family)
    mean = math.exp(fmean(logs[name] for name in chosen)) if chosen else None
    return Outcome(pair.key, one.workload, one.item, found.range, pair.ratio, {"mean of the three": mean})


# ------------------------------------------------------------------------------------------------------------- judging


@dataclass(frozen=True, slots=True)
class _PairJudged:
    """One ordered pair of GPUs: mean absolute errors of ours and of what stands beside it."""

    key: Key
    count: int
    error: float
    hindsight: float
    baselines: Mapping[str, float | None]
    few_error: float | None
    few_baseline: float | None

    @property
    def is_close(self) -> bool:
        """Say whether the error is near that of the best constant in hindsight, or small."""
        return self.error <= max(0.20, 1.25 * self.hindsight)

    @property
    def is_better(self) -> bool:
        """Say whether ours errs less than the ratios of peaks and of bandwidths."""
        return all(own is None or self.error < own for own in self.baselines.values())


@dataclass(frozen=True, slots=True)
class _Judged:
    figures: Mapping[str, Any]
    bars: Sequence[Bar]
    pairs: Sequence[_PairJudged]


def _judged(outcomes: Sequence[Outcome], few: Sequence[Outcome]) -> _Judged:
    pairs = _by_pair(outcomes, few)
    hindsight = median(one.hindsight for one in pairs)
    errors = [one.few_error for one in pairs if one.few_error is not None]
    hindsight_few = median([one.hindsight for one in pairs if one.few_error is not None] or [math.nan])
    differing = [one for one in outcomes if abs(math.log(one.truth)) > DIFFERS]
    right = ratio(sum((one.range.likely < 1) == (one.truth < 1) for one in differing), len(differing))
    by_pair_right = _mean_by(differing, lambda one: one.key, lambda one: (one.range.likely < 1) == (one.truth < 1))
    covered = _mean_by(outcomes, lambda one: (one.key[0], one.workload), lambda one: one.is_covered)
    clusters = len({(one.key[0], one.workload) for one in outcomes})
    band = binomial_band(0.8, clusters)
    not_close = [one.key for one in pairs if not one.is_close]
    few_error = median(errors) if errors else None
    median_error, better = median(one.error for one in pairs), fmean(one.is_better for one in pairs)
    figures: dict[str, Any] = {
        "pairs_of_gpus": len(pairs),
        "predictions": len(outcomes),
        "median_error": median_error,
        "median_error_of_best_constant_in_hindsight": hindsight,
        "share_of_pairs_near_that_constant": 1 - len(not_close) / len(pairs),
        "pairs_not_near_that_constant": [" ".join(key) for key in not_close],
        "share_of_pairs_better_than_both_ratios": better,
        "median_error_by_baseline": _baselines(pairs),
        "median_error_with_three_measured": few_error,
        "median_error_of_mean_of_those_three": median(
            [one.few_baseline for one in pairs if one.few_baseline is not None] or [math.nan]
        ),
        "faster_of_two_right": right,
        "faster_of_two_right_mean_over_pairs": by_pair_right,
        "coverage_of_80_percent_intervals": covered,
        "coverage_with_three_measured": _mean_by(
            few, lambda one: (one.key[0], one.workload), lambda one: one.is_covered
        ),
        "coverage_by_source": {
            name: _mean_by(
                [one for one in outcomes if one.key[0] == name], lambda one: one.workload, lambda one: one.is_covered
            )
            for name in sorted({one.key[0] for one in outcomes})
        },
        "workloads": clusters,
        "median_width_high_over_low": median_width(outcomes),
    }
    bars = (
        at_most("one measured GPU: median error over pairs", median_error, 0.20),
        at_most("one measured GPU: pairs above 1.25 x the best constant and above 20 %", len(not_close), 0),
        at_least("pairs better than both ratios", better, 0.80),
        at_most("three measured: median error over pairs", few_error, 1.25 * hindsight_few),
        at_least("faster of two, where they differ by a tenth", right, 0.90),
        Bar(
            "80 % intervals: coverage, pooled over workloads",
            covered,
            f"{band[0]:.3f} to {band[1]:.3f}",
            covered is not None and band[0] <= covered <= band[1],
        ),
    )
    return _Judged(figures, bars, pairs)


def _by_pair(outcomes: Sequence[Outcome], few: Sequence[Outcome]) -> list[_PairJudged]:
    grouped: dict[Key, list[Outcome]] = defaultdict(list)
    with_few: dict[Key, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        grouped[one.key].append(one)
    for one in few:
        with_few[one.key].append(one)
    return [
        _PairJudged(
            key,
            len(own),
            fmean(one.error for one in own),
            best_constant_error([one.truth for one in own]),
            {name: _baseline(own, name) for name in own[0].baselines},
            fmean(one.error for one in with_few[key]) if with_few[key] else None,
            _baseline(with_few[key], "mean of the three") if with_few[key] else None,
        )
        for key, own in grouped.items()
    ]


def _baseline(own: Sequence[Outcome], name: str) -> float | None:
    errors = [abs(value / one.truth - 1) for one in own if (value := one.baselines[name]) is not None]
    return fmean(errors) if errors else None


def _baselines(pairs: Sequence[_PairJudged]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for one in pairs:
        for name, value in one.baselines.items():
            if value is not None:
                found[name].append(value)
    return {name: median(values) for name, values in found.items()}


def _by_source(pairs: Sequence[_PairJudged]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in pairs:
        found[one.key[0]].append(
            {
                "from": one.key[1],
                "to": one.key[2],
                "count": one.count,
                "error": one.error,
                "best_constant_in_hindsight": one.hindsight,
                **{name.replace(" ", "_"): value for name, value in one.baselines.items()},
                "with_three_measured": one.few_error,
            }
        )
    return dict(found)


def _mean_by(
    outcomes: Sequence[Outcome], group: Callable[[Outcome], object], is_true: Callable[[Outcome], bool]
) -> float | None:
    """Give the mean over groups of the share within a group for which something is true."""
    groups: dict[object, list[bool]] = defaultdict(list)
    for one in outcomes:
        groups[group(one)].append(is_true(one))
    return fmean(fmean(own) for own in groups.values()) if groups else None


BENCHMARK = Benchmark(
    name="gpu_choice",
    description="B4: time of the same work on another GPU, by pairs of GPU models, beside ratios of the data sheets.",
    run=run,
)
