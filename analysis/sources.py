"""Which source measured what: every reading of a ladder names its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.activity import QUALITIES
from analysis.frames import fetch
from analysis.summaries import RUNG_COLUMNS
from warehouse.contract.metrics import CATALOGUE

if TYPE_CHECKING:
    from analysis.frames import Tables

READINGS = (*RUNG_COLUMNS.values(), *QUALITIES)
"""The rungs and qualities of a ladder, in documents and in order."""

_COLUMNS = {
    **{RUNG_COLUMNS[metric.rung]: metric.name for metric in CATALOGUE if metric.rung is not None},
    **{name: name for name in QUALITIES},
}
"""The column of ``device_sample`` behind each reading."""

Sources = dict[str, dict[str, tuple[str, ...]]]
"""By reading and device, the names of the sources that measured it."""


def gather_sources(tables: Tables) -> Sources:
    """Give which source measured what on which device."""
    samples = tables.device_sample
    counts = {name: samples[column].count() for name, column in _COLUMNS.items()}
    rows = fetch(samples.group_by("device_uuid", "source").aggregate(**counts).order_by("device_uuid", "source"))
    found: Sources = {name: {} for name in _COLUMNS}
    for name, by_device in found.items():
        pairs = zip(rows.values("device_uuid"), rows.values("source"), rows.numbers(name), strict=True)
        for device, source, count in pairs:
            if count > 0:
                by_device[device] = (*by_device.get(device, ()), source)
    return found
