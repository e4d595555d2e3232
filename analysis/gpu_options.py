"""Every other GPU for a piece of work: time, price and energy beside those of the GPU that it has, with ranges.

The time is foretold by whichever of four estimators has the narrowest range for the evidence at hand: run times of the
same family on both models; waves of its traced kernels; the model of ``transfer`` with what other families of the site
measured; the same with data sheets and references alone. Prices are compared at one provider; the site's own replace
the dated examples.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Final

from analysis import waves
from analysis.estimate import Range
from analysis.reference_times import learned
from analysis.transfer import missing_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from analysis.gpu_catalogue import Catalogue, Gpu, MigProfile
    from analysis.gpu_site import SiteGpus
    from analysis.waves import Work

SLICE_EXPONENTS: Final = (0.15, 0.6, 1.0)
"""Time on a MIG slice is the time that shrinking every part of the card with the slice foretells, to a power: low,
likely, high. From eight models on slices of an A100 (MISO, MIT licence), 80 % of which lie between: most do not fill
the card."""
SLICE_NEEDS: Final = "how many SMs the work keeps busy is not known"
_PEAKS: Final = ("fp32_flops_per_second", "tf32_tensor_flops_per_second", "fp16_tensor_flops_per_second")
_MEASURED, _WAVES, _SITE, _SHEETS = "measured", "waves", "transfer", "specifications"
KNOWN_ERRORS: Final = {
    _MEASURED: "run times of the family itself; its range is that of their means",
    _WAVES: "kernels measured on V100 and A100 were foretold 12 to 20 % off on average, their sum 2 %",
    _SITE: "with three other workloads measured on both GPUs, pairs of models were foretold 20 % off at the median",
    _SHEETS: "without any, pairs of models were foretold 20 % off at the median, single workloads up to twice",
}
"""Each estimator, and what is known of its error (``trueload bench gpu-choice``)."""
_CONFIDENCES: Final = {_MEASURED: "measured", _WAVES: "modelled", _SITE: "calibrated", _SHEETS: "calibrated"}


@dataclass(frozen=True, slots=True)
class Subject:
    """What is known of the work. ``busy_ratio`` is the share of its working time in which the GPU is busy.

    ``memory_bytes`` is the most that it needs on one GPU, ``sm_active_ratio`` its SM activity over that time; None: not
    known. ``may_slice``: a MIG slice could serve it, for it holds one GPU.
    """

    subject_id: str
    model: str
    gpus: tuple[Gpu, ...]
    busy_ratio: float
    memory_bytes: float | None
    works: tuple[Work, ...] = ()
    sm_active_ratio: float | None = None
    may_slice: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """One other GPU, or a slice of the one there is. Ratios are over the present GPU: time, price, cost, energy.

    ``cost`` is time x price; None where no provider prices both. ``fits`` is None where a memory size is not known.
    """

    name: str
    gpus: tuple[Gpu, ...]
    profile: str | None
    time: Range
    estimator: str
    how: str
    price: Range | None
    price_how: str
    cost: Range | None
    energy: Range | None
    memory_bytes: float | None
    fits: bool | None

    @property
    def confidence(self) -> str:
        """Give how sure the time is, in the words of recommendations."""
        return "modelled" if self.profile else _CONFIDENCES[self.estimator]


@dataclass(frozen=True, slots=True)
class NoOption:
    """A GPU of which nothing can be foretold, and why."""

    name: str
    reason: str


def options(
    subject: Subject, names: Iterable[str], site: SiteGpus, memory_margin_ratio: float
) -> list[Option | NoOption]:
    """Give every GPU of some names, and every slice of the present one, for a piece of work."""
    own = {gpu.id for gpu in subject.gpus}
    found: list[Option | NoOption] = []
    for name in names:
        gpus = site.gpus(name)
        if not gpus:
            found.append(NoOption(name, "the catalogue does not know it"))
        elif not own & {gpu.id for gpu in gpus}:
            found.append(_option(subject, name, gpus, site, memory_margin_ratio))
    if subject.may_slice and len(subject.gpus) == 1:
        found += _slices(subject, site.catalogue, memory_margin_ratio)
    return found


def _option(subject: Subject, name: str, gpus: tuple[Gpu, ...], site: SiteGpus, margin: float) -> Option | NoOption:
    estimates = list(_estimates(subject, name, gpus, site))
    if not estimates:
        lacking = {fact for gpu in (*subject.gpus, *gpus) for fact in missing_facts(gpu)}
        return NoOption(name, f"the catalogue lacks {', '.join(sorted(lacking))}")
    estimator, time, how = min(estimates, key=lambda one: one[1].high / one[1].low)
    price, price_how = price_ratio(site.catalogue, subject.gpus, gpus)
    memory = min((gpu.memory_bytes for gpu in gpus if gpu.memory_bytes), default=None)
    return Option(
        name,
        gpus,
        None,
        time,
        estimator,
        how,
        price,
        price_how,
        None if price is None else times(time, price),
        _energy(subject, gpus, time),
        memory,
        _fits(subject.memory_bytes, memory, margin),
    )


def _estimates(subject: Subject, name: str, gpus: tuple[Gpu, ...], site: SiteGpus) -> Iterator[tuple[str, Range, str]]:
    own = site.measured_by(subject.subject_id, subject.model, name)
    if own is not None:
        yield (
            _MEASURED,
            own.range,
            f"{own.counts[0]} and {own.counts[1]} completed runs of the family on the two models",
        )
    traced = _by_waves(subject, gpus)
    if traced is not None:
        yield _WAVES, traced, "waves of the traced kernels; the host's time stays as it is"
    if any(missing_facts(gpu) for gpu in (*subject.gpus, *gpus)):
        return
    local = site.of_others(subject.subject_id, subject.model, name)
    found = learned().time_ratio(subject.gpus, gpus, local=local)
    time = with_host(found.range, subject.busy_ratio)
    if local:
        yield _SITE, time, f"data sheets, references and {len(local)} other families of the site on both models"
    else:
        known = " and ".join(found.reference_models) or "neither model"
        yield _SHEETS, time, f"data sheets, and reference measurements of {known}"


def _by_waves(subject: Subject, gpus: tuple[Gpu, ...]) -> Range | None:
    before, after = waves.card_of(subject.gpus[0]), waves.card_of(gpus[0])
    if not subject.works or before is None or after is None:
        return None
    ratios = [(work, waves.work_on(work, before, after, waves.KERNEL_HALF_WIDTH)) for work in subject.works]
    whole = math.fsum(work.seconds for work, _ in ratios)
    return Range(*(math.fsum(getattr(one, word) for _, one in ratios) / whole for word in ("low", "likely", "high")))


def with_host(gpu_time: Range, busy_ratio: float) -> Range:
    """Give the ratio of the whole time, of which the GPU is busy for a share: the rest, the host's, stays as it is."""
    return gpu_time.rising(lambda ratio: 1 - busy_ratio + busy_ratio * ratio)


