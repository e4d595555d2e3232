"""The account of GPU time: where every allocated GPU-second went (docs/concepts.md).

Identities, everywhere to 1e-6 relative:

* capacity = allocated + unallocated + down + unreported;
* allocated = used + held_idle + unknown;
* held_idle = no_process + with_process + gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from warehouse.contract.units import ratio

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class GpuSeconds:
    """GPU-seconds by what became of them; None where the evidence does not tell.

    ``used``: busy share by the document's rung x covered time. ``no_process``: stretches without a process of the
    owner. ``with_process``: stretches of at least ``waste.idle_stretch_seconds`` with a process and no activity.
    ``gaps``: the rest of the idle time, the short pauses of work that goes on. ``unknown``: time without data.
    ``failed`` overlaps with the others: all time of attempts that did not reach their own end.
    """

    allocated: float
    unknown: float
    failed: float
    used: float | None = None
    held_idle: float | None = None
    no_process: float | None = None
    with_process: float | None = None
    gaps: float | None = None
    capacity: float | None = None
    unallocated: float | None = None
    down: float | None = None
    unreported: float | None = None

    @property
    def used_ratio(self) -> float | None:
        """Give used over (used + held idle), the busy share of the time that is known; None when none is."""
        if self.used is None or self.held_idle is None:
            return None
        return ratio(self.used, self.used + self.held_idle)

    @property
    def coverage_ratio(self) -> float | None:
        """Give the share of the allocated time that is known; None when nothing was allocated."""
        return ratio(self.allocated - self.unknown, self.allocated)


def total(parts: Iterable[GpuSeconds]) -> GpuSeconds:
    """Add accounts up.

    A part whose ``used`` is unknown adds to ``unknown`` only. The three parts of ``held_idle`` are known only if
    they are known for every account that has any held idle time; capacity and its parts are never added, since
    several accounts share the same devices.
    """
    rows = list(parts)
    known = [row for row in rows if row.used is not None]
    split = all(row.gaps is not None for row in known if row.held_idle)
    return GpuSeconds(
        allocated=sum(row.allocated for row in rows),
        unknown=sum(row.unknown for row in rows),
        failed=sum(row.failed for row in rows),
        used=_sum(known, "used") if known else None,
        held_idle=_sum(known, "held_idle") if known else None,
        no_process=_sum(known, "no_process") if known and split else None,
        with_process=_sum(known, "with_process") if known and split else None,
        gaps=_sum(known, "gaps") if known and split else None,
    )


def _sum(rows: list[GpuSeconds], name: str) -> float:
    return sum(getattr(row, name) or 0.0 for row in rows)


def as_document(seconds: GpuSeconds) -> dict[str, object]:
    """Give the ``gpu_seconds`` object of the JSON contract."""
    return {item.name: getattr(seconds, item.name) for item in fields(seconds)}
