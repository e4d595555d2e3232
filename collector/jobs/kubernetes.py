"""Kubernetes, as its node sees it: what the kubelet gave to which pod, and which pod a process's control group names.

The kubelet names pods and says no UID; ``/var/log/pods/NAMESPACE_NAME_UID`` does. It also goes on listing pods
that have ended: one whose control group is gone holds nothing any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from collector import job_source as kind
from collector.aside import Aside
from collector.device_ids import parse_device_id
from collector.jobs._kube_api import KubeApi
from collector.jobs._kube_facts import Book
from collector.jobs._kube_pods import QUEUES, Reading
from collector.jobs._kube_reflect import KINDS
from collector.jobs._kube_watch import PodFollower
from collector.jobs._pod_resources import PodDevice, PodResources
from collector.jobs._resource_slices import Slices, read_slices
from warehouse.contract.errors import BadUseError, TrueloadError
from warehouse.contract.node_keys import POD, POD_NAME, NodeKey
from warehouse.contract.settings import Setting, Settings

SOCKET = Setting(
    "agent", "kubelet_socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "path", "Where every kubelet has it."
)
TIMEOUT_SECONDS = Setting(
    "agent",
    "kubelet_timeout_seconds",
    2.0,
    "seconds",
    "A kubelet answers in milliseconds; rows wait no longer than agent.call_patience_seconds for it.",
    0.1,
    30.0,
)
POLL_SECONDS = Setting(
    "agent", "kubelet_poll_seconds", 10.0, "seconds", "The cadence of rows; the kubelet limits its callers.", 1.0, 300.0
)
RESOURCES = Setting("agent", "gpu_resources", ("nvidia.com/",), "prefixes", "How NVIDIA's device plugin names GPUs.")
DRA_DRIVERS = Setting("agent", "dra_drivers", ("gpu.nvidia.com",), "names", "NVIDIA's driver of resource claims.")
USE_SLICES = Setting(
    "agent",
    "kubernetes_resource_slices",
    False,  # noqa: FBT003 - a setting's default
    "yes or no",
    "Needs a right in the cluster that nothing else on the node needs; without it claims stay unresolved.",
)
POD_LOGS = Setting("agent", "pod_logs_dir", "/var/log/pods", "path", "Where kubelets keep logs, by name and UID.")
CGROUP_ROOT = Setting("agent", "cgroup_root", "/sys/fs/cgroup", "path", "Where every Linux mounts control groups.")

KEPT_SECONDS: Final = 600.0
STARTING_SECONDS: Final = 60.0
"""A pod is given its devices a moment before its control group is made."""

Key = tuple[str, str, str]
"""Namespace, pod, and what is held as the kubelet says it."""


@dataclass(slots=True)
class Pods:
    """What the node's file system tells of pods."""

    logs: Path
    cgroups: Path

    def by_name(self) -> dict[tuple[str, str], tuple[float, str]]:
        """Give the begin and the UID by namespace and name; of two pods of one name, the one that came last."""
        newest: dict[tuple[str, str], tuple[float, str]] = {}
        try:
            paths = list(self.logs.iterdir())
        except OSError:
            return {}
        for path in paths:
            parts = path.name.split("_")
            if len(parts) == 3:  # noqa: PLR2004 - namespace, name, UID; none of them holds an underscore
                key, found = (parts[0], parts[1]), (_changed_at(path), parts[2])
                newest[key] = max(newest.get(key, found), found)
        return newest

    def living(self) -> frozenset[str] | None:
        """Give the UIDs of pods that have a control group; None where the tree cannot be seen."""
        first = _folders(self.cgroups)
        both = [*first, *(below for folder in first for below in _folders(folder))]
        tops = [folder for folder in both if folder.name.startswith("kubepods")]
        if not tops:
            return None
        classes = [folder for top in tops for folder in _folders(top)]
        groups = (folder.name for folder in [*classes, *(below for one in classes for below in _folders(one))])
        names = (name.removesuffix(".slice").rpartition("pod")[2].replace("_", "-") for name in groups if "pod" in name)
        return frozenset(names)


