"""How long the same work takes on another GPU, from specifications and from what other work took on both.

Time on a GPU is taken as a sum of four parts, each of which shrinks with one figure of the data sheet: bandwidth,
matrix peak, FP32 peak, clock. What a piece of work is made of is not known, so the parts have weights with a spread.
GPUs differ from their data sheets, sites differ from each other, and work differs from work; each is a random effect of
a linear model in logarithms. Reference measurements (``reference_times``) and pairs that the site itself has measured
narrow it down; what stays open is the width of the answer. Everything is Gaussian, so that all of it has closed forms.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from analysis.estimate import Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from analysis.gpu_catalogue import Gpu

    Floats = NDArray[np.float64]


class NumberType(StrEnum):
    """The numbers that a piece of work computes with: half precision (mixed too), or single (TF32 where there is)."""

    HALF = "fp16"
    SINGLE = "fp32"


class WorkKind(StrEnum):
    """What a piece of work does. Inference varies less from model to model."""

    TRAINING = "training"
    INFERENCE = "inference"


PARTS: Final = ("memory bandwidth", "matrix peak", "FP32 peak", "clock")
WEIGHTS: Final = (4 / 7, 1 / 7, 1 / 7, 1 / 7)
"""Of the time on the reference GPU (A100 80 GB, half precision), before anything is learned: memory somewhat more than
all else together, as fits to single sources have it (0.5 to 0.9); the rest, which they cannot tell apart, equally."""
WEIGHT_SPREAD: Final = 0.1
"""Standard deviation, in logarithms, of what those weights are on average over all work."""
WORK_SPREAD: Final = 0.7
"""The same for the weights of one piece of work."""
GPU_SPREAD: Final = 0.1
"""How far, in logarithms of time, a GPU model stands from its data sheet everywhere."""
SITE_SPREAD: Final = 0.05
"""How far it does so at one site: its hosts, clocks, cooling, software."""
NOISE: Final = 0.3
"""What one measurement, on its host with its software, differs from another of the same work on the same GPU. This and
the spreads are round numbers near which the result of ``trueload bench gpu-choice`` hardly changes."""
COVERED: Final = 0.8
"""Share of outcomes that low and high enclose."""
_GAUSSIAN: Final = 1.2816
_MOST_ROWS_COUNT: Final = 25
"""However many rows a source has, it weighs no more than this many: they share their machines and their software."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One piece of work that was measured on several GPU models: seconds on each, all for the same amount of it."""

    source: str
    family: str
    number_type: NumberType
    kind: WorkKind
    seconds: tuple[tuple[Gpu, float], ...]


@dataclass(frozen=True, slots=True)
class TimeRatio:
    """Time on the target over time on the origin. ``local_count``: pairs of the site's own that it rests on."""

    range: Range
    local_count: int
    reference_models: tuple[str, ...]


def missing_facts(gpu: Gpu) -> tuple[str, ...]:
    """Give the facts that the catalogue lacks for an estimate from specifications."""
    needed = ("memory_bytes_per_second", "fp32_flops_per_second", "boost_clock_hertz")
    return tuple(name for name in needed if not getattr(gpu, name))


def matrix_peak(gpu: Gpu, number_type: NumberType) -> float | None:
    """Give the highest dense peak for numbers of a type, in FLOP/s: on tensor cores where there are any."""
    if number_type == NumberType.HALF:
        best = gpu.fp16_tensor_flops_per_second or gpu.fp16_flops_per_second
    else:
        best = gpu.tf32_tensor_flops_per_second
    return best or gpu.fp32_flops_per_second


@dataclass(frozen=True, slots=True)
class _Place:
    """A GPU in the model: logarithm of the seconds beside the reference GPU's, and the shares of its parts in them."""

    model: str
    number_types: tuple[NumberType, ...]
    log_seconds: float
    shares: Floats


