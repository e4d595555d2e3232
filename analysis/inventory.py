"""Capacity: what became of the time of the devices that are there, held or not.

capacity = allocated + unallocated + down + unreported. Of a device's time what is held counts as allocated, whatever
state it is in; of the rest, time in state ``lost`` is down, time covered by any sample is unallocated, and what is left
is unreported.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from analysis.frames import Tables, fetch, seconds
from warehouse.contract import intervals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analysis.account import GpuSeconds
    from analysis.activity import Activity
    from analysis.frames import Floats
    from analysis.holdings import Holdings

Span = tuple[float, float]
UNCLAIMED = ("unallocated", "down", "unreported")


@dataclass(frozen=True, slots=True)
class Inventory:
    """Time of devices that nobody held: by kind (UNCLAIMED) and node, (start, end, share of a device) triples.

    ``complete`` says that every allocation names a device of the inventory; without that nobody can tell what was free.
    """

    unclaimed: Mapping[str, list[tuple[str, float, float, float]]]
    devices: Mapping[str, Device]
    complete: bool

    def spread(self, kind: str, edges: Floats, node: str | None = None) -> Floats:
        """Give the GPU-seconds of a kind between each two edges, of one node or of all."""
        rows = [row[1:] for row in self.unclaimed[kind] if node is None or row[0] == node]
        triples = np.array(rows, dtype=np.float64).reshape(-1, 3)
        return spread(triples[:, 0], triples[:, 1], triples[:, 2], edges)

    def complete_account(self, account: GpuSeconds, window: Span) -> GpuSeconds:
        """Add capacity and its parts to the account of a whole window; they stay None where they cannot be known."""
        if not self.complete:
            return account
        edges = np.array(window, dtype=np.float64)
        free = {kind: float(self.spread(kind, edges)[0]) for kind in UNCLAIMED}
        return replace(account, capacity=account.allocated + sum(free.values()), **free)


@dataclass(frozen=True, slots=True)
class Device:
    """One device: where it is, what it is, and the stretches of time in which it was there and in which it was lost."""

    node: str
    gpu_model: str | None
    present: list[Span]
    lost: list[Span]
    state: str


def gather_inventory(tables: Tables, held: Holdings, activity: Activity, last_at: float) -> Inventory:
    """Find for each device of the inventory what became of the time that nobody held it."""
    devices = _devices(tables, last_at)
    watched = _watched(activity)
    named = held.pick("device_uuid")
    claims: dict[str, list[tuple[float, float, float]]] = {}
    for device, start, end, weight in zip(named, held.start.tolist(), held.end.tolist(), held.weight, strict=True):
        if device in devices and end > start:
            claims.setdefault(device, []).append((start, end, float(weight)))
    unclaimed: dict[str, list[tuple[str, float, float, float]]] = {kind: [] for kind in UNCLAIMED}
    for name, device in devices.items():
        seen = watched.get(name, [])
        for share, free in _free(device.present, claims.get(name, [])):
            down = intervals.intersect(free, device.lost)
            up = intervals.subtract(free, device.lost)
            parts = {"down": down, "unallocated": intervals.intersect(up, seen)}
            parts["unreported"] = intervals.subtract(up, seen)
            for kind, spans in parts.items():
                unclaimed[kind] += [(device.node, start, end, share) for start, end in spans]
    complete = bool(devices) and all(name in devices for name in set(named))
    return Inventory(unclaimed, devices, complete)


def spread(start: Floats, end: Floats, weight: Floats, edges: Floats) -> Floats:
    """Give weight x time between each two edges, for spans of time with a weight. O((n + m) log n)."""
    return np.diff(_until(start, weight, edges) - _until(end, weight, edges))


def _until(at: Floats, weight: Floats, edges: Floats) -> Floats:
    """Give the sum over all instants before an edge of weight x (edge - instant)."""
    order = np.argsort(at)
    base = edges[0] if edges.size else 0.0
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    moment = np.concatenate([[0.0], np.cumsum((weight * (at - base))[order])])
    count = np.searchsorted(at[order], edges)
    return np.asarray((edges - base) * total[count] - moment[count], dtype=np.float64)


def _devices(tables: Tables, last_at: float) -> dict[str, Device]:
    """Read the inventory. A state lasts until the next one of the same device, or until the last thing known."""
    table = tables.device
    rows = fetch(
        table.select(
            "device_uuid",
            "node",
            "state",
            "gpu_model",
            since=seconds(table.since_at),
            until=seconds(table.until_at),
        ).order_by("device_uuid", "since")
    )
    names, since, until = rows.values("device_uuid"), rows.numbers("since"), rows.numbers("until")
    found: dict[str, Device] = {}
    for at, name in enumerate(names):
        following = since[at + 1] if at + 1 < len(names) and names[at + 1] == name else max(last_at, since[at])
        end = float(np.fmin(until[at], following))
        old = found.get(name)
        span, state = (float(since[at]), end), rows.values("state")[at]
        present = intervals.union([*(old.present if old else []), span])
        lost = intervals.union([*(old.lost if old else []), *([span] if state == "lost" else [])])
        model = rows.values("gpu_model")[at] or (old.gpu_model if old else None)
        found[name] = Device(rows.values("node")[at], model, present, lost, state)
    return found


def _watched(activity: Activity) -> dict[str, list[Span]]:
    """Give by device the time that any sample covers, whoever owned it."""
    spans: dict[str, list[Span]] = {}
    for device, start, end in zip(
        activity.device, activity.seen_start.tolist(), activity.seen_end.tolist(), strict=True
    ):
        spans.setdefault(activity.devices[device], []).append((start, end))
    return {name: intervals.union(own) for name, own in spans.items()}


def _free(present: list[Span], claims: list[tuple[float, float, float]]) -> list[tuple[float, list[Span]]]:
    """Give the spans of a device that are not held, by the share that is free, each list disjoint."""
    whole = intervals.union((start, end) for start, end, _ in claims)
    free: list[tuple[float, list[Span]]] = [(1.0, intervals.subtract(present, whole))]
    partly = [claim for claim in claims if claim[2] < 1.0]
    if not partly:
        return free
    edges = sorted({edge for start, end, _ in claims for edge in (start, end)})
    for since, until in itertools.pairwise(edges):
        held = sum(weight for start, end, weight in claims if start <= since and end >= until)
        if 0.0 < held < 1.0 - 1e-9:
            free.append((1.0 - held, intervals.intersect(present, [(since, until)])))
    return free