def times(one: Range, other: Range) -> Range:
    """Multiply two ranges of independent quantities: widths add up in squares, in logarithms."""

    def end(word: str) -> float:
        own, its = (abs(math.log(getattr(each, word) / each.likely)) for each in (one, other))
        return math.hypot(own, its)

    likely = one.likely * other.likely
    return Range(likely * math.exp(-end("low")), likely, likely * math.exp(end("high")))


def _energy(subject: Subject, gpus: tuple[Gpu, ...], time: Range) -> Range | None:
    """Give energy over that of the present GPU, both drawing the same share of their board power."""
    before, after = ([gpu.board_power_watts for gpu in side if gpu.board_power_watts] for side in (subject.gpus, gpus))
    return time.times(median(after) / median(before)) if before and after else None


def _fits(needed: float | None, there: float | None, margin: float) -> bool | None:
    if needed is None or there is None:
        return None
    return needed <= there * (1 - margin)


# --------------------------------------------------------------------------------------------------------------- slices


def _slices(subject: Subject, catalogue: Catalogue, margin: float) -> Iterator[Option | NoOption]:
    gpu = subject.gpus[0]
    for profile in catalogue.mig_profiles_of(gpu):
        is_plain = "+" not in profile.profile and profile.sm_ratio is not None and profile.memory_ratio is not None
        if not is_plain or profile.sm_ratio == 1 or missing_facts(gpu):
            continue
        if subject.sm_active_ratio is None:
            yield NoOption(profile.profile, SLICE_NEEDS)
        elif subject.sm_active_ratio > (profile.sm_ratio or 1.0):
            yield NoOption(profile.profile, "the work keeps more SMs busy than the slice has")
        else:
            yield _slice(subject, gpu, profile, margin)


