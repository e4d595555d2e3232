"""What a site tells of its GPU models: which there are, how long work took on several of them, how long one waits."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from analysis.estimate import Range
from analysis.gpu_file import read_catalogue
from analysis.gpu_names import find
from warehouse.contract.model import AttemptState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from analysis.evidence import AttemptEvidence
    from analysis.gpu_catalogue import Catalogue, Gpu

FEWEST_RUNS: Final = 3
"""Completed runs of a family on each of two models before its ratio is believed: two agree by chance."""
_MEMORY_TOLERANCE: Final = 0.15
"""A device tells up to a tenth less memory than its data sheet has."""
_Z80: Final = 1.2816
_LEAST_SPREAD: Final = 0.05
"""In logarithms: means of run times are never known better than this, however alike they are."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Run times of one family on two GPU models, the second over the first; ``counts`` are completed runs on each."""

    subject_id: str
    range: Range
    counts: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wait:
    """How long attempts waited between submission and start: the median, and of how many."""

    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class SiteGpus:
    """The catalogue as the site has it, and what its work tells. Models are named as drivers and schedulers do."""

    catalogue: Catalogue
    models: tuple[str, ...] = ()
    measured: Mapping[tuple[str, str], tuple[Measured, ...]] = field(default_factory=dict)
    waits: Mapping[str, Wait] = field(default_factory=dict)
    memory_bytes: Mapping[str, float] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)

    def gpus(self, name: str) -> tuple[Gpu, ...]:
        """Give the GPUs that a model's name means; the device's memory, where known, tells variants apart."""
        found = find(self.catalogue, name)
        seen = self.memory_bytes.get(name)
        near = tuple(gpu for gpu in found if seen and gpu.memory_bytes and _is_near(seen, gpu.memory_bytes))
        return near or found

    def measured_by(self, subject_id: str, origin: str, target: str) -> Measured | None:
        """Give what a family itself measured between two models."""
        pairs = self.measured.get((origin, target), ())
        return next((one for one in pairs if one.subject_id == subject_id), None)

    def of_others(self, subject_id: str, origin: str, target: str) -> tuple[float, ...]:
        """Give the likely ratios of all other families between two models."""
        pairs = self.measured.get((origin, target), ())
        return tuple(one.range.likely for one in pairs if one.subject_id != subject_id)


def site_gpus(
    attempts: Iterable[AttemptEvidence],
    families: Iterable[tuple[str, Sequence[AttemptEvidence]]] = (),
    catalogue: Catalogue | None = None,
) -> SiteGpus:
    """Gather what attempts and families of a window tell of the GPU models that they ran on."""
    by_model: dict[str, list[AttemptEvidence]] = defaultdict(list)
    for one in attempts:
        if one.gpu_model:
            by_model[one.gpu_model].append(one)
    measured: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for family_id, members in families:
        for pair, found in _ratios(family_id, members).items():
            measured[pair].append(found)
    memory = {model: [one.device_memory_bytes for one in own] for model, own in by_model.items()}
    waits = {model: _wait(own) for model, own in by_model.items()}
    partitions = {model: Counter(one.partition for one in own if one.partition) for model, own in by_model.items()}
    return SiteGpus(
        read_catalogue() if catalogue is None else catalogue,
        tuple(sorted(by_model)),
        {pair: tuple(own) for pair, own in measured.items()},
        {model: wait for model, wait in waits.items() if wait is not None},
        {model: min(known) for model, own in memory.items() if (known := [size for size in own if size])},
        {model: counted.most_common(1)[0][0] for model, counted in partitions.items() if counted},
    )


def _ratios(family_id: str, members: Iterable[AttemptEvidence]) -> dict[tuple[str, str], Measured]:
    """Compare the run times of a family's completed members on the same number of GPUs of different models."""
    logs: dict[tuple[str, float], list[float]] = defaultdict(list)
    for one in members:
        if one.state == AttemptState.COMPLETED and one.end_at is not None and one.end_at > one.start_at:
            logs[one.gpu_model or "", one.gpu_count].append(math.log(one.end_at - one.start_at))
    enough = {key: own for key, own in logs.items() if key[0] and len(own) >= FEWEST_RUNS}
    found: dict[tuple[str, str], Measured] = {}
    for origin, target in itertools.permutations(enough, 2):
        if origin[0] != target[0] and origin[1] == target[1]:
            found[origin[0], target[0]] = _ratio(family_id, enough[origin], enough[target])
    return found


def _ratio(family_id: str, before: Sequence[float], after: Sequence[float]) -> Measured:
    """Give the ratio of geometric means; its width is that of the two means, members differing as they do."""
    mean = fmean(after) - fmean(before)
    error = math.sqrt(_variance(before) / len(before) + _variance(after) / len(after))
    half = _Z80 * math.hypot(error, _LEAST_SPREAD)
    range_ = Range(math.exp(mean - half), math.exp(mean), math.exp(mean + half))
    return Measured(family_id, range_, (len(before), len(after)))


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _wait(attempts: Iterable[AttemptEvidence]) -> Wait | None:
    known = [one.start_at - one.submit_at for one in attempts if one.submit_at is not None]
    waited = [seconds for seconds in known if seconds >= 0]
    return Wait(median(waited), len(waited)) if waited else None


def _is_near(seen: float, stated: float) -> bool:
    return abs(seen / stated - 1) <= _MEMORY_TOLERANCE
