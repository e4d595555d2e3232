"""What the labels of a series say: which device, on which node, and whose it is.

With ``honor_labels: false`` Prometheus keeps an exporter's own pod under ``pod`` and puts the workload's under
``exported_pod``; with ``true`` the workload's stands under ``pod``. A pod of an exporter is never a workload.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from warehouse.imports._values import MOST_NAME_CHARACTERS, BadRowError

NODE_LABELS: Final = ("exported_hostname", "Hostname", "hostname", "node", "nodename", "kubernetes_node", "instance")
"""Where a series names its node, the most reliable first. ``instance`` is the address that was scraped."""

NO_NODE: Final = "unknown"
"""Node of a device that has a UUID and no place."""

UUID_LABELS: Final = ("UUID", "gpu_uuid", "uuid", "GPU_UUID")
INDEX_LABELS: Final = ("gpu", "index", "minor_number", "ordinal", "minor")
MODEL_LABELS: Final = ("modelName", "model", "devicename", "gpu_type")
SLURM_LABELS: Final = ("hpc_job", "slurmjobid", "jobid", "slurm_job_id")
_NOBODY: Final = frozenset({"", "0", "none", "N/A"})
_A30_SLICES, _SLICES = 4, 7
"""Compute slices of a card that can be cut (NVIDIA MIG user guide: A30 has four, the others seven)."""


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device as labels name it: by UUID, or by its node and index."""

    node: str
    uuid: str | None
    index: int | None
    gpu_model: str | None
    share_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Whose a device is: a pod (``kind`` pod, id ``namespace/name``) or a job of Slurm (``kind`` slurm, its number)."""

    kind: str
    id: str
    namespace: str | None = None
    pod_uid: str | None = None
    user: str | None = None
    account: str | None = None


def device_name(labels: Mapping[str, str], node: str | None) -> DeviceName | None:
    """Find which device a series is about; None where it is about none. ``node`` stands for one that is not named.

    Raises:
        BadRowError: a name is too long to be one, or nothing tells the device from those of other nodes.

    """
    uuid, index = _first(labels, UUID_LABELS), _first(labels, INDEX_LABELS)
    if uuid is None and (index is None or not (index.isascii() and index.isdigit())):
        if index is None or not index.startswith(("MIG-", "GPU-")):
            return None
        uuid = index
    where = node or _node(labels) or NO_NODE
    if uuid is None and where == NO_NODE:
        raise BadRowError("no node", f"device {index} is on every node; name this one with --node")
    instance, profile = labels.get("GPU_I_ID"), labels.get("GPU_I_PROFILE")
    if uuid is not None:
        uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        if instance and instance.isdigit():
            uuid = f"MIG-{uuid}/{instance}/0"
    model = _first(labels, MODEL_LABELS)
    number = int(index) if index is not None and index.isascii() and index.isdigit() and len(index) < 5 else None  # noqa: PLR2004 - no node has ten thousand
    return DeviceName(where, uuid, number, model, _share(profile, model))


def workload(labels: Mapping[str, str], exporter_pods: Collection[str], *, exported: bool) -> Workload | None:
    """Find whose a device is; ``exported`` says that the target's own labels stand under the plain names."""
    for name in SLURM_LABELS:
        for label in (f"exported_{name}", name):
            if (job := labels.get(label, "")) not in _NOBODY:
                _short(label, job)
                user, account = _first(labels, ("user",)), _first(labels, ("account",))
                return Workload("slurm", job, user=user, account=None if account == "error" else account)
    pod, namespace = labels.get("exported_pod", ""), labels.get("exported_namespace", "")
    if not pod and not exported:
        pod, namespace = labels.get("pod", ""), labels.get("namespace", "")
        container = labels.get("container", "")
        if any(mark in pod or mark in container for mark in exporter_pods):
            return None
    if not pod:
        return None
    uid = labels.get("exported_pod_uid") or labels.get("pod_uid") or None
    where = namespace or "default"
    return Workload("pod", _short("pod", f"{where}/{pod}"), where, uid)


def target(labels: Mapping[str, str]) -> tuple[str, str]:
    """Give what was scraped: job and instance."""
    return labels.get("job", ""), labels.get("instance", "")


def _node(labels: Mapping[str, str]) -> str | None:
    for name in NODE_LABELS:
        if value := labels.get(name, ""):
            _short(name, value)
            if name != "instance":
                return value
            host = value.rpartition(":")[0] if ":" in value and not value.endswith("]") else value
            return host or value
    return None


def _share(profile: str | None, model: str | None) -> float:
    """Give the share of a card that a MIG profile such as ``1g.10gb`` or ``1c.3g.71gb`` takes."""
    if not profile:
        return 1.0
    slices = next((part[:-1] for part in profile.split(".") if part.endswith("g") and part[:-1].isdigit()), None)
    if slices is None or int(slices) == 0:
        return 1.0
    return min(int(slices) / (_A30_SLICES if model and "A30" in model.split("-")[0] else _SLICES), 1.0)


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    for name in names:
        if value := labels.get(name, ""):
            return _short(name, value)
    return None


def _short(name: str, value: str) -> str:
    if len(value) > MOST_NAME_CHARACTERS:
        raise BadRowError("field too long", f"label {name} has {len(value)} characters")
    return value
