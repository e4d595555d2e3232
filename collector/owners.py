"""Whose a device is: the scheduler's word, checked against the processes that are seen on the device.

An owner is only named where nothing speaks against it. Where witnesses disagree the row says ``ambiguous`` and nobody
is blamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from collector.job_source import Holding

SCHEDULER: Final = "scheduler"
PROCESS: Final = "process"
AMBIGUOUS: Final = "ambiguous"


@dataclass(frozen=True, slots=True)
class Owner:
    """The attempt that a stretch of time on a device belongs to, and how that was found.

    ``attribution`` is ``scheduler`` (it holds the device), ``process`` (only its processes are seen there),
    ``ambiguous`` (witnesses disagree, or several hold the device), or None when nobody is known.
    """

    attempt_key: str | None
    share_ratio: float | None
    attribution: str | None


NOBODY: Final = Owner(None, None, None)
DISPUTED: Final = Owner(None, None, AMBIGUOUS)


def owner_of(
    holdings: Sequence[Holding], device_uuid: str, start_at: float, end_at: float, pids: Iterable[int]
) -> Owner:
    """Say whose ``[start_at, end_at)`` on a device is.

    ``pids`` are the processes seen on the device meanwhile. A process that belongs to another attempt is a witness
    against the scheduler's word; one that nobody knows is not.
    """
    middle = (start_at + end_at) / 2
    seen = set(pids)
    holding = [
        held
        for held in holdings
        if held.device_uuid == device_uuid and held.start_at <= middle and (held.end_at is None or middle < held.end_at)
    ]
    running = {held.attempt_key for held in holdings if held.pids is not None and held.pids & seen}
    if len(holding) > 1:
        return DISPUTED
    if not holding:
        return Owner(running.pop(), None, PROCESS) if len(running) == 1 else DISPUTED if running else NOBODY
    if running - {holding[0].attempt_key}:
        return DISPUTED
    return Owner(holding[0].attempt_key, holding[0].share_ratio, SCHEDULER)
