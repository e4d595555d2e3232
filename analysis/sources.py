"""Which source measured what: every reading of a ladder names its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.activity import QUALITIES
from analysis.frames import fetch, not_rolled, united
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
    samples, keys = not_rolled(tables), ("device_uuid", "source")
    found_in = samples.group_by(*keys).aggregate(**{name: samples[column].count() for name, column in _COLUMNS.items()})
    if tables.rolled:
        rolled = tables.rollup_source
        counts = {name: rolled[f"{name.removesuffix('_ratio')}_count"].sum().cast("int64") for name in _COLUMNS}
        both = united(found_in, rolled.group_by(*keys).aggregate(**counts))
        found_in = both.group_by(*keys).aggregate(**{name: both[name].sum() for name in _COLUMNS})
    rows = fetch(found_in.order_by(*keys))
    found: Sources = {name: {} for name in _COLUMNS}
    for name, by_device in found.items():
        pairs = zip(rows.values("device_uuid"), rows.values("source"), rows.numbers(name), strict=True)
        for device, source, count in pairs:
            if count > 0:
                by_device[device] = (*by_device.get(device, ()), source)
    return found