@dataclass(slots=True)
class KubernetesJobs:
    """Remembers what the kubelet said, so that every holding has a start and an end."""

    knows_allocations = True

    cluster: str
    ask: Callable[[], Sequence[PodDevice]]
    pods: Pods
    resources: tuple[str, ...] = ("nvidia.com/",)
    drivers: tuple[str, ...] = ("gpu.nvidia.com",)
    slices: Callable[[], Slices] | None = None
    poll_seconds: float = 10.0
    clock: Callable[[], float] = time.time
    unresolved_claims: int = 0
    _held: dict[Key, kind.Holding] = field(default_factory=dict)
    _ended: list[kind.Holding] = field(default_factory=list)
    _uids: dict[tuple[str, str], str] = field(default_factory=dict)
    _made_at: dict[tuple[str, str], float] = field(default_factory=dict)
    _gave_away: set[Key] = field(default_factory=set)
    _asked_at: float | None = None

    def holdings(self) -> list[kind.Holding]:
        """Give what pods hold now, and what they gave back within the last minutes.

        Raises:
            TrueloadError: the kubelet cannot be asked; what was known before stays valid.

        """
        now = self.clock()
        if self._asked_at is None or not 0 <= now - self._asked_at < self.poll_seconds:
            self._asked_at = now
            self._take([one for one in self.ask() if self._is_gpu(one)], now)
        return [*self._held.values(), *self._ended]

    def claim(self, witness: kind.Witness) -> kind.Claim | None:
        """Say which pod a process is in: by its control group.

        The name in its environment only helps where nothing on the node tells the pod's UID.
        """
        uid = witness.place.pod_uid
        if uid is None:
            return None
        names = {name for name, known in self._uids.items() if known.replace("-", "") == uid.replace("-", "")}
        if not names:
            host = witness.environ.get("HOSTNAME")
            names = {(namespace, pod) for namespace, pod, _ in self._held if pod == host} - self._uids.keys()
        keys = {held.attempt_key for (space, pod, _), held in self._held.items() if (space, pod) in names}
        if len(keys) == 1:
            return kind.Claim(keys.pop(), "cgroup")
        return kind.Claim(str(NodeKey(self.cluster, POD, uid)), "cgroup")

    def _is_gpu(self, one: PodDevice) -> bool:
        return one.resource in self.drivers if one.claim else one.resource.startswith(self.resources)

    def _take(self, listed: Sequence[PodDevice], now: float) -> None:
        pods, living = self.pods.by_name(), self.pods.living()
        self._uids = {name: uid for name, (_, uid) in pods.items()}
        self._made_at = {name: made_at for name, (made_at, _) in pods.items()}
        slices = self._read_slices() if any(one.claim for one in listed) else {}
        self.unresolved_claims = 0
        found: dict[Key, kind.Holding] = {}
        for one in listed:
            key = _key_of(one)
            if key in found or key in self._gave_away:
                continue
            before = self._held.get(key)
            since = now if before is None else before.start_at
            uid = self._uids.get(key[:2])
            if living is not None and uid is not None and uid not in living and self._is_old(key[:2], now):
                continue
            found[key] = (
                self._holding(one, key, uid, since, slices) if before is None else self._again(before, one, slices)
            )
        self._gave_away &= {_key_of(one) for one in listed}
        self._gave_away |= {key for key in found if self._was_taken_over(key, found)}
        found = {key: held for key, held in found.items() if key not in self._gave_away}
        self._ended += [replace(held, end_at=now) for key, held in self._held.items() if key not in found]
        self._held = found
        self._ended = [held for held in self._ended if (held.end_at or now) > now - KEPT_SECONDS]

    def _is_old(self, pod: tuple[str, str], now: float) -> bool:
        return now - self._made_at.get(pod, now) > STARTING_SECONDS

    def _was_taken_over(self, key: Key, found: Mapping[Key, kind.Holding]) -> bool:
        """Say whether a whole device that is still listed here has since been given to another pod."""
        wanted = parse_device_id(key[2])
        if wanted is None or wanted.is_replica or found[key].is_shared:
            return False
        return any(
            other[2] == key[2] and other[:2] != key[:2] and held.start_at > found[key].start_at
            for other, held in found.items()
        )

    def _holding(self, one: PodDevice, key: Key, uid: str | None, since: float, slices: Slices) -> kind.Holding:
        named = NodeKey(self.cluster, POD_NAME, f"{one.namespace}/{one.pod}", since)
        attempt_key = str(named if uid is None else NodeKey(self.cluster, POD, uid))
        held = kind.Holding(attempt_key, one.device_id, since, None, source="kubelet", said=key[2])
        return self._again(held, one, slices)

    def _again(self, held: kind.Holding, one: PodDevice, slices: Slices) -> kind.Holding:
        """Give a holding anew; a claim is looked up until it is found, and kept without a device while it is not."""
        if not one.claim:
            return held
        uuid = slices.get(
            (one.resource, one.pool, one.device_id), held.device_uuid if held.certainty == "claim" else None
        )
        self.unresolved_claims += uuid is None
        return replace(held, device_uuid=uuid, certainty="claim" if uuid else "claim unresolved")

    def _read_slices(self) -> Slices:
        try:
            return {} if self.slices is None else self.slices()
        except TrueloadError:
            return {}


