"""What stands beside pods: queues and priorities, claims and the cards they got, models and shares of nodes.

Objects of Kueue (``Workload``), Volcano (``PodGroup``), Dynamic Resource Allocation (``ResourceSlice``,
``ResourceClaim``) and nodes, each read by a function of its own; field names as in those projects' API references.
Reflectors write from threads of their own, the follower of pods reads.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from collector.jobs._resource_slices import Slices, slices_of

Object = Mapping[str, Any]
MOST_REMEMBERED: Final = 50_000
"""Queued work that is remembered: the oldest goes first. Some hundred bytes each."""

MODEL_LABELS: Final = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
"""GPU Feature Discovery's and GKE's labels of a node's cards."""

_SHARED: Final = "-SHARED"
_MIG: Final = re.compile(r"-?MIG-(?P<profile>[0-9][0-9a-z.+-]*)$", re.IGNORECASE)
_PROFILE: Final = re.compile(r"(?:(\d+)c\.)?(\d+)g\.(\d+)gb")
_A30_PROFILES: Final = frozenset({"1g.6gb", "2g.12gb", "4g.24gb"})
_SLICES, _A30_SLICES = 7, 4
"""Compute slices of a card that can be cut (NVIDIA MIG User Guide, supported profiles)."""


@dataclass(frozen=True, slots=True)
class Queued:
    """What a queueing system says of a piece of work. ``since_at`` is when it began to wait, last."""

    queue: str | None
    priority: str | None
    since_at: float | None
    gpu_count: float | None
    owner_kind: str = ""
    owner_name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node's cards as its labels tell them: ``share_ratio`` is what one counted "GPU" is of a card."""

    gpu_model: str | None
    share_ratio: float
    is_ready: bool | None
    reason: str
    changed_at: float | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A device that a claim got."""

    driver: str
    pool: str
    device: str


Key = tuple[str, str]
"""What changed: its kind (``owner``, ``group``, ``claim``, ``slices``, ``node``) and which."""


class Book:
    """What is known now, by what pods name it by. Written by several threads, read by one."""

    def __init__(
        self, resources: tuple[str, ...] = ("nvidia.com/",), drivers: tuple[str, ...] = ("gpu.nvidia.com",)
    ) -> None:
        """Begin with nothing known; ``resources`` are prefixes of GPU resources, ``drivers`` those of GPU claims."""
        self._resources = resources
        self._drivers = drivers
        self._lock = threading.Lock()
        self._owners: dict[str, Queued] = {}
        self._groups: dict[str, Queued] = {}
        self._claims: dict[str, tuple[Claimed, ...]] = {}
        self._slices: dict[str, Slices] = {}
        self._nodes: dict[str, NodeFacts] = {}
        self._changed: set[Key] = set()

    def queued(self, owner_uid: str, group: str | None) -> Queued | None:
        """Say what queue a piece of work stood in: by the UID of its owner, or by ``namespace/group``."""
        with self._lock:
            return self._owners.get(owner_uid) or (None if group is None else self._groups.get(group))

    def claim(self, name: str) -> tuple[Claimed, ...] | None:
        """Give the devices of a claim by ``namespace/name``; None where it is not known or got none yet."""
        with self._lock:
            return self._claims.get(name)

    def uuid(self, one: Claimed) -> str | None:
        """Give the card that a device of a driver is, where a slice tells."""
        with self._lock:
            found = (slices.get((one.driver, one.pool, one.device)) for slices in self._slices.values())
            return next((uuid for uuid in found if uuid), None)

    def node(self, name: str | None) -> NodeFacts | None:
        """Give what is known of a node."""
        with self._lock:
            return self._nodes.get(name or "")

    def take_changes(self) -> set[Key]:
        """Give what changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return changed

    # ------------------------------------------------------------------------------------- written by reflectors

    def see_workload(self, found: Object, *, is_gone: bool = False) -> None:
        """Take a Workload of Kueue. One that is gone is remembered: its pods may still be told."""
        if is_gone:
            return
        spec = _map(found, "spec")
        queued = _queued(
            found,
            spec.get("queueName"),
            _map(spec, "priorityClassRef").get("name") or spec.get("priorityClassName") or _number_text(spec),
            _waits_since(found),
            sum(_pod_set_gpus(one, self._resources) for one in spec.get("podSets") or ()) or None,
        )
        with self._lock:
            for owner in _owner_uids(found):
                self._remember(self._owners, owner, queued, ("owner", owner))

    def see_pod_group(self, found: Object, *, is_gone: bool = False) -> None:
        """Take a PodGroup of Volcano. One that is gone is remembered."""
        if is_gone:
            return
        spec, told = _map(found, "spec"), _map(found, "metadata")
        least = _map(spec, "minResources").items()
        gpus = sum(_number(amount) or 0.0 for name, amount in least if str(name).startswith(self._resources))
        queued = _queued(
            found, spec.get("queue"), spec.get("priorityClassName"), _instant(told.get("creationTimestamp")), gpus
        )
        name = f"{told.get('namespace', '')}/{told.get('name', '')}"
        with self._lock:
            self._remember(self._groups, name, queued, ("group", name))
            for owner in _owner_uids(found):
                self._remember(self._owners, owner, queued, ("owner", owner))

    def see_slice(self, found: Object, *, is_gone: bool = False) -> None:
        """Take a ResourceSlice."""
        uid = str(_map(found, "metadata").get("uid", ""))
        slices = {} if is_gone else slices_of({"items": [found]})
        with self._lock:
            if self._slices.get(uid, {}) != slices:
                self._slices[uid] = slices
                self._changed.add(("slices", ""))
            if is_gone:
                self._slices.pop(uid, None)

    def see_claim(self, found: Object, *, is_gone: bool = False) -> None:
        """Take a ResourceClaim with the devices of ``drivers`` that it got."""
        told = _map(found, "metadata")
        name = f"{told.get('namespace', '')}/{told.get('name', '')}"
        results = _map(_map(_map(found, "status"), "allocation"), "devices").get("results") or ()
        claimed = tuple(
            Claimed(str(one.get("driver", "")), str(one.get("pool", "")), str(one.get("device", "")))
            for one in results
            if one.get("driver") in self._drivers
        )
        with self._lock:
            if is_gone or not claimed:
                self._claims.pop(name, None)  # the pods that had it were told
            else:
                self._remember(self._claims, name, claimed, ("claim", name))

    def see_node(self, found: Object, *, is_gone: bool = False) -> None:
        """Take a node."""
        name = str(_map(found, "metadata").get("name", ""))
        facts = node_facts(found)
        with self._lock:
            if is_gone:
                self._nodes.pop(name, None)
            elif self._nodes.get(name) != facts:
                self._nodes[name] = facts
                self._changed.add(("node", name))

    def _remember(self, known: dict[str, Any], name: str, value: object, key: Key) -> None:
        if known.get(name) == value:
            return
        known.pop(name, None)
        known[name] = value
        if len(known) > MOST_REMEMBERED:
            del known[next(iter(known))]
        self._changed.add(key)


