"""A model of kernels in waves of blocks: what another GPU, a slice, or fusing B copies makes of a job's time.

A card holds ``SMs x resident blocks`` of a kernel at a time, a wave; a kernel of more blocks runs in several. Wave
scaling between GPUs follows Habitat (Yu et al., USENIX ATC 2021) as its published code has it; fusing asks the same
picture what B times the blocks need (HFTA, Wang et al., MLSys 2021). Its answers are hypotheses that measurements test:
the ranges here are the spread of the model's own assumptions, and callers widen them by the error that is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, exp, fsum, sqrt
from typing import TYPE_CHECKING, Final

from analysis.estimate import Range, exactly
from analysis.occupancy import SM_LIMITS, Launch, SmLimits, resident_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analysis.gpu_catalogue import Gpu

_BYTES: Final = 2.0**30
_NO_FLOPS: Final = 1e-9
"""GFLOP below which a kernel is taken to compute nothing, so that memory alone limits it (Habitat's code)."""

KERNEL_HALF_WIDTH: Final = 0.3
"""In logarithms: 80 % of kernels measured on two GPUs lie this near to what waves foretell, both ways between V100 and
A100 (paired kernels of the traces of HolisticTraceAnalysis, 89 of at least 20 us)."""


@dataclass(frozen=True, slots=True)
class Card:
    """What the model asks of a GPU or of a slice of one. ``flops_per_second`` is the FP32 peak; None: not known."""

    name: str
    sm_count: int
    clock_hertz: float
    memory_bytes_per_second: float
    limits: SmLimits
    flops_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel in one launch configuration: how often and how long in all. Bytes and FLOPs are of all launches."""

    launches: float
    seconds: float
    blocks: int
    launch: Launch
    dram_bytes: float | None = None
    flops: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A stretch of a job's work, such as a step or an hour: its length, the time with a kernel, and its kernels.

    ``busy_seconds`` is the length of the union of all kernels. The kernels listed may be fewer than all: they stand
    for the rest in proportion.
    """

    seconds: float
    busy_seconds: float
    kernels: Sequence[Kernel]


def card_of(gpu: Gpu) -> Card | None:
    """Give the card of a GPU of the catalogue; None where the catalogue lacks what the model needs."""
    limits = SM_LIMITS.get(gpu.compute_capability or "")
    if limits is None or not gpu.sm_count or not gpu.boost_clock_hertz or not gpu.memory_bytes_per_second:
        return None
    return Card(
        gpu.id, gpu.sm_count, gpu.boost_clock_hertz, gpu.memory_bytes_per_second, limits, gpu.fp32_flops_per_second
    )


def slice_of(card: Card, name: str, sm_count: int, memory_ratio: float) -> Card:
    """Give a MIG slice of a card: its own SMs, and its share of the memory's bandwidth."""
    flops = None if card.flops_per_second is None else card.flops_per_second * sm_count / card.sm_count
    return replace(
        card,
        name=name,
        sm_count=sm_count,
        memory_bytes_per_second=card.memory_bytes_per_second * memory_ratio,
        flops_per_second=flops,
    )


def wave_blocks(card: Card, kernel: Kernel) -> int:
    """Give the blocks of a kernel that a card holds at a time; 0: it cannot run there."""
    return card.sm_count * resident_blocks(card.limits, kernel.launch)


def wave_count(card: Card, kernel: Kernel) -> int:
    """Give the waves in which a launch runs, at least 1."""
    size = wave_blocks(card, kernel)
    return max(1, -(-kernel.blocks // size)) if size else 1


def empty_ratio(card: Card, kernel: Kernel) -> float | None:
    """Give the share of a launch's waves that stays empty, mostly in its last wave: the tail. None: it cannot run."""
    size = wave_blocks(card, kernel)
    return 1.0 - kernel.blocks / (wave_count(card, kernel) * size) if size else None


# --------------------------------------------------------------------------------------------------------- another card


def memory_bound_ratio(kernel: Kernel, target: Card) -> float | None:
    """Say how far memory limits a kernel on the target: 1 memory alone, 0 computing alone; None: nobody counted.

    Habitat's gamma: intensity over the target's ridge point, halved at the ridge. Peaks in FP32.
    """
    if kernel.flops is None or kernel.dram_bytes is None or target.flops_per_second is None:
        return None
    giga_flops, giga_bytes = kernel.flops / 1e9, kernel.dram_bytes / _BYTES
    if giga_flops / max(kernel.launches, 1.0) < _NO_FLOPS:
        return 1.0
    if giga_bytes == 0:
        return 0.0
    intensity = giga_flops / giga_bytes
    ridge = target.flops_per_second / target.memory_bytes_per_second
    return 0.5 * ridge / intensity if intensity > ridge else 1.0 - 0.5 * intensity / ridge


def kernel_on(kernel: Kernel, origin: Card, target: Card) -> Range:
    """Give the seconds of a kernel on another card.

    Where bytes and FLOPs were counted, the blend of memory and computing that they say. Else memory alone is likely, as
    Habitat's code has it, and computing alone is the other end; a kernel that fills a wave on neither card is likely
    halfway in ratio between that and staying as it is. (Habitat lets it stay; of kernels measured on V100 and A100
    those took 0.44 to 0.87 of their time, where bandwidth alone says 0.58.)
    """
    before, after = wave_blocks(origin, kernel), wave_blocks(target, kernel)
    is_small = not before or not after or (kernel.blocks < before and kernel.blocks < after)
    known = memory_bound_ratio(kernel, target)
    if known is not None:
        return exactly((_small if is_small else _full)(kernel, origin, target, known))
    memory, compute = _full(kernel, origin, target, 1.0), _full(kernel, origin, target, 0.0)
    if not is_small:
        return Range(min(memory, compute), memory, max(memory, compute))
    ends = (memory, kernel.seconds, _small(kernel, origin, target, 0.0))
    return Range(min(ends), sqrt(memory * kernel.seconds), max(ends))


def _full(kernel: Kernel, origin: Card, target: Card, gamma: float) -> float:
    memory = origin.memory_bytes_per_second / target.memory_bytes_per_second
    compute = origin.clock_hertz * origin.sm_count / (target.clock_hertz * target.sm_count)
    return float(kernel.seconds * memory**gamma * compute ** (1.0 - gamma))


def _small(kernel: Kernel, origin: Card, target: Card, gamma: float) -> float:
    rounds = ceil(kernel.blocks / target.sm_count) / ceil(kernel.blocks / origin.sm_count)
    return float(kernel.seconds * (origin.clock_hertz / target.clock_hertz * rounds) ** (1.0 - gamma))


def work_on(work: Work, origin: Card, target: Card, half_width: float | None = None) -> Range:
    """Give the seconds of a stretch of work on another card.

    ``half_width`` (in logarithms) puts a measured error of kernels in the place of the spread of assumptions. The
    host's part, when no kernel runs, is scaled by nothing. With busy time G of T: at least max(T - G, G'), when the
    host works on while kernels run; likely and at most T - G + G', when each waits for the other.

    Raises:
        ValueError: no kernel is known.

    """
    busy = _scaled_busy(work, lambda kernel: kernel_on(kernel, origin, target))
    if half_width is not None:
        busy = Range(busy.likely * exp(-half_width), busy.likely, busy.likely * exp(half_width))
    host = max(0.0, work.seconds - work.busy_seconds)
    return Range(max(host, busy.low), host + busy.likely, host + busy.high)


# -------------------------------------------------------------------------------------------------------- fusing copies


def fused_kernel(kernel: Kernel, card: Card, copies: int) -> Range:
    """Give the seconds of a kernel that does the work of ``copies`` (B) of it, B times the blocks, in one launch.

    Low: by whole waves, free while the first is not full. High: B times as long, no room at all. Where its DRAM traffic
    is known, no less than that traffic takes. Likely: halfway between in ratio, for want of a measurement. They are no
    bounds: a fused operator may choose another kernel.
    """
    alone, waves = kernel.seconds, wave_count(card, kernel)
    most = alone * copies
    grown = wave_count(card, replace(kernel, blocks=kernel.blocks * copies))
    least = min(most, max(alone * grown / waves, _traffic_seconds(kernel, card) * copies))
    return Range(least, min(most, max(least, sqrt(least * most))), most)


def _traffic_seconds(kernel: Kernel, card: Card) -> float:
    if kernel.dram_bytes is None:
        return 0.0
    return min(kernel.seconds, kernel.dram_bytes / card.memory_bytes_per_second)


def fused_work(work: Work, card: Card, copies: int) -> Range:
    """Give the seconds of a stretch in which ``copies`` fused members do their work together.

    With busy time G(B): at least max(T, G(B)), when the host's work overlaps the longer kernels; at most T - G + G(B),
    when it does not; likely halfway, for want of a measurement. Data loading is part of the host's time here: where
    each member loads its own data, take that part off first.

    Raises:
        ValueError: no kernel is known.

    """
    busy = _scaled_busy(work, lambda kernel: fused_kernel(kernel, card, copies))
    host = max(0.0, work.seconds - work.busy_seconds)
    least, most = max(work.seconds, busy.low), max(work.seconds, host + busy.high)
    together, apart = max(work.seconds, busy.likely), host + busy.likely
    return Range(least, min(most, max(least, (together + apart) / 2.0)), most)


def fusing_speedup(work: Work, card: Card, copies: int) -> Range:
    """Say how much faster B fused members are than the same members one after another: B x T / T(B), in [1, B].

    It is also how much less GPU time they need than members side by side on a card each.

    Raises:
        ValueError: no kernel is known.

    """
    return fused_work(work, card, copies).falling(lambda seconds: copies * work.seconds / seconds)


def _scaled_busy(work: Work, scaled: Callable[[Kernel], Range]) -> Range:
    """Scale the busy time as its kernels in all: kernels may overlap, and those listed stand for the rest."""
    known = fsum(kernel.seconds for kernel in work.kernels)
    if not known > 0:
        raise ValueError("no kernel is known")
    ranges = [scaled(kernel) for kernel in work.kernels]
    factor = work.busy_seconds / known
    return Range(*(fsum(getattr(one, word) for one in ranges) * factor for word in ("low", "likely", "high")))
