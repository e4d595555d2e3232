"""Who had how much of a device that several held at once: by what each used, as the samples tell, else equally.

An agent tells with each sample of a shared device what share of it belongs to its owner, by kernel time, by the
driver's utilization of processes, or equally (``share_ratio``). Here those shares become weights of the allocations,
minute by minute: the shares of one device at one instant never exceed 1, whatever allocations and samples say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np

from analysis.frames import Floats, Tables, fetch, seconds, timestamp, united
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.frames import Bools, Ints
    from warehouse.contract.model import Window

BUCKET_SECONDS = 60.0
"""Shares are means of a minute: finer than any pause that counts, and few enough to cut allocations at."""

CONTINUOUS_CADENCES = 2.5
"""What was told of a minute stands until the next that is told, if that follows within so many cadences."""

_SAME_SHARE = 1e-3
"""Shares that differ by less are one: agents round to about that."""

_FULL = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class Told:
    """The share of one owner of one device as a step function: ``share`` from ``start`` to ``end``, in order."""

    start: Floats
    end: Floats
    share: Floats

    def at(self, instants: Floats) -> Floats:
        """Give the share at some instants; NaN where nothing is told."""
        place = np.searchsorted(self.start, instants, side="right") - 1
        known = (place >= 0) & (instants < self.end[np.maximum(place, 0)])
        return np.where(known, self.share[np.maximum(place, 0)], np.nan)


@dataclass(frozen=True, slots=True)
class Shares:
    """What samples tell of the shares of some devices, by device and owner."""

    told: Mapping[tuple[str, str], Told] = field(default_factory=dict)

    def of(self, device: str, owner: str | None) -> Told | None:
        """Give what is told of an owner of a device."""
        return None if owner is None else self.told.get((device, owner))


def gather_shares(tables: Tables, devices: Sequence[str], window: Window) -> Shares:
    """Read what samples tell of the shares of some devices within a window."""
    if not devices:
        return Shares()
    table = tables.device_sample
    samples = table.filter(
        table.device_uuid.isin(list(devices)), table.share_ratio.notnull(), table.attempt_key.notnull()
    )
    if window.since_at is not None:
        samples = samples.filter(samples.sampled_at >= timestamp(window.since_at - BUCKET_SECONDS))
    if window.until_at is not None:
        samples = samples.filter(samples.sampled_at < timestamp(window.until_at))
    bucket = (seconds(samples.sampled_at) / BUCKET_SECONDS).floor().cast("int64")
    told = samples.group_by("device_uuid", "attempt_key", bucket=bucket).aggregate(
        share=samples.share_ratio.mean(), cadence=samples.cadence_seconds.max().cast("float64")
    )
    if any(hour.samples_gone for hour in tables.rolled):
        told = united(told, _from_minutes(tables, devices, window))
    rows = fetch(told.order_by("device_uuid", "attempt_key", "bucket"))
    devices_of, owners = rows.values("device_uuid"), rows.values("attempt_key")
    found: dict[tuple[str, str], Told] = {}
    for first, last in _groups(list(zip(devices_of, owners, strict=True))):
        part = slice(first, last)
        start = rows.numbers("bucket")[part] * BUCKET_SECONDS
        found[devices_of[first], owners[first]] = _steps(
            start, rows.numbers("cadence")[part], rows.numbers("share")[part]
        )
    return Shares(found)


def _from_minutes(tables: Tables, devices: Sequence[str], window: Window) -> Any:
    """Give what roll-ups by minute tell of shares, of time whose samples are gone."""
    last = max(hour.hour_at for hour in tables.rolled if hour.samples_gone) + SECONDS_PER_HOUR
    table = tables.rollup_1m
    minutes = table.filter(
        table.device_uuid.isin(list(devices)),
        table.share_known_seconds > 0,
        table.attempt_key.notnull(),
        table.bucket_at < timestamp(last if window.until_at is None else min(last, window.until_at)),
    )
    if window.since_at is not None:
        minutes = minutes.filter(minutes.bucket_at >= timestamp(window.since_at - BUCKET_SECONDS))
    bucket = (seconds(minutes.bucket_at) / BUCKET_SECONDS).floor().cast("int64")
    return minutes.group_by("device_uuid", "attempt_key", bucket=bucket).aggregate(
        share=minutes.share_seconds.sum() / minutes.share_known_seconds.sum(), cadence=ibis.literal(BUCKET_SECONDS)
    )


def _groups(keys: Sequence[Any]) -> list[tuple[int, int]]:
    """Give where each run of equal keys begins and ends."""
    begins = [at for at, key in enumerate(keys) if at == 0 or key != keys[at - 1]]
    return list(pairwise([*begins, len(keys)]))


def _steps(start: Floats, cadence: Floats, share: Floats) -> Told:
    """Make a step function of minutes: each stands until the next, or its own end; equal neighbours are one step."""
    end = start + np.maximum(BUCKET_SECONDS, cadence)
    reach = start + np.maximum(BUCKET_SECONDS, CONTINUOUS_CADENCES * cadence)
    following = np.append(start[1:], np.inf)
    end = np.where(following <= reach, following, np.minimum(end, following))
    begins = np.ones(start.size, dtype=np.bool_)
    begins[1:] = (np.abs(np.diff(share)) > _SAME_SHARE) | (start[1:] > end[:-1])
    at = np.flatnonzero(begins)
    return Told(start[at], np.maximum.reduceat(end, at) if at.size else end, share[at])


def split(
    start: Floats, end: Floats, weight: Floats, owner: Ints, told: Sequence[Told | None]
) -> list[tuple[int, float, float, float]]:
    """Cut the allocations of one device so that what is held at any instant adds up to 1 at most.

    ``told`` is what samples say of each allocation's owner. Gives pieces: which allocation, from, to, weight. Where the
    allocations claim more than the device, those of which a share is told have it; the others share the rest by their
    weights. Where nothing is told, and where the claims fit, the weights stand in proportion.
    """
    marks = _marks(start, end, told)
    since, until = marks[:-1], marks[1:]
    here = (start[:, None] <= since) & (end[:, None] >= until)
    claims = np.where(here, weight[:, None], 0.0)
    total = claims.sum(axis=0)
    held = claims / np.maximum(total, 1.0)
    said = np.stack([np.full(since.size, np.nan) if one is None else one.at(since) for one in told])
    said /= _times(owner, here)
    by_use = _by_use(claims, said, here & ~np.isnan(said))
    held = np.where((total > _FULL) & (here & ~np.isnan(said)).any(axis=0), by_use, held)
    return [piece for row in range(start.size) for piece in _joined(row, since, until, held[row], here[row])] + [
        (row, float(start[row]), float(end[row]), 0.0) for row in np.flatnonzero(end <= start).tolist()
    ]


def _marks(start: Floats, end: Floats, told: Sequence[Told | None]) -> Floats:
    edges = [edge for one in told if one is not None for edge in (one.start, one.end)]
    inner = np.concatenate(edges) if edges else np.zeros(0)
    inside = inner[(inner > start.min()) & (inner < end.max())]
    return np.unique(np.concatenate([start, end, inside]))


def _times(owner: Ints, here: Bools) -> Floats:
    """Give for each allocation and slice how many allocations its owner has there: they share what is told of it."""
    same = (owner[:, None] == owner[None, :]).astype(np.float64)
    return np.asarray(np.maximum(same @ here.astype(np.float64), 1.0))


def _by_use(claims: Floats, said: Floats, known: Bools) -> Floats:
    used = np.where(known, said, 0.0)
    used /= np.maximum(used.sum(axis=0), 1.0)
    others = np.where(known, 0.0, claims)
    rest = np.maximum(1.0 - used.sum(axis=0), 0.0)
    wanted = others.sum(axis=0)
    return np.asarray(used + others * np.minimum(1.0, rest / np.where(wanted > 0, wanted, 1.0)))


def _joined(row: int, since: Floats, until: Floats, held: Floats, here: Bools) -> list[tuple[int, float, float, float]]:
    """Give the slices of one allocation, those that follow each other with the same weight as one."""
    at = np.flatnonzero(here)
    if not at.size:
        return []
    begins = np.ones(at.size, dtype=np.bool_)
    begins[1:] = (held[at[1:]] != held[at[:-1]]) | (since[at[1:]] != until[at[:-1]])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], at.size) - 1
    return [
        (row, float(since[at[one]]), float(until[at[other]]), float(held[at[one]]))
        for one, other in zip(first.tolist(), last.tolist(), strict=True)
    ]
