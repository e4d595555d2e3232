"""Reading what tells of a stretch of time: the coarsest roll-up that answers exactly, and finer where an edge needs it.

Time is read by the hour. An hour that is summed up comes from ``rollup_1h``; all others are summed up here, from their
samples, by the expressions that roll-ups are made by (``warehouse.rolling``), so that both tell the same. Where a
window or an allocation begins or ends within a row of several samples, that hour of the device and owner is read again
by minute, and where the edge lies within a minute, by sample. Only where retention took what is finer a row is cut
evenly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from analysis.frames import Ints, Tables, fetch, local_table, not_rolled, seconds, timestamp
from analysis.rows import NUMBERS, Holders, Kept, Rows, concatenate, crossed, find_holders, ranges, split_spots
from analysis.settings import IDLE_STRETCH_SECONDS
from warehouse import rolling
from warehouse.contract.rollups import BUCKET_SECONDS, HOUR, Rule
from warehouse.contract.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.frames import Columns
    from analysis.holdings import Holdings
    from warehouse.contract.settings import Settings

MOST_SAMPLES = 8_000_000
"""Samples that are summed up at once; some 150 bytes each."""

_MOST_RANGES = 30
"""A filter names this many stretches of time at most; beyond, it names the whole from the first to the last."""


class Reading:
    """What was read of the time around some windows: ``rows``, and what their numbers of devices and owners mean."""

    def __init__(self, tables: Tables, settings: Settings, owners: Sequence[str] | None = None) -> None:
        """Prepare to read from tables; ``owners`` leaves only the rows of some attempts."""
        rule = Rule.of(settings)
        self.rule = Rule(rule.threshold_ratio, rule.continuous_cadences, settings[IDLE_STRETCH_SECONDS])
        self.kept = Kept.of(tables.rolled, self.rule)
        self.rows = concatenate([])
        self._tables = tables
        self._only = None if owners is None else list(owners)
        self._devices: dict[str, int] = {}
        self._owners: dict[str | None, int] = {}

    @property
    def devices(self) -> list[str]:
        """Give the devices by number."""
        return list(self._devices)

    @property
    def owners(self) -> list[str | None]:
        """Give the owners by number; None is nobody."""
        return list(self._owners)

    def holders(self, held: Holdings) -> Holders:
        """Give the holdings by device and owner."""
        return find_holders(held, self._devices, self._owners)

    def read(self, held: Holdings, edges: Sequence[float]) -> Reading:
        """Read what tells of the windows between ``edges`` and a little around them: a pause keeps its true length."""
        margin = self.rule.margin_seconds(self._longest_cadence_seconds())
        since, until = _whole_hours(edges[0] - margin, edges[-1] + margin)
        self.rows = concatenate([*self._stored(HOUR, since, until), *self._summed_up_here(since, until)])
        minutes = self.kept.hours[self.kept.minutes]
        samples_gone = self.kept.hours[~self.kept.samples]
        self._read_again(held, edges, lambda hour: np.isin(hour, minutes), self._by_minute)
        self._read_again(held, edges, lambda hour: ~np.isin(hour, samples_gone), self._by_sample)
        return self

    def _longest_cadence_seconds(self) -> float:
        samples = not_rolled(self._tables)
        found = fetch(samples.aggregate(cadence=samples.cadence_seconds.max())).numbers("cadence")[0]
        return float(np.fmax(found, self.kept.longest_cadence_seconds))

    def _stored(self, table: str, since: int, until: int) -> list[Rows]:
        hours = self.kept.hours[(self.kept.hours >= since) & (self.kept.hours < until)]
        if not hours.size:
            return []
        stored = getattr(self._tables, table)
        rows = self._numbered(fetch(_of_stored(_within(self._of_owners(stored), stored.bucket_at, ranges(hours)))))
        return [rows.take(np.isin(rows.hour, hours))]

    def _summed_up_here(self, since: int, until: int) -> list[Rows]:
        parts: list[Rows] = []
        holes = [part for hole in self.kept.holes(since, until) for part in self._bounded(*hole)]
        for first, last in holes:
            near = self._samples(first, last)
            if near is None:
                continue
            samples, how = near
            found = rolling.rows(rolling.pieces(samples, BUCKET_SECONDS[HOUR], how), how)
            parts.append(self._numbered(fetch(_of_here(found.filter(found.bucket >= first, found.bucket < last)))))
        return parts

    def _bounded(self, first: int, last: int) -> list[tuple[int, int]]:
        """Cut hours where there are too many samples to sum up at once: memory is as large as the largest part."""
        samples = self._of_owners(self._tables.device_sample)
        inside = samples.filter(
            samples.sampled_at >= timestamp(first * SECONDS_PER_HOUR),
            samples.sampled_at < timestamp(last * SECONDS_PER_HOUR),
        )
        told = fetch(
            inside.aggregate(count=inside.count(), since=_instant(inside, "min"), until=_instant(inside, "max"))
        )
        parts = int(told.numbers("count")[0] // MOST_SAMPLES) + 1
        if parts == 1:
            return [(first, last)]
        begin, end = _whole_hours(told.numbers("since")[0], told.numbers("until")[0])
        marks = np.unique(np.linspace(begin, end + 1, parts + 1).round().astype(np.int64))[1:-1]
        return list(itertools.pairwise([first, *marks.tolist(), last]))

    def _samples(self, first: int, last: int) -> tuple[Any, rolling.Rolling] | None:
        """Give the samples that decide on some hours, and how to sum them up; None: there are none."""
        all_samples = self._of_owners(self._tables.device_sample)

        def between(margin: float) -> Any:
            since, until = first * SECONDS_PER_HOUR - margin, last * SECONDS_PER_HOUR + margin
            return all_samples.filter(
                all_samples.sampled_at >= timestamp(since), all_samples.sampled_at < timestamp(until)
            )

        wide = between(SECONDS_PER_DAY)
        told = fetch(wide.aggregate(cadence=wide.cadence_seconds.max(), sources=wide.source.nunique()))
        cadence = float(told.numbers("cadence")[0])
        if np.isnan(cadence):
            return None
        how = rolling.Rolling(self.rule, several=told.numbers("sources")[0] > 1, lean=True)
        return between(self.rule.margin_seconds(cadence)), how

    def _read_again(
        self,
        held: Holdings,
        edges: Sequence[float],
        is_there: Callable[[Ints], Any],
        read: Callable[[Ints], list[Rows]],
    ) -> None:
        """Put finer rows in the place of those that edges cross, where there are any."""
        rows = self.rows
        spot = rows.spot
        wanted = np.unique(spot[crossed(rows, held, self.holders(held), edges) & is_there(rows.hour)])
        if wanted.size:
            found = concatenate(read(wanted))
            self.rows = concatenate([rows.take(~np.isin(spot, wanted)), found.take(np.isin(found.spot, wanted))])

    def _by_minute(self, spots: Ints) -> list[Rows]:
        hours = np.unique(split_spots(spots)[2])
        stored = _within(self._of_owners(self._tables.rollup_1m), self._tables.rollup_1m.bucket_at, ranges(hours))
        return [self._numbered(fetch(_of_stored(self._at_spots(stored, stored.bucket_at, spots))))]

    def _by_sample(self, spots: Ints) -> list[Rows]:
        hour = split_spots(spots)[2]
        near = self._samples(int(hour.min()), int(hour.max()) + 1)
        if near is None:
            return []
        samples, how = near
        # What is beside an hour decides on its pauses.
        beside = 1 + int(how.rule.margin_seconds(self._longest_cadence_seconds()) // SECONDS_PER_HOUR)
        around = np.unique(np.concatenate([spots + step for step in range(-beside, beside + 1)]))
        samples = _within(samples, samples.sampled_at, ranges(np.unique(split_spots(around)[2])))
        samples = self._at_spots(samples, samples.sampled_at, around)
        each = rolling.Rolling(how.rule, several=how.several, lean=True, each=True)
        return [
            self._numbered(fetch(_of_here(rolling.rows(rolling.pieces(samples, BUCKET_SECONDS[HOUR], each), each))))
        ]

    def _at_spots(self, table: Any, instant: Any, spots: Ints) -> Any:
        """Leave the rows of a table that lie at some spots."""
        device, owner, hour = split_spots(spots)
        devices, owners = self.devices, self.owners
        wanted = local_table(
            {
                "spot_device": [devices[at] for at in device],
                "spot_owner": [owners[at] or "" for at in owner],
                "spot_hour": hour,
            },
            {"spot_device": pa.string(), "spot_owner": pa.string(), "spot_hour": pa.int64()},
        )
        at = (seconds(instant) / SECONDS_PER_HOUR).floor().cast("int64")
        found = table.mutate(spot_at=at, spot_of=_owner(table))
        return found.semi_join(
            wanted,
            [
                found.device_uuid == wanted.spot_device,
                found.spot_of == wanted.spot_owner,
                found.spot_at == wanted.spot_hour,
            ],
        )

    def _of_owners(self, table: Any) -> Any:
        return table if self._only is None else table.filter(table.attempt_key.isin(self._only))

    def _numbered(self, found: Columns) -> Rows:
        device = _numbers(found.values("device_uuid"), self._devices)
        owner = _numbers(found.values("attempt_key"), self._owners)
        return Rows(device, owner, {name: found.numbers(name) for name in NUMBERS})


def _numbers(texts: Sequence[Any], known: dict[Any, int]) -> Ints:
    return np.fromiter((known.setdefault(text, len(known)) for text in texts), dtype=np.int64, count=len(texts))


def _whole_hours(since: float, until: float) -> tuple[int, int]:
    return int(np.floor(since / SECONDS_PER_HOUR)), int(np.ceil(until / SECONDS_PER_HOUR))


def _instant(samples: Any, end: str) -> Any:
    """Give the first or the last instant of samples as seconds since the epoch."""
    return seconds(getattr(samples.sampled_at, end)())


def _owner(table: Any) -> Any:
    return table.attempt_key.fill_null("")


def _within(table: Any, instant: Any, hours: list[tuple[int, int]]) -> Any:
    """Leave the rows of some stretches of hours."""
    if len(hours) > _MOST_RANGES:
        hours = [(hours[0][0], hours[-1][1])]
    spans = [
        (instant >= timestamp(first * SECONDS_PER_HOUR)) & (instant < timestamp(last * SECONDS_PER_HOUR))
        for first, last in hours
    ]
    return table.filter(reduce(or_, spans))


def _of_stored(stored: Any) -> Any:
    """Give the columns of Rows from a stored roll-up."""
    own = {name: stored[name] for name in NUMBERS if name in stored.columns}
    own |= {name: seconds(stored[f"{name}_at"]) for name in ("start", "end", "seen_start", "seen_end")}
    own |= {"code": stored.activity_code, "lasting": stored.lasting.cast("int8")}
    return stored.select("device_uuid", "attempt_key", **own)


def _of_here(found: Any) -> Any:
    """Give the columns of Rows from what was summed up here."""
    own = {name: found[name] for name in NUMBERS}
    own |= {name: found[name] / rolling.MICROSECONDS for name in ("start", "end", "seen_start", "seen_end")}
    own["lasting"] = found.lasting.cast("int8")
    return found.select("device_uuid", attempt_key=found.owner.nullif(""), **own)
