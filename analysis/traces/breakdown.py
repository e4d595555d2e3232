"""What kind of work a device did: kernels, copies, and of the kernels those that communicate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analysis.traces.overlap import sweep
from warehouse.contract.units import ratio
from warehouse.timeline import Activity, Timeline

COMMUNICATION = re.compile("nccl|rccl|hccl|oneccl|nvshmem|msccl", re.IGNORECASE)
"""What the names of kernels of communication libraries hold: NVIDIA's, AMD's, Habana's, Intel's, Microsoft's."""


class Work(StrEnum):
    """The class of a row: ``memory`` is what the copy engines do, copies and fills, not kernels bound by memory."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Lengths of unions in ns; classes that run at the same time count in each, so they may add up to more than busy.

    ``communication_overlap_ratio`` is the share of communication during which compute ran; None without communication.
    """

    gpu_bound_ns: int
    copy_ns: int
    gpu_busy_ns: int
    compute_ns: int
    communication_ns: int
    memory_ns: int
    communication_overlap_ratio: float | None


def work_of(activity: Activity, name: str) -> Work:
    """Give the class of an activity by that name."""
    if activity is not Activity.KERNEL:
        return Work.MEMORY
    return Work.COMMUNICATION if COMMUNICATION.search(name) else Work.COMPUTE


def breakdown_of(timeline: Timeline) -> Breakdown | None:
    """Sum a timeline by class of work; None without any work of a device."""
    window = timeline.window()
    if window is None:
        return None
    kernels, copies = timeline.kernels(), timeline.copies()
    communicates = np.array(
        [work_of(Activity.KERNEL, config.name) is Work.COMMUNICATION for config in timeline.configs]
    )
    is_communication = communicates[kernels.config] if len(kernels) else np.empty(0, np.bool_)
    parts = {
        Work.COMPUTE.value: kernels.where(~is_communication).union(),
        Work.COMMUNICATION.value: kernels.where(is_communication).union(),
    }
    both = sweep(parts, *window).get(frozenset(parts), 0)
    communication_ns = parts[Work.COMMUNICATION].length_ns
    return Breakdown(
        gpu_bound_ns=kernels.union().length_ns,
        copy_ns=copies.union().length_ns,
        gpu_busy_ns=timeline.busy().length_ns,
        compute_ns=parts[Work.COMPUTE].length_ns,
        communication_ns=communication_ns,
        memory_ns=copies.union().length_ns,
        communication_overlap_ratio=ratio(both, communication_ns),
    )
