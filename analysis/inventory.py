"""Capacity: what became of the time of the devices that are there, held or not.

capacity = allocated + unallocated + down + unreported. Of a device's time what is held counts as allocated, whatever
state it is in; of the rest, time in state ``lost`` is down, time covered by any sample is unallocated, and what is left
is unreported. MIG instances are parts of their card: who holds one holds its share of the card.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from analysis.frames import Tables, add_by, fetch, seconds
from analysis.remedy import NodeFacts
from warehouse.contract import intervals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.account import GpuSeconds
    from analysis.activity import Activity
    from analysis.frames import Bools, Floats, Ints
    from analysis.holdings import Holdings, Span

Claim = tuple[float, float, float]
UNCLAIMED = ("unallocated", "down", "unreported")
KNOWN_RATIO = 0.9
"""Where a tenth of the held GPU time or more lies on devices that no inventory tells of, capacity would be a guess. A
lost card, or a node without an agent for a while, is less."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device: where it is, what it is, and the stretches of time in which it was there and in which it was lost."""

    node: str
    gpu_model: str | None
    present: list[Span]
    lost: list[Span]
    state: str


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """Spans of time in which a share of a device was not held; ``device`` numbers the devices of the inventory."""

    device: Ints
    start: Floats
    end: Floats
    share: Floats


@dataclass(frozen=True, slots=True)
class Inventory:
    """The devices, and by kind (UNCLAIMED) their time that nobody held.

    ``complete`` says that allocations name their devices, nearly all of them devices of the inventory; without that
    nobody can tell what was free. ``dark_nodes`` are those where a device was held that the inventory lacks: their
    capacity is not known, and that of the fleet holds of such devices the time alone in which they were held.
    """

    names: Sequence[str]
    devices: Sequence[Device]
    unclaimed: Mapping[str, Unclaimed]
    complete: bool
    dark_nodes: frozenset[str | None] = frozenset()

    def spread(self, kind: str, edges: Floats) -> Floats:
        """Give the GPU-seconds of a kind between each two edges."""
        spans = self.unclaimed[kind]
        return spread(spans.start, spans.end, spans.share, edges)

    def free_by_device(self, kind: str, window: Span) -> Floats:
        """Give the GPU-seconds of a kind in a window, by device."""
        spans = self.unclaimed[kind]
        length = np.minimum(spans.end, window[1]) - np.maximum(spans.start, window[0])
        return add_by(spans.device, np.maximum(length, 0.0) * spans.share, len(self.names))

    def complete_account(self, account: GpuSeconds, window: Span, of: Bools | None = None) -> GpuSeconds:
        """Add capacity and its parts to an account; they stay None where they cannot be known.

        The account must be that of the whole window, on all devices or on those of ``of``.
        """
        if not self.complete:
            return account
        chosen = slice(None) if of is None else of
        free = {kind: float(self.free_by_device(kind, window)[chosen].sum()) for kind in UNCLAIMED}
        return replace(account, capacity=account.allocated + sum(free.values()), **free)


def gather_inventory(tables: Tables, held: Holdings, activity: Activity, last_at: float) -> Inventory:
    """Find for each device of the inventory what became of the time that nobody held it."""
    devices = _devices(tables, last_at)
    cards = _cards(tables)
    watched = _watched(activity, cards)
    named = [cards.get(name, name) for name in held.pick("device_uuid")]
    claims: dict[str, list[Claim]] = {}
    for device, start, end, weight in zip(named, held.start.tolist(), held.end.tolist(), held.weight, strict=True):
        if device in devices and end > start:
            claims.setdefault(device, []).append((start, end, float(weight)))
    found: dict[str, list[tuple[int, float, float, float]]] = {kind: [] for kind in UNCLAIMED}
    for number, (name, device) in enumerate(devices.items()):
        seen = watched.get(name, [])
        for share, free in _free(device.present, claims.get(name, [])):
            up = intervals.subtract(free, device.lost)
            parts = {
                "unallocated": intervals.intersect(up, seen),
                "down": intervals.intersect(free, device.lost),
                "unreported": intervals.subtract(up, seen),
            }
            for kind, spans in parts.items():
                found[kind] += [(number, start, end, share) for start, end in spans]
    unclaimed = {kind: _as_arrays(spans) for kind, spans in found.items()}
    outside = np.array([name not in devices for name in named], dtype=np.bool_)
    nodes = held.pick("node")
    dark = frozenset(nodes[at] for at in np.flatnonzero(outside))
    complete = bool(devices) and _is_nearly_whole(held, outside)
    return Inventory(list(devices), list(devices.values()), unclaimed, complete, dark)


