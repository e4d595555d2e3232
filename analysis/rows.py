"""Rows of roll-ups as arrays, what they have in common with holdings, and what is summed up by which rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warehouse.contract.rollups import QUALITIES, RUNGS
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.frames import Bools, Floats, Ints
    from analysis.holdings import Holdings
    from warehouse.contract.rollups import RolledHour, Rule

SHARES = (*RUNGS, *QUALITIES)
INSTANTS = ("start", "end", "seen_start", "seen_end")
SUMS = (*(f"{name}_seconds" for name in SHARES), *(f"{name}_known_seconds" for name in SHARES))
NUMBERS = (*INSTANTS, "code", "lasting", "sample_count", "covered_seconds", *SUMS, "memory_used_bytes_max")
"""What a row tells in numbers."""

_OWNER_BITS, _HOUR_BITS = 22, 20
"""Four million owners, a million devices and hours until the year 2089 fit into one whole number."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of roll-ups, whatever they were read from: ``number`` holds NUMBERS by name, absent ones as NaN.

    Instants are seconds since the epoch. ``device`` and ``owner`` are numbers of texts that whoever reads gave them.
    """

    device: Ints
    owner: Ints
    number: Mapping[str, Floats]

    @property
    def hour(self) -> Ints:
        """Give the hour since the epoch that each row lies in."""
        return np.floor(self.number["start"] / SECONDS_PER_HOUR).astype(np.int64)

    @property
    def spot(self) -> Ints:
        """Give device, owner and hour of each row as one number."""
        return (((self.device << _OWNER_BITS) | self.owner) << _HOUR_BITS) | self.hour

    @property
    def has_several(self) -> Bools:
        """Say of each row whether several samples are in it."""
        return self.number["sample_count"] > 1

    def take(self, rows: Ints | Bools) -> Rows:
        """Give some of the rows."""
        return Rows(self.device[rows], self.owner[rows], {name: values[rows] for name, values in self.number.items()})


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Put the rows of several parts together."""
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        return Rows(nothing, nothing, {name: np.zeros(0) for name in NUMBERS})
    return Rows(
        np.concatenate([part.device for part in parts]),
        np.concatenate([part.owner for part in parts]),
        {name: np.concatenate([part.number[name] for part in parts]) for name in NUMBERS},
    )


def split_spots(spots: Ints) -> tuple[Ints, Ints, Ints]:
    """Give device, owner and hour of spots."""
    hour = spots & ((1 << _HOUR_BITS) - 1)
    return spots >> (_OWNER_BITS + _HOUR_BITS), (spots >> _HOUR_BITS) & ((1 << _OWNER_BITS) - 1), hour


@dataclass(frozen=True, slots=True)
class Holders:
    """The holdings of named devices by device and owner, in order of ``key``; ``holding`` points into the holdings."""

    key: Ints
    holding: Ints

    def meet(self, rows: Rows) -> tuple[Ints, Ints]:
        """Give the numbers of rows and holdings of the same device and owner, each row with each of its holdings."""
        have = (rows.device << _OWNER_BITS) | rows.owner
        first, last = np.searchsorted(self.key, have, side="left"), np.searchsorted(self.key, have, side="right")
        count = last - first
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return np.repeat(np.arange(have.size), count), self.holding[np.repeat(first, count) + within]


def find_holders(held: Holdings, devices: Mapping[str, int], owners: Mapping[str | None, int]) -> Holders:
    """Sort the holdings of those devices and owners that have numbers."""
    named = np.flatnonzero(held.named & (held.end > held.start))
    words = held.words.values("device_uuid")
    device = np.array([devices.get(words[row], -1) for row in held.row[named].tolist()], dtype=np.int64)
    owner = np.array([owners.get(held.attempt_keys[at], -1) for at in held.attempt[named].tolist()], dtype=np.int64)
    known = (device >= 0) & (owner >= 0)
    key, named = ((device << _OWNER_BITS) | owner)[known], named[known]
    order = np.argsort(key, kind="stable")
    return Holders(key[order], named[order])


def crossed(rows: Rows, held: Holdings, holders: Holders, edges: Sequence[float]) -> Bools:
    """Say of each row whether an edge lies within it that may be anywhere among its samples."""
    marks, start, end = np.asarray(edges, dtype=np.float64), rows.number["start"], rows.number["end"]
    inside = np.searchsorted(marks, start, side="right") < np.searchsorted(marks, end, side="left")
    row, holding = holders.meet(rows)
    for mark in (held.start[holding], held.end[holding]):
        inside[row[(mark > start[row]) & (mark < end[row])]] = True
    return np.asarray(inside & rows.has_several)


@dataclass(frozen=True, slots=True)
class Kept:
    """Hours that are to be read from roll-ups: whole numbers of hours since the epoch, in order.

    ``samples`` and ``minutes`` say of each whether those are still there.
    """

    hours: Ints
    samples: Bools
    minutes: Bools
    longest_cadence_seconds: float

    @classmethod
    def of(cls, rolled: Sequence[RolledHour], rule: Rule) -> Kept:
        """Take those hours that answer by the rule, or that nothing finer is left of."""
        found = [one for one in rolled if one.samples_gone or one.rule.answers(rule)]
        return cls(
            np.array([round(one.hour_at / SECONDS_PER_HOUR) for one in found], dtype=np.int64),
            np.array([not one.samples_gone for one in found], dtype=np.bool_),
            np.array([not one.minutes_gone for one in found], dtype=np.bool_),
            max((one.longest_cadence_seconds for one in found), default=0.0),
        )

    def holes(self, since: int, until: int) -> list[tuple[int, int]]:
        """Give the stretches of hours in ``[since, until)`` that are not to be read from roll-ups."""
        known = ranges(self.hours[(self.hours >= since) & (self.hours < until)])
        begins, ends = [since, *(last for _, last in known)], [*(first for first, _ in known), until]
        return [(first, last) for first, last in zip(begins, ends, strict=True) if last > first]


def resolution(rolled: Sequence[RolledHour], since: float, until: float) -> str:
    """Say what is left of the time between two instants, at its poorest: ``samples``, ``minutes``, ``hours``.

    ``attempts``: all of it lies before what is kept, and means of whole attempts are left, if anything.
    """
    if rolled and until <= rolled[0].hour_at:
        return "attempts"
    inside = [one for one in rolled if since < one.hour_at + SECONDS_PER_HOUR and one.hour_at < until]
    if any(one.samples_gone and one.minutes_gone for one in inside):
        return "hours"
    return "minutes" if any(one.samples_gone for one in inside) else "samples"


def ranges(hours: Ints) -> list[tuple[int, int]]:
    """Give whole numbers in order as half-open ranges without a hole."""
    if not hours.size:
        return []
    breaks = np.flatnonzero(np.diff(hours) != 1)
    first, last = hours[np.r_[0, breaks + 1]], hours[np.r_[breaks, hours.size - 1]] + 1
    return list(zip(first.tolist(), last.tolist(), strict=True))
