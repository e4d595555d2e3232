"""From readings every second to rows every ten: one row per device, source and stretch of time.

The grid is the wall clock's: ``[k * cadence, (k + 1) * cadence)``. A reading speaks for the time since the one before
it and belongs to the cell in which the middle of that time lies. A row says truly which time it covers: a cell in
which the agent started, stopped or missed readings gives shorter rows, or none. Intervals are measured on the
monotonic clock; when the wall clock steps, the stretch ends and a new one begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warehouse.contract.metrics import BY_NAME, Metric, is_possible

if TYPE_CHECKING:
    from collector.source import Reading

HALF = 0.5
CLOCK_WENT_BACK = "rows of a time that was told before"


@dataclass(frozen=True, slots=True)
class Moment:
    """One tick on both clocks, in seconds."""

    wall: float
    monotonic: float


@dataclass(frozen=True, slots=True)
class Row:
    """What one source says about one device over ``[start_at, end_at)``: columns of ``device_sample``.

    ``pids`` are all processes that were seen on the device meanwhile.
    """

    device_uuid: str
    source: str
    start_at: float
    end_at: float
    columns: dict[str, float]
    pids: frozenset[int]


@dataclass(slots=True)
class _Sum:
    """One metric within a stretch."""

    weighted: float = 0.0
    amount: float = 0.0
    covered_seconds: float = 0.0
    highest: float = 0.0


@dataclass(slots=True)
class _Stretch:
    """Uninterrupted readings within one cell of the grid."""

    cell: int
    start_at: float
    end_at: float
    covered_seconds: float = 0.0
    sums: dict[str, _Sum] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Track:
    """One device as one source sees it."""

    last: Moment
    stretch: _Stretch | None = None
    told_until: float = 0.0


class Aggregator:
    """Collects the readings of one source."""

    def __init__(
        self,
        source: str,
        *,
        interval_seconds: float,
        cadence_seconds: float,
        gap_intervals: float,
        least_covered_ratio: float,
    ) -> None:
        """See the settings of the same names."""
        self.rejected: Counter[str] = Counter()
        """Values that cannot be true, by metric, and rows left out because the wall clock had gone back."""
        self._source = source
        self._interval_seconds = interval_seconds
        self._cadence_seconds = cadence_seconds
        self._gap_seconds = gap_intervals * interval_seconds
        self._least_covered_ratio = least_covered_ratio
        self._tracks: dict[str, _Track] = {}

    def add(self, moment: Moment, readings: Iterable[Reading]) -> list[Row]:
        """Take the readings of one tick; give the rows that are complete now."""
        rows: list[Row] = []
        for reading in readings:
            track = self._tracks.get(reading.device_uuid)
            if track is None:
                self._tracks[reading.device_uuid] = _Track(moment)
                continue
            rows += self._add(track, moment, reading)
        return rows + self._close_past(moment)

    def flush(self) -> list[Row]:
        """Give what has been collected, complete or not; the next reading begins anew."""
        rows = [row for uuid, track in self._tracks.items() for row in self._close(uuid, track)]
        self._tracks.clear()
        return rows

    def forget_silent(self, moment: Moment) -> None:
        """Forget who has said nothing for longer than a gap and has nothing open: it is gone, or begins anew."""
        self._tracks = {
            name: track
            for name, track in self._tracks.items()
            if track.stretch is not None or moment.monotonic - track.last.monotonic <= self._gap_seconds
        }

    def _add(self, track: _Track, moment: Moment, reading: Reading) -> Iterator[Row]:
        before, track.last = track.last, moment
        seconds = moment.monotonic - before.monotonic
        stepped = abs((moment.wall - before.wall) - seconds) > self._interval_seconds * HALF
        if seconds <= 0 or seconds > self._gap_seconds or stepped:
            yield from self._close(reading.device_uuid, track)
            return
        cell = int((moment.wall + before.wall) / 2 // self._cadence_seconds)
        if track.stretch is not None and track.stretch.cell != cell:
            yield from self._close(reading.device_uuid, track)
        if track.stretch is None:
            track.stretch = _Stretch(cell, before.wall, moment.wall)
        self._extend(track.stretch, moment, seconds, reading)

    def _extend(self, stretch: _Stretch, moment: Moment, seconds: float, reading: Reading) -> None:
        stretch.end_at = moment.wall
        stretch.covered_seconds += seconds
        stretch.pids.update(reading.pids or ())
        for name, value in reading.values.items():
            if not is_possible(BY_NAME[name], value, seconds):
                self.rejected[name] += 1
                continue
            total = stretch.sums.get(name)
            if total is None:
                total = stretch.sums[name] = _Sum(highest=value)
            total.weighted += value * seconds
            total.amount += value
            total.covered_seconds += seconds
            if value > total.highest:  # noqa: PLR1730 - of every value: a call costs as much as the rest
                total.highest = value

    def _close_past(self, moment: Moment) -> list[Row]:
        """Close stretches that reach the end of their cell, and those whose device says nothing any more."""
        rows: list[Row] = []
        for uuid, track in self._tracks.items():
            stretch = track.stretch
            if stretch is None:
                continue
            cell_end = (stretch.cell + 1) * self._cadence_seconds
            silent_seconds = moment.monotonic - track.last.monotonic
            if stretch.end_at >= cell_end - self._interval_seconds * HALF or silent_seconds > self._gap_seconds:
                rows += self._close(uuid, track)
        return rows

    def _close(self, device_uuid: str, track: _Track) -> list[Row]:
        stretch, track.stretch = track.stretch, None
        if stretch is None:
            return []
        start_at, end_at = self._snap(stretch.start_at), self._snap(stretch.end_at)
        if start_at < track.told_until:
            self.rejected[CLOCK_WENT_BACK] += 1
            return []
        if end_at - start_at < self._interval_seconds * HALF:
            return []
        track.told_until = end_at
        columns = {
            column: value for name in stretch.sums for column, value in self._columns(BY_NAME[name], stretch).items()
        }
        return [Row(device_uuid, self._source, start_at, end_at, columns, frozenset(stretch.pids))]

    def _snap(self, at: float) -> float:
        """Move an edge onto the grid if a reading that came a little late or early is all that keeps it off."""
        edge = round(at / self._cadence_seconds) * self._cadence_seconds
        return edge if abs(at - edge) <= self._interval_seconds * HALF else round(at, 3)

    def _columns(self, metric: Metric, stretch: _Stretch) -> dict[str, float]:
        """Give a metric's columns, or none where too little of the time is known.

        An amount is only told whole: what is missing of it cannot be made up by scaling.
        """
        total = stretch.sums[metric.name]
        known_ratio = total.covered_seconds / stretch.covered_seconds
        if metric.per_cadence:
            whole = total.covered_seconds >= stretch.covered_seconds
            return {metric.name: round(total.amount, 3)} if whole else {}
        if known_ratio < self._least_covered_ratio:
            return {}
        digits = 4 if metric.highest == 1.0 else 2
        columns = {metric.name: round(total.weighted / total.covered_seconds, digits)}
        if metric.keeps_max:
            columns[f"{metric.name}_max"] = round(float(total.highest), digits)
        return columns