def _folders(path: Path) -> list[Path]:
    """Give the folders in a folder; none where it went away meanwhile, as control groups do all the time."""
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _key_of(one: PodDevice) -> Key:
    return (one.namespace, one.pod, f"{one.claim}/{one.device_id}" if one.claim else one.device_id)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _open(settings: Settings) -> KubernetesJobs:
    from collector.agent import node_name
    from collector.settings import CALL_PATIENCE_SECONDS, CLUSTER

    timeout_seconds, patience_seconds = settings[TIMEOUT_SECONDS], settings[CALL_PATIENCE_SECONDS]
    slices = Aside("resource slices", lambda: read_slices(node_name(settings), timeout_seconds), patience_seconds)
    return KubernetesJobs(
        cluster=settings[CLUSTER],
        ask=Aside("the kubelet", PodResources(settings[SOCKET], timeout_seconds).read, patience_seconds),
        pods=Pods(Path(settings[POD_LOGS]), Path(settings[CGROUP_ROOT])),
        resources=tuple(settings[RESOURCES]),
        drivers=tuple(settings[DRA_DRIVERS]),
        slices=slices if settings[USE_SLICES] else None,
        poll_seconds=settings[POLL_SECONDS],
    )


URL = Setting(
    "jobs", "kubernetes_url", "", "URL", "Empty: the API server of the cluster that the collector runs in, as a pod."
)
API_SECONDS = Setting(
    "jobs", "kubernetes_timeout_seconds", 30.0, "seconds", "A page of 500 pods takes a busy server seconds.", 1.0, 600.0
)
USER_LABELS = Setting(
    "jobs",
    "kubernetes_user_labels",
    ("trueload/user", "kueue.x-k8s.io/owner", "user", "owner"),
    "names",
    "Kubernetes knows no users of pods: labels or annotations that name one, of the pod or its owner, best first.",
)
ACCOUNT_LABELS = Setting(
    "jobs",
    "kubernetes_account_labels",
    ("trueload/account", "team", "project"),
    "names",
    "Whose share a pod uses: labels or annotations, best first; without any the namespace stands for it.",
)
QUEUE_LABELS = Setting(
    "jobs",
    "kubernetes_queue_labels",
    QUEUES,
    "names",
    "Labels or annotations that name a queue, best first: Kueue's, Volcano's, YuniKorn's, Run:ai's.",
)
SERIES_KINDS = Setting(
    "jobs",
    "kubernetes_series_kinds",
    (),
    "names",
    "Kinds of owners that make one job after the other, as CronJob does: none beside those that are known.",
)
WATCHED_KINDS = Setting(
    "jobs",
    "kubernetes_kinds",
    tuple(kind.name for kind in KINDS),
    "names",
    "What is listed and watched beside pods; what the account may not list costs its own kind alone.",
)


def _follower(settings: Settings) -> PodFollower:
    from collector.following import folder_of
    from collector.settings import CLUSTER

    resources = tuple(settings[RESOURCES])
    reading = Reading(
        cluster=settings[CLUSTER],
        resources=resources,
        user_labels=tuple(settings[USER_LABELS]),
        account_labels=tuple(settings[ACCOUNT_LABELS]),
        queue_labels=tuple(settings[QUEUE_LABELS]),
        series_kinds=tuple(settings[SERIES_KINDS]),
    )
    names = {kind.name for kind in KINDS}
    if unknown := set(settings[WATCHED_KINDS]) - names:
        raise BadUseError(
            f"{WATCHED_KINDS.name}: no {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}"
        )
    return PodFollower(
        settings[CLUSTER],
        KubeApi.of_cluster(settings[URL], settings[API_SECONDS]),
        reading,
        folder_of(settings),
        kinds=tuple(kind for kind in KINDS if kind.name in settings[WATCHED_KINDS]),
        book=Book(resources, tuple(settings[DRA_DRIVERS])),
    )


JOB_SOURCE = kind.JobSource(
    name="kubernetes",
    description="Kubernetes on its node: the kubelet says which pod holds what, control groups whose a process is.",
    open=_open,
    settings=(
        *(SOCKET, TIMEOUT_SECONDS, POLL_SECONDS, RESOURCES, DRA_DRIVERS, USE_SLICES, POD_LOGS, CGROUP_ROOT),
        *(URL, API_SECONDS, USER_LABELS, ACCOUNT_LABELS, QUEUE_LABELS, SERIES_KINDS, WATCHED_KINDS),
    ),
    follower=_follower,
)