def _is_nearly_whole(held: Holdings, outside: Bools) -> bool:
    """Say whether what was held on devices outside the inventory is so little that it costs its nodes alone."""
    if not outside.any():
        return True
    if None in {device for device, out in zip(held.pick("device_uuid"), outside, strict=True) if out}:
        return False
    seconds_held = held.weight * (held.end - held.start)
    return bool(seconds_held[~outside].sum() >= KNOWN_RATIO * seconds_held.sum())


def node_facts(inventory: Inventory | None, window: Span) -> list[NodeFacts]:
    """Give every node of the inventory with the time in which devices of it were lost; none is known without one."""
    lost: dict[str, dict[str, tuple[Span, ...]]] = {}
    for name, device in zip(inventory.names, inventory.devices, strict=True) if inventory else ():
        own = lost.setdefault(device.node, {})
        spans = tuple(intervals.intersect(device.lost, [window]))
        if spans:
            own[name] = spans
    return [NodeFacts(node, own) for node, own in sorted(lost.items())]


def _as_arrays(spans: list[tuple[int, float, float, float]]) -> Unclaimed:
    rows = np.array(spans, dtype=np.float64).reshape(-1, 4)
    return Unclaimed(rows[:, 0].astype(np.int64), rows[:, 1], rows[:, 2], rows[:, 3])


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
    """Read the inventory. A state lasts until the next one of the same device, or until the last thing known.

    It ends, too, where its node's inventory began anew: what is still there was told again at that instant.
    """
    begun = _begun(tables)
    table = tables.device.filter(tables.device.parent_uuid.isnull())
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
        node = rows.values("node")[at]
        anew = next((begin for begin in begun.get(node, ()) if begin > since[at]), np.inf)
        end = float(np.fmin(np.fmin(until[at], following), anew))
        old = found.get(name)
        span, state = (float(since[at]), end), rows.values("state")[at]
        present = intervals.union([*(old.present if old else []), span])
        lost = intervals.union([*(old.lost if old else []), *([span] if state == "lost" else [])])
        model = rows.values("gpu_model")[at] or (old.gpu_model if old else None)
        found[name] = Device(node, model, present, lost, state)
    return found


def _begun(tables: Tables) -> dict[str, list[float]]:
    """Give by node the instants at which its inventory began anew."""
    table = tables.event.filter(tables.event.kind == "inventory_begun")
    rows = fetch(table.select("node", at=seconds(table.happened_at)).order_by("node", "at"))
    found: dict[str, list[float]] = {}
    for node, at in zip(rows.values("node"), rows.numbers("at"), strict=True):
        found.setdefault(node, []).append(float(at))
    return found


def _cards(tables: Tables) -> dict[str, str]:
    """Give the card of each MIG instance."""
    table = tables.device.filter(tables.device.parent_uuid.notnull())
    rows = fetch(table.group_by("device_uuid").aggregate(card=table.parent_uuid.max()).order_by("device_uuid"))
    return dict(zip(rows.values("device_uuid"), rows.values("card"), strict=True))


def _watched(activity: Activity, cards: Mapping[str, str]) -> dict[str, list[Span]]:
    """Give by card the time that any sample of it or of an instance on it covers, whoever owned it."""
    spans: dict[str, list[Span]] = {}
    for device, start, end in zip(
        activity.device, activity.seen_start.tolist(), activity.seen_end.tolist(), strict=True
    ):
        name = activity.devices[device]
        spans.setdefault(cards.get(name, name), []).append((start, end))
    return {name: intervals.union(own) for name, own in spans.items()}


def _free(present: list[Span], claims: list[Claim]) -> list[tuple[float, list[Span]]]:
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
