"""A rank's document as text for people: milliseconds and percent, absent values as ``—``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.tables import ABSENT, percent, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

NS_PER_MS = 1_000_000
KERNEL_CHARACTERS = 72
MOST_STEPS = 12
"""Steps are alike; ``--json`` has all of them."""

_TIMES = (
    ("gpu_bound_ns", "GPU-bound", "a kernel ran"),
    ("copy_ns", "copies", "a copy or fill ran"),
    ("gpu_busy_ns", "GPU busy", "either of both"),
    ("cpu_only_ns", "host only", "the host worked, the GPU waited"),
    ("gpu_only_ns", "GPU only", "the GPU worked, the host waited"),
    ("overlap_ns", "both", "host and GPU worked"),
    ("idle_ns", "neither", "nobody worked"),
    ("compute_ns", "compute", "a kernel that does not communicate"),
    ("communication_ns", "communication", "a kernel of NCCL, RCCL or their like"),
    ("memory_ns", "memory", "a copy or fill"),
    ("non_compute_ns", "non-compute", "HTA: busy, but no compute kernel ran"),
)


def rank_text(rank: Mapping[str, Any], kernels: int) -> RenderableType:
    """Show one rank: where the time went, its steps, and the kernels that took most of it."""
    parts: list[RenderableType] = [Text(), _title(rank)]
    span = rank["span_ns"]
    if span is None:
        parts.append(Text("  no work of a GPU in this profile: the GPU was not used, or not recorded"))
        parts.append(Text(f"  the host worked {_ms(rank['host_ns'])} ms"))
    else:
        parts.append(_times(rank, span))
        if rank["communication_overlap_ratio"] is not None:
            share = percent(rank["communication_overlap_ratio"])
            parts.append(Text(f"  {share} of communication was hidden behind compute"))
        if "hta" not in rank:
            parts += [_steps(rank["steps"])] if rank["steps"] else []
            parts += [_kernels(rank, kernels)] if kernels and rank["kernels"] else []
    parts += [
        plain(f"  left out: {refused['count']} events, {refused['reason']}; first at {refused['place']}", None)
        for refused in rank["refused"]
    ]
    return Group(*parts)


def _title(rank: Mapping[str, Any]) -> Text:
    number = "rank not told" if rank["rank"] is None else f"rank {rank['rank']}"
    world = "" if rank["world_size"] is None else f" of {rank['world_size']}"
    names = dict.fromkeys(device["name"] for device in rank["devices"] if device["name"])
    title = plain(rank["file"], None)
    title.stylize("bold")
    return title.append_text(plain(f"  {number}{world}  {', '.join(names)}"))


def _times(rank: Mapping[str, Any], span: int) -> Table:
    table = Table("time", "ms", "% of span", "meaning", box=None, pad_edge=True, padding=(0, 2))
    table.columns[1].justify = table.columns[2].justify = "right"
    table.add_row("span", _ms(span), "", "from the first to the last work of the GPU")
    for key, name, meaning in _TIMES:
        value = rank.get(key)
        if value is not None:
            table.add_row(name, _ms(value), percent(value / span if span else None), meaning)
    return table


def _steps(steps: list[dict[str, Any]]) -> Table:
    table = Table("step", "ms", "GPU-bound", "GPU busy", box=None, padding=(0, 2))
    for column in table.columns[1:]:
        column.justify = "right"
    for step in steps[:MOST_STEPS]:
        length = step["duration_ns"]
        shares = (percent(step[key] / length if length else None) for key in ("gpu_bound_ns", "gpu_busy_ns"))
        table.add_row(plain(step["name"]), _ms(length), *shares)
    if len(steps) > MOST_STEPS:
        table.add_row(f"and {len(steps) - MOST_STEPS} more")
    return table


def _kernels(rank: Mapping[str, Any], most: int) -> Table:
    rows = rank["kernels"]
    total = sum(row["total_ns"] for row in rows)
    table = Table("kernel", "launches", "ms", "% of kernels", "grid", "block", box=None, padding=(0, 2))
    for column in table.columns[1:4]:
        column.justify = "right"
    for row in rows[:most]:
        table.add_row(
            plain(row["name"], KERNEL_CHARACTERS),
            f"{row['launch_count']:,}",
            _ms(row["total_ns"]),
            percent(row["total_ns"] / total if total else None),
            _sizes(row["grid"]),
            _sizes(row["block"]),
        )
    if len(rows) > most:
        rest = sum(row["total_ns"] for row in rows[most:])
        table.add_row(f"and {len(rows) - most} more", "", _ms(rest), percent(rest / total if total else None))
    return table


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / NS_PER_MS:,.3f}"


def _sizes(sizes: list[int] | None) -> str:
    return ABSENT if sizes is None else "x".join(map(str, sizes))