class Learned:
    """The model after it has seen reference measurements. ``half_widths``: of 80 % of outcomes, in deviations."""

    def __init__(self, reference_gpu: Gpu, references: Sequence[Reference]) -> None:
        self._base = _log_rates((reference_gpu,), NumberType.HALF)
        measured = [(one, gpu) for one in references for gpu, _ in one.seconds]
        known = sorted({(gpu.model, one.number_type) for one, gpu in measured})
        own = sorted({(one.source, gpu.model) for one, gpu in measured})
        self._at = {name: len(PARTS) + index for index, name in enumerate(known)}
        self._own_at = {name: len(PARTS) + len(known) + index for index, name in enumerate(own)}
        spreads = [WEIGHT_SPREAD] * len(PARTS) + [GPU_SPREAD] * len(known) + [SITE_SPREAD] * len(own)
        self._prior = np.array(spreads) ** -2.0
        self._solved: dict[str | None, tuple[Floats, Floats]] = {}
        self._sums = self._summed(references, defaultdict(lambda: 1.0))
        scatter = self._scatter(references)
        self._solved.clear()
        self._sums = self._summed(references, scatter)
        self.half_widths = self._calibrated(references)

    def time_ratio(
        self,
        origin: Sequence[Gpu],
        target: Sequence[Gpu],
        number_type: NumberType | None = None,
        kind: WorkKind | None = None,
        local: Sequence[float] = (),
        without: str | None = None,
    ) -> TimeRatio:
        """Give the time on the target over the time on the origin for a piece of work that neither source has.

        Several GPUs on a side are variants that are not told apart. ``local`` are ratios that other work of the same
        site had between the two models. ``without`` leaves a family of work out of what was learned.

        Raises:
            ValueError: the catalogue lacks a fact of a GPU (``missing_facts``).

        """
        places = self._place(origin, number_type), self._place(target, number_type)
        mean, shared, own = self._moments(*places, without)
        if local:
            trust = shared / (shared + own / len(local))
            mean += trust * (float(np.mean([log(ratio) for ratio in local])) - mean)
            shared *= 1 - trust
        half = self.half_widths[kind or WorkKind.TRAINING] * sqrt(shared + own)
        known = {place.model for place in places if any((place.model, one) in self._at for one in place.number_types)}
        return TimeRatio(Range(exp(mean - half), exp(mean), exp(mean + half)), len(local), tuple(sorted(known)))

    def _place(self, gpus: Sequence[Gpu], number_type: NumberType | None) -> _Place:
        types = (number_type,) if number_type else tuple(NumberType)
        rates = np.mean([_log_rates(gpus, one) for one in types], axis=0) - self._base
        parts = np.array(WEIGHTS) * np.exp(-rates)
        return _Place(gpus[0].model, types, float(np.log(parts.sum())), parts / parts.sum())

    def _moments(self, origin: _Place, target: _Place, without: str | None) -> tuple[float, float, float]:
        """Give mean, variance that all work shares, and variance of one piece of work, of the logarithm of a ratio."""
        mean, covariance = self._posterior(without)
        row = self._row(target) - self._row(origin)
        shared = float(row @ covariance @ row)
        if origin.model != target.model:
            shared += 2 * SITE_SPREAD**2 + self._unseen(origin) + self._unseen(target)
        differs = target.shares - origin.shares
        own = WORK_SPREAD**2 * float(differs @ differs) + 2 * NOISE**2
        return target.log_seconds - origin.log_seconds + float(row @ mean), shared, own

    def _unseen(self, place: _Place) -> float:
        """Give the variance of how far a GPU stands from its data sheet, where no reference has it."""
        types = place.number_types
        return GPU_SPREAD**2 * sum((place.model, one) not in self._at for one in types) / len(types)

    def _row(self, place: _Place, source: str | None = None) -> Floats:
        row = np.zeros(len(self._prior))
        row[: len(PARTS)] = place.shares
        for number_type in place.number_types:
            at = self._at.get((place.model, number_type))
            if at is not None:
                row[at] = 1.0 / len(place.number_types)
        if source is not None:
            row[self._own_at[source, place.model]] = 1.0
        return row

    def _summed(
        self, references: Sequence[Reference], scatter: Mapping[str, float]
    ) -> dict[str, tuple[Floats, Floats]]:
        """Give what each family of work adds to the normal equations; sources that scatter more count less."""
        counts: dict[str, int] = defaultdict(int)
        for one in references:
            counts[one.source] += 1
        size = len(self._prior)
        sums: dict[str, tuple[Floats, Floats]] = defaultdict(lambda: (np.zeros((size, size)), np.zeros(size)))
        for one in references:
            weight = min(1.0, _MOST_ROWS_COUNT / counts[one.source]) / scatter[one.source]
            precision, pull = self._equations(one)
            matrix, vector = sums[one.family]
            sums[one.family] = (matrix + weight * precision, vector + weight * pull)
        return dict(sums)

    def _equations(self, one: Reference) -> tuple[Floats, Floats]:
        """Compare each GPU with the first: what the work itself weighs drops out."""
        places = [self._place((gpu,), one.number_type) for gpu, _ in one.seconds]
        logs = np.log([seconds for _, seconds in one.seconds]) - [place.log_seconds for place in places]
        rows = np.array([self._row(place, one.source) for place in places])
        shares = np.array([place.shares for place in places])
        count = len(places) - 1
        contrast = np.hstack([-np.ones((count, 1)), np.eye(count)])
        spread = contrast @ shares
        inverse = np.linalg.inv(WORK_SPREAD**2 * spread @ spread.T + NOISE**2 * contrast @ contrast.T)
        design = contrast @ rows
        return design.T @ inverse @ design, design.T @ inverse @ (contrast @ logs)

    def _posterior(self, without: str | None) -> tuple[Floats, Floats]:
        key = without if without in self._sums else None
        if key not in self._solved:
            precision, pull = np.diag(self._prior), np.zeros(len(self._prior))
            for family, (matrix, vector) in self._sums.items():
                if family != key:
                    precision, pull = precision + matrix, pull + vector
            covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
            self._solved[key] = (covariance @ pull, covariance)
        return self._solved[key]

    def _scatter(self, references: Sequence[Reference]) -> dict[str, float]:
        """Give by source how much larger its squared misses are than foretold, and at least 1."""
        squares: dict[str, list[float]] = defaultdict(list)
        for one, miss in self._misses(references):
            squares[one.source].append(miss**2)
        return {source: max(1.0, float(np.mean(own))) for source, own in squares.items()}

    def _calibrated(self, references: Sequence[Reference]) -> dict[WorkKind, float]:
        """Give how many deviations enclose 80 % of the outcomes. Sources count the same, however many rows they have.

        Where there are no references of a kind, as for a Gaussian.
        """
        misses: dict[WorkKind, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for one, miss in self._misses(references):
            misses[one.kind][one.source].append(miss)
        return {kind: _quantile(misses[kind].values(), COVERED) if kind in misses else _GAUSSIAN for kind in WorkKind}

    def _misses(self, references: Sequence[Reference]) -> Iterator[tuple[Reference, float]]:
        """Foretell each pair of each reference without its family, and give the miss in deviations."""
        for one in references:
            for (origin, before), (target, after) in itertools.combinations(one.seconds, 2):
                places = self._place((origin,), one.number_type), self._place((target,), one.number_type)
                mean, shared, own = self._moments(*places, one.family)
                yield one, abs(log(after / before) - mean) / sqrt(shared + own)


def _quantile(groups: Iterable[Sequence[float]], share: float) -> float:
    """Give a quantile of all values, each group weighing the same."""
    values = sorted((value, 1.0 / len(group)) for group in groups for value in group)
    whole, passed = sum(weight for _, weight in values), 0.0
    for value, weight in values:
        passed += weight
        if passed >= share * whole:
            return value
    return values[-1][0]


def _log_rates(gpus: Sequence[Gpu], number_type: NumberType) -> Floats:
    """Give the logarithms of a GPU's four rates; of variants, their mean."""
    rates: list[Floats] = []
    for gpu in gpus:
        found = (
            gpu.memory_bytes_per_second,
            matrix_peak(gpu, number_type),
            gpu.fp32_flops_per_second,
            gpu.boost_clock_hertz,
        )
        if not all(found):
            raise ValueError(f"{gpu.id}: the catalogue lacks {', '.join(missing_facts(gpu))}")
        rates.append(np.log(np.array(found, dtype=float)))
    return np.asarray(np.mean(rates, axis=0))
