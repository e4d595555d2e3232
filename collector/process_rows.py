"""Rows of single processes: what a source reads of each of them every second, as rows of the cadence.

A process's share of the driver's sample slices and its memory, as the driver tells them, beside what the tracer tells
of the same process where it is traced: each row has its source, as with devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from collector.source import Reading
from warehouse.contract.model import ProcessSample

if TYPE_CHECKING:
    from collector.aggregate import Aggregator, Moment, Row

PROCESSES_MAX: Final = 2048
"""Processes on devices of one node that are followed at once; each costs some kilobytes."""

TOO_MANY: Final = "processes beyond those that are followed"
COLUMNS: Final = ("driver_util_ratio", "memory_used_bytes")
_BETWEEN: Final = "\n"
"""Between device and process in the name of a track; neither can hold it."""


class ProcessRows:
    """The processes of one source."""

    def __init__(self, aggregator: Aggregator, source: str, place: tuple[str, str]) -> None:
        """Collect with an aggregator of its own; ``place`` is cluster and node."""
        self._aggregator = aggregator
        self._source = source
        self._place = place
        self._seen: set[str] = set()

    @property
    def rejected(self) -> Counter[str]:
        """Count values that cannot be true, by metric, and readings of processes beyond those that are followed."""
        return self._aggregator.rejected

    def add(
        self, moment: Moment, readings: Iterable[Reading], owner_of: Callable[[int], str | None]
    ) -> list[ProcessSample]:
        """Take what was read in one round; give the rows that are complete. ``owner_of`` names a process's attempt."""
        split = list(_split(readings))
        if len(split) > PROCESSES_MAX:
            self.rejected[TOO_MANY] += len(split) - PROCESSES_MAX
            del split[PROCESSES_MAX:]
        rows = self._aggregator.add(moment, split)
        now = {one.device_uuid for one in split}
        if now != self._seen:
            self._seen = now
            self._aggregator.forget_silent(moment)
        return [self._sample(row, owner_of) for row in rows]

    def flush(self, owner_of: Callable[[int], str | None]) -> list[ProcessSample]:
        """Give what has been collected, complete or not."""
        return [self._sample(row, owner_of) for row in self._aggregator.flush()]

    def _sample(self, row: Row, owner_of: Callable[[int], str | None]) -> ProcessSample:
        device_uuid, _, pid = row.device_uuid.partition(_BETWEEN)
        cluster, node = self._place
        return ProcessSample(
            cluster=cluster,
            node=node,
            device_uuid=device_uuid,
            pid=int(pid),
            sampled_at=row.start_at,
            cadence_seconds=round(row.end_at - row.start_at, 3),
            source=self._source,
            attempt_key=owner_of(int(pid)),
            driver_util_ratio=row.columns.get("driver_util_ratio"),
            memory_used_bytes=row.columns.get("memory_used_bytes"),
        )


def _split(readings: Iterable[Reading]) -> Iterator[Reading]:
    for reading in readings:
        for one in reading.processes:
            values = {name: value for name, value in one.values.items() if name in COLUMNS}
            yield Reading(f"{reading.device_uuid}{_BETWEEN}{one.pid}", values)
