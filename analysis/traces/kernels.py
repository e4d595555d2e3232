"""The table of kernels: what ran how often and how long, by name and launch configuration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.traces.breakdown import Work, work_of
from warehouse.timeline import Activity, KernelConfig, Timeline


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One launch configuration: how often it ran, and the sum and the longest of its durations in ns."""

    config: KernelConfig
    work: Work
    launch_count: int
    total_ns: int
    longest_ns: int


def kernel_table(timeline: Timeline) -> tuple[KernelRow, ...]:
    """Give all kernels, those with the most time first; ties in order of name."""
    kernels = timeline.kernels()
    size = len(timeline.configs)
    counts = np.bincount(kernels.config, minlength=size)
    totals = np.zeros(size, np.int64)
    np.add.at(totals, kernels.config, kernels.duration_ns)
    longest = np.zeros(size, np.int64)
    np.maximum.at(longest, kernels.config, kernels.duration_ns)
    rows = [
        KernelRow(config, work_of(Activity.KERNEL, config.name), int(counts[at]), int(totals[at]), int(longest[at]))
        for at, config in enumerate(timeline.configs)
        if counts[at]
    ]
    return tuple(
        sorted(rows, key=lambda row: (-row.total_ns, row.config.name, row.config.grid or (), row.config.block or ()))
    )