def slice_time(gpu: Gpu, sm_ratio: float, memory_ratio: float) -> Range:
    """Give the time on a slice over that on the whole card, for work that keeps a GPU busy all the time.

    Raises:
        ValueError: the catalogue lacks a fact of the GPU (``transfer.missing_facts``).

    """
    part = replace(
        gpu,
        memory_bytes_per_second=(gpu.memory_bytes_per_second or 0.0) * memory_ratio,
        **{name: value * sm_ratio for name in _PEAKS if (value := getattr(gpu, name))},
    )
    full = max(1.0, learned().time_ratio([gpu], [part]).range.likely)
    return Range(*(full**exponent for exponent in SLICE_EXPONENTS))


def _slice(subject: Subject, gpu: Gpu, profile: MigProfile, margin: float) -> Option:
    sm, memory = profile.sm_ratio or 1.0, profile.memory_ratio or 1.0
    time = with_host(slice_time(gpu, sm, memory), subject.busy_ratio)
    share = max(sm, memory)
    memory_bytes = profile.memory_bytes or (gpu.memory_bytes * memory if gpu.memory_bytes else None)
    return Option(
        profile.profile,
        (gpu,),
        profile.profile,
        time,
        _SHEETS,
        "the slice's share of each part of the card, as far as models on slices of an A100 filled theirs",
        Range(share, share, share),
        f"the slice takes {share:.0%} of the card",
        time.times(share),
        None,
        memory_bytes,
        _fits(subject.memory_bytes, memory_bytes, margin),
    )


# --------------------------------------------------------------------------------------------------------------- prices


def price_ratio(catalogue: Catalogue, before: Sequence[Gpu], after: Sequence[Gpu]) -> tuple[Range | None, str]:
    """Give the price of an hour of one GPU over that of another, at providers that price both, and how it is known.

    The lowest, the median and the highest of the ratios; each provider's newest price of a kind counts.
    """
    old, new = _newest(catalogue, before), _newest(catalogue, after)
    common = sorted(old.keys() & new.keys(), key=str)
    if not common:
        return None, "no provider is known to price both"
    ratios = sorted(new[key][1] / old[key][1] for key in common)
    dates = sorted(part for key in common for side in (old, new) for part in side[key][0].split(" to ") if part)
    dated = f", dated {dates[0]} to {dates[-1]}" if dates else ""
    providers = sorted({str(key[0] or "the site") for key in common})
    said = ", ".join(providers[:3]) + (f" and {len(providers) - 3} more" if len(providers) > 3 else "")  # noqa: PLR2004
    return Range(ratios[0], median(ratios), ratios[-1]), f"prices of {said}{dated}"


_PriceKey = tuple[str | None, str | None, str, str | None]


def _newest(catalogue: Catalogue, gpus: Sequence[Gpu]) -> dict[_PriceKey, tuple[str, float]]:
    """Give the newest price by provider, kind, currency and scope; of several on that date, or variants, the median."""
    rows: dict[_PriceKey, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for gpu in gpus:
        for one in catalogue.prices_of(gpu):
            if one.per_gpu_hour > 0:
                rows[one.provider, one.kind, one.currency, one.scope][one.date or ""].append(one.per_gpu_hour)
    return {key: (max(own), median(own[max(own)])) for key, own in rows.items()}
