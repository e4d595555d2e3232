"""The fleet: what became of all devices, over time, by model and by node. The document of the question ``fleet``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.account import GpuSeconds, as_document
from analysis.booking import PARTS, sampled_flows
from analysis.frames import Floats, Tables, codes, fetch, seconds, timestamp
from analysis.inventory import UNCLAIMED, spread
from analysis.waste import nothing_wasted
from analysis.window import day_edges
from warehouse.contract.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, iso

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

    from analysis.study import Study
    from warehouse.contract.model import Window
    from warehouse.contract.settings import Settings

LATEST_EVENTS = 50
"""A page shows the latest events; all of them stand in the table ``event``."""

_MOST_POINTS = 120
"""A chart is wide enough for about this many bars."""

_STEPS_SECONDS = tuple(SECONDS_PER_HOUR * hours for hours in (1, 3, 6, 12))
_GROUPS = {"by_model": "gpu_model", "by_node": "node"}


def fleet_document(
    study: Study, events: list[dict[str, object]], zone: tzinfo, settings: Settings, window: int | None = None
) -> dict[str, object]:
    """Give the account of the whole capacity in all, over time, by GPU model and by node, with the latest events."""
    total, (since, until), (first, last) = study.total(window), study.span(window), study.gathered.known
    return {
        "since": iso(since),
        "until": iso(until),
        "zone": str(zone),
        "rung": study.rung,
        "as_of": iso(study.gathered.known[1]),
        "device_count": len(_here(study, since, until)),
        "lost_device_count": sum(1 for at in _here(study, since, until) if _is_lost(study, at, until)),
        "nodes_without_inventory": _dark_nodes(study),
        "gpu_seconds": as_document(total),
        "coverage_ratio": total.coverage_ratio,
        "used_ratio": total.used_ratio,
        "series": series(study, bins(max(since, first), min(until, last), zone), settings, total),
        **{name: _rows(study, word, window) for name, word in _GROUPS.items()},
        "events": events,
    }


def empty_fleet(window: Window, zone: tzinfo) -> dict[str, object]:
    """Give the document of an empty store."""
    nothing = nothing_wasted(window, "node", zone)
    kept = ("since", "until", "zone", "rung", "gpu_seconds", "coverage_ratio", "used_ratio")
    lists: dict[str, object] = {name: [] for name in ("series", *_GROUPS, "events")}
    counts: dict[str, object] = {"as_of": None, "device_count": 0, "lost_device_count": 0}
    return {name: nothing[name] for name in kept} | counts | {"nodes_without_inventory": []} | lists


def gather_events(tables: Tables, since: float, until: float) -> list[dict[str, object]]:
    """Give the latest events of a window, newest first."""
    event = tables.event
    inside = event.filter(event.happened_at >= timestamp(since), event.happened_at < timestamp(until))
    words = ("cluster", "node", "kind", "device_uuid", "attempt_key", "detail")
    found = inside.select(*words, at=seconds(inside.happened_at))
    rows = fetch(found.order_by(found["at"].desc(), "node", "kind", "device_uuid").limit(LATEST_EVENTS))
    return [
        {"happened_at": iso(float(at)), **{word: rows.values(word)[row] for word in words}}
        for row, at in enumerate(rows.numbers("at"))
    ]


def bins(since: float, until: float, zone: tzinfo) -> list[float]:
    """Give the edges of a time axis: hours, or days of the zone, as fine as a chart can show; none for no time."""
    if until <= since:
        return []
    for step in _STEPS_SECONDS:
        if (until - since) / step <= _MOST_POINTS:
            inner = np.arange(np.floor(since / step) + 1, np.ceil(until / step)) * step
            return [since, *inner.tolist(), until]
    days = day_edges(since, until, zone)
    every = int(np.ceil((until - since) / SECONDS_PER_DAY / _MOST_POINTS))
    return [since, *(at for at in days[::every] if since < at < until), until]


def series(study: Study, edges: Sequence[float], settings: Settings, total: GpuSeconds) -> list[dict[str, object]]:
    """Give the account of each stretch between two edges. Parts that are unknown in all are unknown in each."""
    if not edges:
        return []
    marks = np.asarray(edges, dtype=np.float64)
    sums = _held_sums(study, marks) | _busy_sums(study, marks, settings)
    inventory = study.gathered.inventory
    whole = inventory is not None and inventory.complete
    if inventory is not None and whole:
        sums |= {kind: inventory.spread(kind, marks) for kind in UNCLAIMED}
        sums["capacity"] = sums["allocated"] + sum(sums[kind] for kind in UNCLAIMED)
    split = total.gaps is not None
    points: list[dict[str, object]] = []
    for at in range(len(edges) - 1):
        here = {name: max(float(values[at]), 0.0) for name, values in sums.items()}
        known = here["used"] + here["held_idle"] > 0
        dark = set(() if known else ("used", "held_idle", *PARTS)) | set(() if split else PARTS)
        account = GpuSeconds(
            unknown=max(here["allocated"] - here["used"] - here["held_idle"], 0.0),
            **{name: value for name, value in here.items() if name not in dark},
        )
        points.append({"start_at": iso(edges[at]), "end_at": iso(edges[at + 1]), "gpu_seconds": as_document(account)})
    return points


def _held_sums(study: Study, marks: Floats) -> dict[str, Floats]:
    held = study.held
    failed = np.where(held.failed, held.weight, 0.0)
    return {
        "allocated": spread(held.start, held.end, held.weight, marks),
        "failed": spread(held.start, held.end, failed, marks),
    }


def _busy_sums(study: Study, marks: Floats, settings: Settings) -> dict[str, Floats]:
    """Spread what was booked over the time in which it happened: stretches as sampled, means evenly."""
    nothing = np.zeros(len(marks) - 1)
    sums = dict.fromkeys(("used", "held_idle", *PARTS), nothing)
    if study.rung is None:
        return sums
    flows = sampled_flows(study.evidence, study.entries, study.rung, settings)
    activity, entries, held = study.evidence.activity, study.entries, study.held
    start, length = activity.start[flows.row], activity.covered[flows.row]
    by_mean = np.isin(np.arange(len(entries.allocated)), flows.entry, invert=True) & (entries.allocated > 0)
    by_mean &= ~np.isnan(study.books.amounts["used"])
    edges = np.asarray(study.edges)
    holding, window = entries.holding[by_mean], entries.window[by_mean]
    since = np.maximum(held.start[holding], edges[window])
    until = np.minimum(held.end[holding], edges[window + 1])
    for name, amounts in flows.amounts.items():
        sums[name] = spread(start, start + length, amounts / length, marks)
        booked = np.nan_to_num(study.books.amounts[name][by_mean])
        sums[name] = sums[name] + spread(since, until, booked / (until - since), marks)
    return sums


def _rows(study: Study, word: str, window: int | None) -> list[dict[str, object]]:
    """Give the account of each model or node, with its capacity, most allocated first."""
    inventory, (since, until) = study.gathered.inventory, study.span(window)
    here = _here(study, since, until)
    devices = [] if inventory is None else [getattr(device, word) for device in inventory.devices]
    values = study.words(word)
    _, keys = codes([*values, *(devices[at] for at in here)])
    numbers = {key: number for number, key in enumerate(keys)}
    numbered = np.array([numbers[value] for value in values], dtype=np.int64)
    accounts = study.books.add_up(np.where(study.inside(window), numbered, -1), len(keys))
    rows: list[dict[str, object]] = []
    for key, account in sorted(zip(keys, accounts, strict=True), key=lambda pair: (-pair[1].allocated, str(pair[0]))):
        own = np.array([device == key for device in devices], dtype=np.bool_)
        dark = inventory is None or (word == "node" and key in inventory.dark_nodes)
        full = account if dark or inventory is None else inventory.complete_account(account, (since, until), own)
        rows.append(
            {
                "key": key,
                "device_count": sum(1 for at in here if devices[at] == key),
                "gpu_seconds": as_document(full),
                "coverage_ratio": full.coverage_ratio,
                "used_ratio": full.used_ratio,
            }
        )
    return rows


def _here(study: Study, since: float, until: float) -> list[int]:
    """Give the devices of the inventory that were there at any time of a window."""
    inventory = study.gathered.inventory
    if inventory is None:
        return []
    spans = [device.present for device in inventory.devices]
    return [at for at, own in enumerate(spans) if any(start < until and end > since for start, end in own)]


def _dark_nodes(study: Study) -> list[str]:
    """Name the nodes where devices were held that the inventory lacks; capacity counts these while held alone."""
    inventory = study.gathered.inventory
    return [] if inventory is None else sorted(node or "(not known)" for node in inventory.dark_nodes)


def _is_lost(study: Study, at: int, until: float) -> bool:
    """Say whether a device was lost when the window ended."""
    inventory = study.gathered.inventory
    lost: Any = [] if inventory is None else inventory.devices[at].lost
    moment = min(until, study.gathered.known[1])
    return any(start < moment <= end for start, end in lost)
