"""What the tracer in a simulated job would have told: launches, steps, and the lengths of its kernels and gaps.

Kernels of a level are all told by its shares: their mean length is GPU-bound time over launches, and so on. The names
are those of kernels that such work runs, at made-up shares: a picture, not a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from collector.simulate.scenario import Level, SimulatedDevice
from warehouse.contract.model import KernelProfile, LengthProfile, ProcessSample
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collector.simulate.schedule import PlannedAttempt

SOURCE: Final = "kernels"
KERNELS: Final = (
    ("ampere_sgemm_128x64_nn", 0.2, 0.55, "32x4x1", "128x1x1"),
    ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_", 0.6, 0.3, "96x1x1", "128x1x1"),
    ("_ZN2at6native13reduce_kernelILi512ELi1ELi4EfEEvT_", 0.2, 0.15, "24x1x1", "32x16x1"),
)
"""Name, share of the launches, share of the kernel time, grid and block of each."""

SPREAD: Final = ((-1, 0.25), (0, 0.5), (1, 0.25))
"""Which share of kernels or gaps has a length of the mean's power of two, of the one below and of the one above."""

LONGEST_OF_MEAN: Final = 3.0
CELL_MINUTES: Final = 10
"""Minutes per row of a process: a tenth of the rows, and sums are the same."""


def process_sample(
    cluster: str,
    device: SimulatedDevice,
    attempt: PlannedAttempt,
    level: Level,
    span: tuple[float, float],
    busy: tuple[float, ...],
) -> ProcessSample:
    """Give what the process on a card did in a span; ``busy`` are its seconds of kernels, of copies, and of either."""
    bound_seconds, copy_seconds, busy_seconds = busy
    at, seconds = span[0], span[1] - span[0]
    launches = round(level.launches * seconds)
    return ProcessSample(
        cluster=cluster,
        node=device.node,
        device_uuid=device.uuid,
        pid=attempt.pids(device, level)[0],
        sampled_at=at,
        cadence_seconds=seconds,
        source=SOURCE,
        attempt_key=attempt.attempt_key(cluster),
        gpu_bound_seconds=round(bound_seconds, 3),
        copy_seconds=round(copy_seconds, 3),
        gpu_busy_seconds=round(busy_seconds, 3),
        launch_count=launches,
        process_key=profile_name(device, attempt),
        covered_seconds=seconds,
        source_lost_seconds=0.0,
        late_seconds=0.0,
        kernel_count=launches,
        kernel_seconds=round(bound_seconds, 3),
        gap_count=launches,
        steps_total=round(level.steps * (span[1] - attempt.start_at)),
    )


def profiles(
    cluster: str, device: SimulatedDevice, attempt: PlannedAttempt, level: Level, until_at: float
) -> Iterator[KernelProfile | LengthProfile]:
    """Give the profiles of every hour of an attempt up to ``until_at``; told again, the last of them has grown.

    Taken to be at this level all along, as traced jobs of a scenario are.
    """
    hour_at = math.floor(attempt.start_at / SECONDS_PER_HOUR) * SECONDS_PER_HOUR
    end_at = min(attempt.end_at, until_at)
    while hour_at < end_at:
        seconds = min(end_at, hour_at + SECONDS_PER_HOUR) - max(hour_at, attempt.start_at)
        yield from _of_hour(cluster, device, attempt, level, hour_at, seconds)
        hour_at += SECONDS_PER_HOUR


def profile_name(device: SimulatedDevice, attempt: PlannedAttempt) -> str:
    """Give the name of a process's profile: one process per card."""
    return f"{device.node}/{attempt.job_id}/{device.index}"


def _of_hour(
    cluster: str, device: SimulatedDevice, attempt: PlannedAttempt, level: Level, hour_at: float, seconds: float
) -> Iterator[KernelProfile | LengthProfile]:
    owner, profile = attempt.attempt_key(cluster), profile_name(device, attempt)
    launches, bound_seconds = level.launches * seconds, (level.gpu_bound or 0.0) * seconds
    for name, of_launches, of_time, grid, block in KERNELS:
        count, total = round(launches * of_launches), bound_seconds * of_time
        if count:
            longest = LONGEST_OF_MEAN * total / count
            yield KernelProfile(owner, profile, SOURCE, hour_at, name, count, total, longest, grid, block, 32, 0)
    for kind, mean in (("kernel", bound_seconds / launches), ("gap", (seconds - bound_seconds) / launches)):
        power = math.floor(math.log2(mean * 1e9))
        for step, share in SPREAD:
            shortest = 2 ** (power + step) / 1e9
            place = (owner, profile, SOURCE, hour_at, device.uuid, kind)
            yield LengthProfile(*place, shortest, 2 * shortest, round(launches * share))
