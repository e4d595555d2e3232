"""The store's tables as Ibis expressions: what analyses start from, on any engine."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibis.backends.sql import SQLBackend
    from ibis.expr.types import Table

    from warehouse.contract.rollups import RolledHour


@dataclass(frozen=True, slots=True)
class Tables:
    """Every table that analyses may read. Instants are UTC timestamps; columns are those of the schema.

    ``fleet`` is None where these are all rows. Else they are what one person may see, and ``fleet`` holds all rows:
    for totals over devices and for the span of the data, never for a row that could name somebody else's job.
    ``samples_end_at`` is set where later samples lie elsewhere, out of reach: seconds since the epoch. ``rolled`` are
    the hours to be read from roll-ups, in order; rows of roll-ups of other hours are out of date, never to be read.
    """

    job: Table
    attempt: Table
    allocation: Table
    step: Table
    attempt_summary: Table
    kernel_profile: Table
    length_profile: Table
    node: Table
    device: Table
    event: Table
    device_sample: Table
    process_sample: Table
    host_sample: Table
    rollup_1m: Table
    rollup_1h: Table
    rollup_source: Table
    fleet: Tables | None = None
    samples_end_at: float | None = None
    rolled: Sequence[RolledHour] = ()


_NOT_TABLES = ("fleet", "samples_end_at", "rolled")
TABLE_NAMES = tuple(item.name for item in fields(Tables) if item.name not in _NOT_TABLES)
SAMPLE_TABLES = ("device_sample", "process_sample", "host_sample", "rollup_1m", "rollup_1h", "rollup_source")
"""Tables whose rows lie partly in the lake."""


def tables(backend: SQLBackend, sources: Mapping[str, str] | None = None, rolled: Sequence[RolledHour] = ()) -> Tables:
    """Bind the tables to an engine; ``sources`` names the view to read instead of a table."""
    names = sources or {}
    return Tables(**{name: backend.table(names.get(name, name)) for name in TABLE_NAMES}, rolled=rolled)
