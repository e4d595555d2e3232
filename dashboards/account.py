"""The account of GPU time as people see it: one word, one colour and one sentence for each part, everywhere.

The colours hold up under red-green blindness and on light and dark ground (after Okabe and Ito,
https://jfly.uni-koeln.de/color/): work is blue, held and idle is orange, darker the less reason there is to hold,
and what is not known is grey.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the account: its key in documents, the word for it, its colour, and what it means.

    ``heading`` is the shorter word where the parts of held idle stand side by side.
    """

    key: str
    word: str
    heading: str
    colour: str
    meaning: str


USED = Part("used", "Used", "Used", "#0072B2", "busy by the rung named, while allocated")
GAPS = Part("gaps", "Held idle: gaps", "Gaps", "#F2C777", "short pauses of a job that goes on working")
WITH_PROCESS = Part(
    "with_process",
    "Held idle: with process",
    "With process",
    "#E08A00",
    "long stretches with a process that did nothing on the GPU",
)
NO_PROCESS = Part(
    "no_process", "Held idle: no process", "No process", "#B6420B", "stretches without any process of the owner"
)
UNKNOWN = Part("unknown", "Unknown", "Unknown", "#8C939C", "allocated, but there are no data or no owner of the data")
UNALLOCATED = Part("unallocated", "Unallocated", "Unallocated", "#CDD5DD", "nobody held the device")
DOWN = Part("down", "Down", "Down", "#3F4650", "the device or its node was lost")
UNREPORTED = Part("unreported", "Unreported", "Unreported", "#A5A1B5", "no inventory says whether the device was there")
HELD_IDLE = Part(
    "held_idle", "Held idle", "Held idle", "#E08A00", "allocated and not busy, in all three states together"
)
FAILED = Part(
    "failed", "Failed", "Failed", "#AA5A9B", "time of attempts that did not reach their own end; overlaps the others"
)

ALLOCATED_PARTS = (USED, GAPS, WITH_PROCESS, NO_PROCESS, UNKNOWN)
ALLOCATED_PARTS_COARSE = (USED, HELD_IDLE, UNKNOWN)
"""For a source that gives only a mean: then the three states of held idle are not known apart."""
CAPACITY_PARTS = (*ALLOCATED_PARTS, UNALLOCATED, DOWN, UNREPORTED)
CAPACITY_PARTS_COARSE = (*ALLOCATED_PARTS_COARSE, UNALLOCATED, DOWN, UNREPORTED)

RUNG_WORDS = {
    "driver_util": "driver utilization",
    "engine_active": "engine active",
    "gpu_bound": "GPU-bound time",
    "mean": "the site's own mean",
}
RUNG_MEANINGS = {
    "driver_util": "share of the driver's sample slices in which some kernel ran",
    "engine_active": "share of time in which the graphics or compute engine was busy",
    "gpu_bound": "length of the union of kernel intervals",
}
LADDER = {
    "driver_util_ratio": ("Driver utilization", "#8C5FB3"),
    "engine_active_ratio": ("Engine active", "#1B9E77"),
    "gpu_bound_ratio": ("GPU-bound time", "#0072B2"),
    "sm_active_ratio": ("SM activity", "#56B4E9"),
    "sm_occupancy_ratio": ("SM occupancy", "#B59A2B"),
    "tensor_active_ratio": ("Tensor active", "#B6420B"),
    "dram_active_ratio": ("DRAM active", "#8C939C"),
    "mfu_ratio": ("MFU", "#AA5A9B"),
}


def rung_word(rung: str | None) -> str:
    """Give the words for a rung of the ladder; for none, say so."""
    return "no rung: nothing says how busy the devices were" if rung is None else RUNG_WORDS.get(rung, rung)
