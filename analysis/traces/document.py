"""The document of ``trueload trace --json``: one entry for each file or folder, one part for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from analysis.traces.breakdown import breakdown_of
from analysis.traces.hta import hta_tables, hta_view, overlap_ratio, temporal_breakdown
from analysis.traces.kernels import KernelRow, kernel_table
from analysis.traces.overlap import overlap_of
from analysis.traces.steps import step_table
from warehouse.contract.units import iso, ratio
from warehouse.timeline import Activity, Timeline

if TYPE_CHECKING:
    from warehouse.contract.errors import BadInputError

KIND = "kineto"
NS_PER_SECOND = 10**9
_ACTIVITIES = {Activity.KERNEL: "kernel", Activity.MEMCPY: "memcpy", Activity.MEMSET: "memset"}
_PARTS = (
    "span_ns",
    "gpu_bound_ns",
    "copy_ns",
    "gpu_busy_ns",
    "cpu_only_ns",
    "gpu_only_ns",
    "overlap_ns",
    "idle_ns",
    "compute_ns",
    "communication_ns",
    "memory_ns",
    "communication_overlap_ratio",
)

Document = dict[str, object]


class Convention(StrEnum):
    """Whose conventions the figures follow: ours, over all work in the file, or those of HTA 0.5.0."""

    OWN = "own"
    HTA = "hta"


def trace_document(files: Sequence[Document], errors: Sequence[BadInputError], convention: Convention) -> Document:
    """Give the whole document."""
    told = [{"file": error.file, "place": error.place, "detail": error.detail} for error in errors]
    return {"convention": convention.value, "files": list(files), "errors": told}


def file_document(file: str, ranks: Sequence[Document]) -> Document:
    """Give the entry of one file, or of a folder of ranks."""
    return {"file": file, "kind": KIND, "ranks": list(ranks)}


def rank_document(timeline: Timeline, file: str, convention: Convention = Convention.OWN) -> Document:
    """Give the part of one rank: whole nanoseconds, ratios of 0 to 1, null where the profile does not tell."""
    parts: Document = dict.fromkeys(_PARTS)
    overlap, breakdown = overlap_of(timeline), breakdown_of(timeline)
    if overlap is not None and breakdown is not None:
        parts |= asdict(overlap) | asdict(breakdown)
    document = {
        "rank": timeline.rank,
        "world_size": timeline.world_size,
        "file": file,
        "begin_at": _begin_at(timeline),
        **parts,
        "gpu_bound_ratio": None
        if breakdown is None or overlap is None
        else ratio(breakdown.gpu_bound_ns, overlap.span_ns),
        "host_ns": timeline.cpu.length_ns,
        "coverage_ratio": _coverage(timeline),
        **_counts(timeline),
        "devices": _devices(timeline),
        "steps": [asdict(step) for step in step_table(timeline)],
        "kernels": [_kernel(row) for row in kernel_table(timeline)],
        "event_counts": dict(timeline.event_counts),
        "refused": [asdict(refused) for refused in timeline.refused],
    }
    return document | _as_hta(timeline) if convention is Convention.HTA else document


def _as_hta(timeline: Timeline) -> Document:
    """Give what HTA has too in its way; null where it has no such figure; its tables under its own names."""
    view = hta_view(timeline)
    times = temporal_breakdown(view)
    parts: Document = dict.fromkeys(_PARTS)
    if times is not None:
        parts |= {
            "span_ns": times["kernel"],
            "gpu_busy_ns": times["kernel"] - times["idle"],
            "idle_ns": times["idle"],
            "compute_ns": times["compute"],
            "communication_overlap_ratio": overlap_ratio(view),
        }
    non_compute = None if times is None else times["non_compute"]
    return {
        **parts,
        "gpu_bound_ratio": None,
        "non_compute_ns": non_compute,
        "hta": hta_tables(view, timeline.rank or 0),
    }


def _begin_at(timeline: Timeline) -> str | None:
    window = timeline.window()
    if window is None or timeline.clock_zero_ns is None:
        return None
    return iso((timeline.clock_zero_ns + window[0]) / NS_PER_SECOND)


def _coverage(timeline: Timeline) -> float | None:
    """Give the share of the events of the file that could be read."""
    read, refused = sum(timeline.event_counts.values()), sum(refused.count for refused in timeline.refused)
    return ratio(read - refused, read)


def _counts(timeline: Timeline) -> Document:
    work = timeline.work()
    rows = {name: work.of(activity) for activity, name in _ACTIVITIES.items()}
    return {
        "gpu_events": len(work),
        "counts": {name: len(part) for name, part in rows.items()},
        "summed_ns": {name: int(part.duration_ns.sum()) for name, part in rows.items()},
        "streams": np.unique(work.stream).tolist(),
    }


def _devices(timeline: Timeline) -> list[Document]:
    work, kernels = timeline.work(), timeline.kernels()
    return [
        {
            "device": device,
            "name": timeline.device_names.get(device),
            "gpu_bound_ns": kernels.where(kernels.device == device).union().length_ns,
            "gpu_busy_ns": work.where(work.device == device).union().length_ns,
        }
        for device in np.unique(work.device).tolist()
    ]


def _kernel(row: KernelRow) -> Document:
    return {
        "name": row.config.name,
        "work": row.work.value,
        "grid": None if row.config.grid is None else list(row.config.grid),
        "block": None if row.config.block is None else list(row.config.block),
        "registers_per_thread": row.config.registers_per_thread,
        "shared_memory_bytes": row.config.shared_memory_bytes,
        "launch_count": row.launch_count,
        "total_ns": row.total_ns,
        "longest_ns": row.longest_ns,
    }
