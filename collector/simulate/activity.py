"""What a card does at a level of work: means per minute, and values at a second, from the same numbers.

Noise comes from one fixed table: minute ``m`` of a card that runs an attempt with seed ``s`` uses entry ``s + m``. So
the past can be told in slices of tables, and the present asks for single entries of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from collector.simulate.scenario import MINUTE_SECONDS, GpuModel, Level

NOISE_LENGTH: Final = 4096
"""Entries of the noise table: the noise of a card repeats after 68 hours."""

_DRAW = random.Random(20260101)
NOISE: Final = tuple(_DRAW.uniform(-1, 1) for _ in range(NOISE_LENGTH))

POWER_FLOOR: Final = 0.12
POWER_OF_ENGINE: Final = 0.2
POWER_OF_SM: Final = 0.3
POWER_OF_TENSOR: Final = 0.45
"""Shares of the span between idle and limit: an active context, the engine, busy SMs, busy tensor pipes. Plausible
weights for a picture, not a model of any card."""

COOLANT_CELSIUS: Final = 29
CELSIUS_PER_LIMIT: Final = 46
"""Temperature is taken as linear in power, from an idle card's to that of one at its limit."""

PEAK_OVER_MEAN: Final = 1.06
"""The highest power within a minute over its mean."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What one card does over a minute (means) or at a second. Shares of time or of the card, base units."""

    driver_util_ratio: float
    engine_active_ratio: float
    sm_active_ratio: float
    sm_occupancy_ratio: float
    tensor_active_ratio: float
    dram_active_ratio: float
    memory_used_bytes: int
    power_watts: float
    temperature_celsius: float
    sm_clock_hertz: float
    process_count: int
    gpu_bound_ratio: float | None
    copy_ratio: float | None


def noise_index(seed: int, minute: int) -> int:
    """Give the entry of the noise table for a minute of an attempt's card."""
    return (seed + minute) % NOISE_LENGTH


def minute_mean(level: Level, model: GpuModel, index: int) -> Activity:
    """Give the means of a minute whose noise is entry ``index``."""
    return _scaled(level, model, 1 + level.spread * NOISE[index])


def at_second(level: Level, model: GpuModel, index: int, second: int) -> Activity:
    """Give the values at a second (0 to 59) of that minute; over the minute they average to ``minute_mean``.

    A level with stalls pauses at the beginning of the minute and is busier afterwards.
    """
    stalled_seconds = round(level.stall * MINUTE_SECONDS)
    scale = 1 + level.spread * NOISE[index]
    if second < stalled_seconds:
        return _scaled(level, model, 0.0)
    return _scaled(level, model, scale * MINUTE_SECONDS / (MINUTE_SECONDS - stalled_seconds))


def _scaled(level: Level, model: GpuModel, scale: float) -> Activity:
    engine, sm, tensor = level.engine * scale, level.sm * scale, level.tensor * scale
    works = level.engine > 0
    share = POWER_FLOOR + POWER_OF_ENGINE * engine + POWER_OF_SM * sm + POWER_OF_TENSOR * tensor if works else 0.0
    power_watts = model.idle_watts + (model.limit_watts - model.idle_watts) * share
    return Activity(
        driver_util_ratio=level.driver * scale,
        engine_active_ratio=engine,
        sm_active_ratio=sm,
        sm_occupancy_ratio=level.occupancy * scale,
        tensor_active_ratio=tensor,
        dram_active_ratio=level.dram * scale,
        memory_used_bytes=int(level.memory * model.memory_bytes),
        power_watts=power_watts,
        temperature_celsius=COOLANT_CELSIUS + CELSIUS_PER_LIMIT * power_watts / model.limit_watts,
        sm_clock_hertz=model.clock_hertz if works else model.idle_clock_hertz,
        process_count=level.processes,
        gpu_bound_ratio=None if level.gpu_bound is None else level.gpu_bound * scale,
        copy_ratio=None if level.copy is None else level.copy * scale,
    )
