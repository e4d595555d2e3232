"""How long several processes of one device kept it busy together, from what each of them tells.

Each tells the share of every millisecond that its kernels covered. Under time slicing contexts do not overlap: shares
add up, to 1 at most. Under MPS they do; where nothing ties them to each other, a millisecond covered by ``u`` and by
``v`` is covered by ``1 - (1 - u)(1 - v)``. Whatever the slots say, the union is at least the longest of the processes'
own busy times, which are exact, and at most their sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from collector.tracer.layout import SLOT_FULL, SLOTS_MAX


def united_seconds(busy: Sequence[float], slots: Sequence[Sequence[int]], *, overlapping: bool) -> float:
    """Give the union of kernels within one second, in seconds.

    ``busy`` are the processes' own seconds, ``slots`` their shares of each millisecond out of ``SLOT_FULL``;
    ``overlapping`` says that an MPS server lets their contexts run at once.
    """
    if len(busy) == 1:
        return busy[0]
    if overlapping:
        idle = [1.0] * SLOTS_MAX
        for shares in slots:
            idle = [left * (SLOT_FULL - share) / SLOT_FULL for left, share in zip(idle, shares, strict=True)]
        covered = SLOTS_MAX - sum(idle)
    else:
        covered = sum(min(SLOT_FULL, total) for total in map(sum, zip(*slots, strict=True))) / SLOT_FULL
    return bounded(covered / SLOTS_MAX, busy)


def independent_seconds(busy: Sequence[float]) -> float:
    """Give the union of what is known by its length alone, such as copies, taking processes as independent."""
    idle = 1.0
    for one in busy:
        idle *= 1.0 - min(1.0, one)
    return bounded(1.0 - idle, busy)


def bounded(value: float, busy: Sequence[float]) -> float:
    """Bring a union within what must hold: at least the longest, at most the sum, and never above 1."""
    return max(max(busy, default=0.0), min(value, sum(busy), 1.0))
