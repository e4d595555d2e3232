"""The kernels of each traced attempt as work for ``waves``: what ran, in which launch configuration, how long."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from analysis.frames import Columns, Tables, fetch, none_if_nan
from analysis.occupancy import Launch
from analysis.tracing import Rows
from analysis.waves import Kernel, Work

if TYPE_CHECKING:
    from analysis.holdings import Span

MOST_KERNELS: Final = 200
"""Kernels of an attempt that are looked at, those with the longest time in all; they stand for the rest."""
_CONFIGURATION: Final = ("attempt_key", "kernel_name", "grid", "block", "registers_per_thread", "shared_memory_bytes")


def gather_works(tables: Tables, window: Span) -> dict[str, Work]:
    """Give the work of every attempt whose processes were traced, launch configurations and all, within a window.

    Its time is what the tracer covered, its busy time the union of kernels on each device, added up.
    """
    rows = Rows(tables, window)
    own = rows.profiles(tables.kernel_profile)
    summed = own.group_by(*_CONFIGURATION).aggregate(launches=own.launch_count.sum(), total=own.total_seconds.sum())
    found = fetch(summed.order_by("attempt_key", summed.total.desc(), *_CONFIGURATION[1:]))
    kernels: dict[str, list[Kernel]] = defaultdict(list)
    for at, key in enumerate(found.values("attempt_key")):
        kernel = _kernel(found, at)
        if kernel is not None and len(kernels[key]) < MOST_KERNELS:
            kernels[key].append(kernel)
    if not kernels:
        return {}
    times = _times(rows)
    works = {key: Work(*times[key], tuple(listed)) for key, listed in kernels.items() if key in times}
    return {key: work for key, work in works.items() if work.kernels and work.busy_seconds > 0}


def _kernel(found: Columns, at: int) -> Kernel | None:
    blocks, threads = (_product(found.values(name)[at]) for name in ("grid", "block"))
    seconds = none_if_nan(found.numbers("total")[at])
    if not blocks or not threads or not seconds:
        return None
    registers, shared = (none_if_nan(found.numbers(name)[at]) for name in _CONFIGURATION[4:])
    launch = Launch(threads, None if registers is None else int(registers), None if shared is None else int(shared))
    return Kernel(float(found.numbers("launches")[at]), seconds, blocks, launch)


def _product(text: str | None) -> int | None:
    """Read a size such as 24x1x1; None: it was not told."""
    parts = (text or "").split("x")
    return math.prod(int(part) for part in parts) if all(part.isdecimal() for part in parts) else None


def _times(rows: Rows) -> dict[str, tuple[float, float]]:
    """Give by attempt the device-seconds that are covered and those with a kernel."""
    own = rows.samples(rows.tables.process_sample)
    at_once = own.group_by("attempt_key", "device_uuid", "sampled_at").aggregate(
        covered=own.covered_seconds.max(), bound=own.gpu_bound_seconds.sum()
    )
    sums = at_once.group_by("attempt_key").aggregate(covered=at_once.covered.sum(), bound=at_once.bound.sum())
    found = fetch(sums)
    covered, bound = found.numbers("covered"), found.numbers("bound")
    pairs = {key: (float(covered[at]), float(bound[at])) for at, key in enumerate(found.values("attempt_key"))}
    return {key: (whole, min(busy, whole)) for key, (whole, busy) in pairs.items() if whole > 0}
