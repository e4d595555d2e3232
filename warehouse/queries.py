"""The store's tables as Ibis expressions: what analyses start from, on any engine."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibis.backends.sql import SQLBackend
    from ibis.expr.types import Table


@dataclass(frozen=True, slots=True)
class Tables:
    """Every table that analyses may read. Instants are UTC timestamps; columns are those of the schema.

    ``fleet`` is None where these are all rows. Else they are what one person may see, and ``fleet`` holds all rows:
    for totals over devices and for the span of the data, never for a row that could name somebody else's job.
    ``samples_end_at`` is set where later samples lie elsewhere, out of reach: seconds since the epoch.
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
    fleet: Tables | None = None
    samples_end_at: float | None = None


TABLE_NAMES = tuple(item.name for item in fields(Tables) if item.name not in ("fleet", "samples_end_at"))
SAMPLE_TABLES = ("device_sample", "process_sample", "host_sample")
"""Tables whose rows lie partly in the lake."""


def tables(backend: SQLBackend, sources: Mapping[str, str] | None = None) -> Tables:
    """Bind the tables to an engine; ``sources`` names the view to read instead of a table."""
    names = sources or {}
    return Tables(**{name: backend.table(names.get(name, name)) for name in TABLE_NAMES})
