"""Pauses: which idle time lasts, and why. Stretches side by side that stand alike are one pause."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from analysis.activity import NONE, SOME, UNKNOWN, Activity
from analysis.evidence import IdleStretch
from analysis.settings import IDLE_STRETCH_SECONDS

if TYPE_CHECKING:
    from analysis.frames import Floats, Ints
    from analysis.holdings import Holdings
    from warehouse.contract.metrics import Rung
    from warehouse.contract.settings import Settings

_TOUCHING_SECONDS = 1e-3
"""Two stretches this near each other touch: instants are kept to the microsecond."""


class Pause(IntEnum):
    """What the idle time of a stretch is called.

    ``UNTOLD``: no activity, and nobody says whether there was a process. A stretch with activity had one.
    """

    NO_PROCESS = 0
    WITH_PROCESS = 1
    GAP = 2
    UNTOLD = 3
    UNKNOWN = 4


@dataclass(frozen=True, slots=True)
class Pauses:
    """``kind`` of each stretch; for each run of alike stretches its first stretch, and when it began and ended.

    Runs are as long as the owner held the device, whether inside a window or not.
    """

    kind: Ints
    first: Ints
    start: Floats
    end: Floats


def pauses(activity: Activity, rung: Rung, settings: Settings) -> Pauses:
    """Name the idle time of every stretch by one rung (docs/concepts.md)."""
    state, process = activity.state[rung], activity.state["process"]
    kind = np.select(
        [state == UNKNOWN, process == NONE, state == SOME, process == SOME],
        [Pause.UNKNOWN, Pause.NO_PROCESS, Pause.GAP, Pause.WITH_PROCESS],
        Pause.UNTOLD,
    )
    lasting = activity.lasting
    kind[~lasting & (kind == Pause.WITH_PROCESS)] = Pause.GAP
    rows = np.flatnonzero((activity.holding >= 0) & lasting)
    if rows.size == 0:
        nothing = np.zeros(0)
        return Pauses(kind, rows, nothing, nothing)
    begins = np.ones(rows.size, dtype=np.bool_)
    begins[1:] = activity.held_start[rows[1:]] > activity.held_end[rows[:-1]] + _TOUCHING_SECONDS
    for alike in (kind, activity.owner, activity.device):
        begins[1:] |= alike[rows[1:]] != alike[rows[:-1]]
    at = np.flatnonzero(begins)
    start = np.minimum.reduceat(activity.held_start[rows], at)
    end = np.maximum.reduceat(activity.held_end[rows], at)
    short = (end - start < settings[IDLE_STRETCH_SECONDS])[np.cumsum(begins) - 1]
    kind[rows] = np.where(short & (kind[rows] == Pause.WITH_PROCESS), Pause.GAP, kind[rows])
    return Pauses(kind, rows[at], start, end)


def idle_stretches(
    activity: Activity, held: Holdings, rung: Rung, window: tuple[float, float], settings: Settings
) -> dict[int, tuple[IdleStretch, ...]]:
    """Give by attempt the pauses of at least ``waste.idle_stretch_seconds``, cut to the window, in order of time."""
    found = pauses(activity, rung, settings)
    names = {Pause.NO_PROCESS: "no_process", Pause.WITH_PROCESS: "with_process"}
    by_attempt: dict[int, list[IdleStretch]] = {}
    for row, start, end in zip(found.first, found.start.tolist(), found.end.tolist(), strict=True):
        kind = names.get(Pause(found.kind[row]))
        inside = min(end, window[1]) > max(start, window[0])
        if kind is None or not inside or end - start < settings[IDLE_STRETCH_SECONDS]:
            continue
        holding = activity.holding[row]
        stretch = IdleStretch(
            device_uuid=activity.devices[activity.device[row]],
            start_at=max(start, window[0]),
            end_at=min(end, window[1]),
            kind=kind,
            gpu_share=float(held.weight[holding]),
        )
        by_attempt.setdefault(int(held.attempt[holding]), []).append(stretch)
    return {attempt: tuple(sorted(own, key=lambda one: one.start_at)) for attempt, own in by_attempt.items()}