def node_facts(node: Object) -> NodeFacts:
    """Read a node's labels and whether it is ready."""
    labels = _map(_map(node, "metadata"), "labels")
    said = next((str(labels[name]) for name in MODEL_LABELS if labels.get(name)), None)
    profile, model = None, said
    if said is not None:
        model = said.removesuffix(_SHARED)
        if (found := _MIG.search(model)) is not None:
            profile, model = found["profile"].lower(), model[: found.start()]
    replicas = _number(labels.get("nvidia.com/gpu.replicas")) or 1.0
    share = share_of_profile(profile) / max(1.0, replicas)
    ready = next((one for one in _map(node, "status").get("conditions") or () if one.get("type") == "Ready"), None)
    if ready is None:
        return NodeFacts(model or None, share, None, "", None)
    is_ready = {"True": True, "False": False}.get(str(ready.get("status")), False)
    return NodeFacts(
        model or None, share, is_ready, str(ready.get("reason", "")), _instant(ready.get("lastTransitionTime"))
    )


def share_of_profile(profile: str | None) -> float:
    """Give an instance's part of its card's compute slices; 1 where there is no profile."""
    found = _PROFILE.fullmatch((profile or "").partition("+")[0])
    if found is None:
        return 1.0
    whole = f"{found[2]}g.{found[3]}gb"
    return int(found[1] or found[2]) / (_A30_SLICES if whole in _A30_PROFILES else _SLICES)


def _queued(found: Object, queue: object, priority: object, since: float | None, gpus: float | None) -> Queued:
    owner: Object = next(iter(_map(found, "metadata").get("ownerReferences") or ()), {})
    return Queued(
        queue=str(queue) if queue else None,
        priority=str(priority) if priority else None,
        since_at=since,
        gpu_count=gpus or None,
        owner_kind=str(owner.get("kind", "")),
        owner_name=str(owner.get("name", "")),
        namespace=str(_map(found, "metadata").get("namespace", "")),
    )


def _waits_since(workload: Object) -> float | None:
    """Give when it began to wait: when it was made, or was put back into its queue (condition ``Requeued``)."""
    conditions = _map(workload, "status").get("conditions") or ()
    begins = [
        _instant(_map(workload, "metadata").get("creationTimestamp")),
        *(
            _instant(one.get("lastTransitionTime"))
            for one in conditions
            if one.get("type") == "Requeued" and one.get("status") == "True"
        ),
    ]
    return max((at for at in begins if at is not None), default=None)


def _pod_set_gpus(pod_set: Object, resources: tuple[str, ...]) -> float:
    containers = _map(_map(pod_set, "template"), "spec").get("containers") or ()
    each = sum(
        _number(amount) or 0.0
        for one in containers
        for name, amount in _map(_map(one, "resources"), "limits").items()
        if str(name).startswith(resources)
    )
    return each * (_number(pod_set.get("count")) or 1.0)


def _owner_uids(found: Object) -> Iterable[str]:
    return [
        str(one["uid"])
        for one in _map(found, "metadata").get("ownerReferences") or ()
        if one.get("uid") and one.get("kind") != "Pod"
    ]


def _number_text(spec: Object) -> str | None:
    number = spec.get("priority")
    return f"priority {number}" if isinstance(number, int) and number else None


def _map(found: object, name: str) -> Object:
    value = found.get(name) if isinstance(found, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _instant(text: object) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except ValueError:
        return None
