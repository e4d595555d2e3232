"""The units of this room, found by the scan."""

from __future__ import annotations

from functools import cache

from collector.job_source import JobSource
from collector.source import Source
from warehouse.contract.plugins import scan


@cache
def sources() -> dict[str, Source]:
    """Give all that can be measured, by name."""
    return scan("collector.sources", "SOURCE", Source)


@cache
def job_sources() -> dict[str, JobSource]:
    """Give all places that know jobs, by name."""
    return scan("collector.jobs", "JOB_SOURCE", JobSource)
