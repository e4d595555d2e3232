"""A profiler's timeline: what ran when, in integer nanoseconds, as columns. It knows neither files nor the store.

Instants are nanoseconds on the profiler's own clock; ``Timeline.clock_zero_ns`` says where that clock began. A double
would not do: at the size of an instant of today its steps are 0.25 microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
SmallInts: TypeAlias = npt.NDArray[np.int32]
Flags: TypeAlias = npt.NDArray[np.bool_]

NO_CORRELATION = -1
"""Stands in a column of correlation numbers for: the profiler gave none."""


class Activity(IntEnum):
    """What a row of the GPU's columns was doing. ``SYNC`` is a wait that the profiler books on a stream."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    SYNC = 3


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Disjoint half-open intervals, sorted: ``warehouse.contract.intervals`` as arrays, for millions of rows."""

    start_ns: Ints
    end_ns: Ints

    @staticmethod
    def union(start_ns: Ints, end_ns: Ints) -> Spans:
        """Merge intervals in any order; those that touch become one, empty ones vanish. O(n log n)."""
        real = end_ns > start_ns
        start_ns, end_ns = start_ns[real], end_ns[real]
        if not len(start_ns):
            return Spans(np.empty(0, np.int64), np.empty(0, np.int64))
        if np.any(start_ns[1:] < start_ns[:-1]):
            order = np.argsort(start_ns, kind="stable")
            start_ns, end_ns = start_ns[order], end_ns[order]
        reached = np.maximum.accumulate(end_ns)
        breaks = np.flatnonzero(start_ns[1:] > reached[:-1]) + 1
        first = np.concatenate(([0], breaks))
        last = np.concatenate((breaks - 1, [len(start_ns) - 1]))
        return Spans(start_ns[first], reached[last])

    @property
    def length_ns(self) -> int:
        """Sum the lengths."""
        return int((self.end_ns - self.start_ns).sum())

    def clip(self, since_ns: int, until_ns: int) -> Spans:
        """Keep what lies inside ``[since_ns, until_ns)``."""
        start, end = np.maximum(self.start_ns, since_ns), np.minimum(self.end_ns, until_ns)
        return Spans(start[end > start], end[end > start])


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """A kernel as it was launched. ``grid`` and ``block`` count blocks and threads; None where the profiler is silent.

    Copies and fills have one too, with their name alone.
    """

    name: str
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GpuEvents:
    """What devices did, one row each: ``activity`` by number, ``config`` by its place in ``Timeline.configs``."""

    start_ns: Ints
    duration_ns: Ints
    activity: SmallInts
    config: SmallInts
    device: Ints
    stream: Ints
    correlation: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Ints:
        """Give where each row ends."""
        return self.start_ns + self.duration_ns

    def where(self, rows: Flags | Ints) -> GpuEvents:
        """Keep some rows, in the order asked for."""
        return GpuEvents(
            self.start_ns[rows],
            self.duration_ns[rows],
            self.activity[rows],
            self.config[rows],
            self.device[rows],
            self.stream[rows],
            self.correlation[rows],
        )

    def of(self, *activities: Activity) -> GpuEvents:
        """Keep the rows of some activities."""
        chosen = np.zeros(len(self), np.bool_)
        for activity in activities:
            chosen |= self.activity == activity
        return self.where(chosen)

    def union(self) -> Spans:
        """Give the time in which at least one row ran."""
        return Spans.union(self.start_ns, self.end_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Calls of the host into the runtime or driver that bear a correlation number; ``api`` by its place in a table."""

    start_ns: Ints
    duration_ns: Ints
    correlation: Ints
    api: SmallInts
    apis: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration that the program announced to the profiler, such as ``ProfilerStep#5``.

    ``on_gpu``: not the stretch of the host, but the one from the first to the last of its work on a device.
    """

    name: str
    start_ns: int
    end_ns: int
    on_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Events that could not be used: a short fixed reason, how many, and the first with its place in the file."""

    reason: str
    count: int
    place: str
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One rank's profile.

    ``rank`` and ``world_size`` are None where the file does not say. ``cpu`` is the time in which some thread of the
    process was in an operator, in traced Python or in a call of the CUDA or HIP API; annotations (names that a program
    gives to stretches) are no work. ``clock_zero_ns`` is the instant, in ns since the epoch, at which the clock of all
    columns stood at 0; None when unknown. ``event_counts`` counts the events of the file by category, used or not.
    """

    rank: int | None
    world_size: int | None
    clock_zero_ns: int | None
    device_names: Mapping[int, str]
    gpu: GpuEvents
    configs: tuple[KernelConfig, ...]
    calls: Calls
    cpu: Spans
    steps: tuple[Step, ...]
    event_counts: Mapping[str, int]
    refused: tuple[Refused, ...]
    labels: Mapping[str, str]
    has_decimals: bool
    """Instants of the file were written with decimals, not as whole microseconds."""

    def kernels(self) -> GpuEvents:
        """Give the kernels."""
        return self.gpu.of(Activity.KERNEL)

    def copies(self) -> GpuEvents:
        """Give copies and fills, the work of copy engines."""
        return self.gpu.of(Activity.MEMCPY, Activity.MEMSET)

    def work(self) -> GpuEvents:
        """Give kernels, copies and fills; waits are no work."""
        return self.gpu.of(Activity.KERNEL, Activity.MEMCPY, Activity.MEMSET)

    def busy(self) -> Spans:
        """Give the time in which a kernel, a copy or a fill ran."""
        return self.work().union()

    def window(self) -> tuple[int, int] | None:
        """Give from where to where a device worked; None when it did not, or nobody looked."""
        work = self.work()
        if not len(work):
            return None
        return int(work.start_ns.min()), int(work.end_ns.max())


def concatenate(parts: Sequence[GpuEvents]) -> GpuEvents:
    """Put columns after each other, and order the rows by their start."""
    wide, narrow = np.empty(0, np.int64), np.empty(0, np.int32)
    every = [GpuEvents(wide, wide, narrow, narrow, wide, wide, wide), *parts]
    columns = [np.concatenate([getattr(part, item.name) for part in every]) for item in fields(GpuEvents)]
    joined = GpuEvents(*columns)
    return joined.where(np.argsort(joined.start_ns, kind="stable"))
