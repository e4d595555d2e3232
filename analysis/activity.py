"""From rows of roll-ups to stretches: how long each device was watched, busy and idle, for whom.

A sample covers its cadence; up to ``waste.continuous_cadences`` it reaches to the next one. Samples of one device and
instant from several sources are one: of each metric the highest that anybody gave. What comes back is one row per
*stretch*: time of one owner on one device within an hour that is alike in whether there was a process and whether there
was activity by each rung (``contract.rollups``), cut at the edges of windows and allocations, so that any share of time
can be summed from it without going back to the samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.reading import Reading
from warehouse.contract import rollups
from warehouse.contract.metrics import RUNGS_BEST_FIRST, Rung
from warehouse.contract.rollups import NONE, SOME, STATES, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.frames import Bools, Floats, Ints, Tables
    from analysis.holdings import Holdings
    from analysis.rows import Rows
    from warehouse.contract.settings import Settings

__all__ = ["NONE", "QUALITIES", "SOME", "STATES", "UNKNOWN", "Activity", "gather_activity"]

QUALITIES = tuple(f"{name}_ratio" for name in rollups.QUALITIES)
"""How well busy time fills the card: means over covered time, never summands of the account."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Stretches in order of owner, device and time.

    ``device`` points into ``devices``, ``owner`` tells owners apart, ``holding`` points into the holdings (-1: none),
    ``window`` is the window between two edges (-1 before the first). ``seen_*`` is the coverage that the stretch lies
    in, ``held_*`` the stretch as far as the owner held the device, ``covered`` the covered time that lies in the window
    too. One that is not ``lasting`` is shorter than any pause, or made of several such. ``state[name]``
    is NONE, SOME or UNKNOWN, ``busy[rung]`` the busy share x covered seconds, ``quality[name]`` the same of a quality
    and ``quality_covered[name]`` the seconds in which it is known, ``memory_bytes`` the highest seen (NaN: never).
    """

    devices: Sequence[str]
    device: Ints
    owner: Ints
    holding: Ints
    window: Ints
    seen_start: Floats
    seen_end: Floats
    held_start: Floats
    held_end: Floats
    start: Floats
    covered: Floats
    lasting: Bools
    state: dict[str, Ints]
    busy: dict[Rung, Floats]
    quality: dict[str, Floats]
    quality_covered: dict[str, Floats]
    memory_bytes: Floats


def gather_activity(
    tables: Tables, held: Holdings, edges: Sequence[float], settings: Settings, owners: Sequence[str] | None = None
) -> Activity:
    """Find the stretches that matter for the windows between ``edges``.

    Time a little before the first and after the last edge is read too: a pause that began before the window keeps its
    true length. ``owners`` leaves only the samples of some attempts.
    """
    reading = Reading(tables, settings, owners).read(held, edges)
    return _arrange(_cut(reading, held, edges), reading)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Parts of rows: which row, which holding (-1: none), which window, from when to when it was held and counts."""

    row: Ints
    holding: Ints
    window: Ints
    held_start: Floats
    held_end: Floats
    start: Floats
    end: Floats


def _cut(reading: Reading, held: Holdings, edges: Sequence[float]) -> _Pieces:
    """Cut rows at the edges of what their owner held, then at those of windows."""
    rows = reading.rows
    start, end = rows.number["start"], rows.number["end"]
    row, holding = reading.holders(held).meet(rows)
    since, until = np.maximum(start[row], held.start[holding]), np.minimum(end[row], held.end[holding])
    meets = until > since
    alone = np.setdiff1d(np.arange(start.size), row[meets])
    row, holding = np.r_[row[meets], alone], np.r_[holding[meets], np.full(alone.size, -1)]
    since, until = np.r_[since[meets], start[alone]], np.r_[until[meets], end[alone]]
    marks = np.asarray(edges, dtype=np.float64)
    first = np.asarray(np.searchsorted(marks, since, side="right"), dtype=np.int64) - 1
    last = np.maximum(np.searchsorted(marks, until, side="left") - 1, first)
    count = last - first + 1
    piece = np.repeat(np.arange(row.size), count)
    window = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + first[piece]
    opened, closed = np.r_[-np.inf, marks], np.r_[marks, np.inf]
    return _Pieces(
        row[piece],
        holding[piece],
        window,
        since[piece],
        until[piece],
        np.maximum(since[piece], opened[window + 1]),
        np.minimum(until[piece], closed[window + 1]),
    )


def _arrange(cut: _Pieces, reading: Reading) -> Activity:
    rows = reading.rows
    order = np.lexsort((cut.window, cut.start, rows.device[cut.row], rows.owner[cut.row]))
    row = cut.row[order]
    share = _share(rows, cut)[order]
    code = rows.number["code"][row].astype(np.int64)
    owned = code != rollups.UNOWNED

    def state(place: int) -> Ints:
        return np.where(owned, np.floor_divide(code, 3**place) % 3, UNKNOWN)

    def part(name: str) -> Floats:
        return np.asarray(np.nan_to_num(rows.number[name][row]) * share)

    return Activity(
        devices=reading.devices,
        device=rows.device[row],
        owner=rows.owner[row],
        holding=cut.holding[order],
        window=cut.window[order],
        seen_start=rows.number["seen_start"][row],
        seen_end=rows.number["seen_end"][row],
        held_start=cut.held_start[order],
        held_end=cut.held_end[order],
        start=cut.start[order],
        covered=part("covered_seconds"),
        lasting=rows.number["lasting"][row] > 0,
        state={name: state(place) for place, name in enumerate(STATES)},
        busy={rung: part(f"{rung.value}_seconds") for rung in RUNGS_BEST_FIRST},
        quality={f"{name}_ratio": part(f"{name}_seconds") for name in rollups.QUALITIES},
        quality_covered={f"{name}_ratio": part(f"{name}_known_seconds") for name in rollups.QUALITIES},
        memory_bytes=rows.number["memory_used_bytes_max"][row],
    )


def _share(rows: Rows, cut: _Pieces) -> Floats:
    """Give what share of its row a piece is: all, or of a single sample the share of its time."""
    length = (rows.number["end"] - rows.number["start"])[cut.row]
    return np.asarray((cut.end - cut.start) / length)
