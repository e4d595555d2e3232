"""What was read lately, in memory: each device's last values and totals for scrapes, and its last hour for a page.

The last hour is kept as it was read, one value per interval, in plain arrays: 4 bytes a value, 8 an instant. An hour
at one per second of eight devices with fifteen metrics is 2 MB.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from warehouse.contract.exchange import Series
from warehouse.contract.metrics import BY_NAME, is_possible

if TYPE_CHECKING:
    from collector.aggregate import Moment
    from collector.source import Reading

ABSENT: Final = float("nan")


class _Ring:
    """The last values of one device as one source read them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._written = 0
        self._at = array("d")
        self._columns: dict[str, array[float]] = {}

    def add(self, at: float, values: Mapping[str, float]) -> None:
        place = self._written % self._capacity
        is_full = len(self._at) == self._capacity
        if is_full:
            self._at[place] = at
        else:
            self._at.append(at)
        if not values.keys() <= self._columns.keys():
            for name in values.keys() - self._columns.keys():
                self._columns[name] = array("f", [ABSENT]) * (len(self._at) - (0 if is_full else 1))
        for name, column in self._columns.items():
            value = values.get(name, ABSENT)
            if is_full:
                column[place] = value
            else:
                column.append(value)
        self._written += 1

    def after(self, since_at: float) -> tuple[list[float], dict[str, list[float | None]]]:
        """Give instants and values after an instant, oldest first."""
        begin = self._written % self._capacity if len(self._at) == self._capacity else 0
        order = [*range(begin, len(self._at)), *range(begin)]
        places = [place for place in order if self._at[place] > since_at]
        columns = {name: [_rounded(column[place]) for place in places] for name, column in self._columns.items()}
        return [round(self._at[place], 3) for place in places], {
            name: values for name, values in columns.items() if any(value is not None for value in values)
        }


def _rounded(value: float) -> float | None:
    """Give a value with the digits that it has as a 4-byte number; None where it is absent."""
    return None if value != value else float(f"{value:.6g}")  # noqa: PLR0124 - NaN is what differs from itself


@dataclass(slots=True)
class Latest:
    """One device as one source read it last: gauges then, and amounts added up since the agent began."""

    wall: float
    monotonic: float
    gauges: dict[str, float] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)


class Recent:
    """Written by the agent's thread once per interval, read by any other."""

    def __init__(self, *, interval_seconds: float, history_seconds: float) -> None:
        """Keep so much of the past; 0 keeps none, and then only the last values are known."""
        self._capacity = int(history_seconds / interval_seconds)
        self._interval_seconds = interval_seconds
        self._guard = threading.Lock()
        self._rings: dict[tuple[str, str], _Ring] = {}
        self._latest: dict[tuple[str, str], Latest] = {}
        self.last: Moment | None = None
        """When it was written last."""

    def add(self, moment: Moment, found: Mapping[str, Iterable[Reading]]) -> None:
        """Take one round of readings, by source. Values that cannot be true are left out; the rows count them."""
        with self._guard:
            if self.last is not None and moment.wall <= self.last.wall:
                self._rings.clear()  # the clock went back: what was kept has instants that are yet to come
            self.last = moment
            for source, readings in found.items():
                for reading in readings:
                    self._add(moment, source, reading)

    def series(self, device_uuid: str, since_at: float = 0.0) -> Sequence[Series]:
        """Give a device's last hour after an instant, one series per source."""
        with self._guard:
            rings = [
                (source, ring.after(since_at)) for (uuid, source), ring in self._rings.items() if uuid == device_uuid
            ]
        return [Series(device_uuid, source, at, columns) for source, (at, columns) in rings if at]

    def latest(self) -> dict[tuple[str, str], Latest]:
        """Give the last values by device and source."""
        with self._guard:
            return {
                key: Latest(known.wall, known.monotonic, dict(known.gauges), dict(known.totals))
                for key, known in self._latest.items()
            }

    def _add(self, moment: Moment, source: str, reading: Reading) -> None:
        key = (reading.device_uuid, source)
        known = self._latest.get(key)
        seconds = self._interval_seconds if known is None else moment.monotonic - known.monotonic
        if known is None:
            known = self._latest[key] = Latest(moment.wall, moment.monotonic)
        known.wall, known.monotonic = moment.wall, moment.monotonic
        known.gauges, values = {}, {}
        for name, value in reading.values.items():
            metric = BY_NAME[name]
            if not is_possible(metric, value, max(seconds, 0.0)):
                continue
            values[name] = value
            if metric.per_cadence:
                known.totals[name] = known.totals.get(name, 0.0) + value
            else:
                known.gauges[name] = value
        if self._capacity:
            ring = self._rings.get(key)
            if ring is None:
                ring = self._rings[key] = _Ring(self._capacity)
            ring.add(moment.wall, values)
