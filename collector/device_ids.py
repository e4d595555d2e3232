"""The many spellings of a device in kubelets and schedulers, read into one shape and found among the node's devices.

Spellings: ``GPU-<uuid>``, ``MIG-<uuid>``, ``MIG-GPU-<uuid>/<gpu instance>/<compute instance>`` (drivers before 470),
``nvidia<minor>``, ``nvidia<minor>/gi<n>``, ``nvidia<minor>/vgpu<n>``, a bare minor number, and behind any of them a
replica: ``::<n>``, or ``-<n>`` behind a whole UUID.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_UUID: Final = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_REPLICA: Final = re.compile(r"::(\d+)$")
_DASHED_REPLICA: Final = re.compile(rf"((?:GPU|MIG)-{_UUID})-(\d+)")
_OLD_MIG: Final = re.compile(r"MIG-(GPU-[0-9A-Za-z-]+)/(\d+)/(\d+)")
_NAMED: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-]+")
_MINOR: Final = re.compile(r"(?:nvidia)?(\d{1,3})(?:/(?:gi(\d+)(?:/ci(\d+))?|vgpu(\d+)))?")


@dataclass(frozen=True, slots=True)
class DeviceId:
    """A device as it was spelled: by ``uuid`` or by ``minor`` (``/dev/nvidia<minor>``), with what lies behind it.

    ``is_replica`` says that others may be given the same device by other replicas of it.
    """

    uuid: str | None = None
    minor: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    is_replica: bool = False


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """A device of this node: a card, or a MIG instance of the card ``parent_uuid``."""

    uuid: str
    minor: int | None = None
    parent_uuid: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


def parse_device_id(text: str) -> DeviceId | None:
    """Read one spelling; None for one that is not known."""
    replica = _REPLICA.search(text)
    if replica:
        text = text[: replica.start()]
    dashed = _DASHED_REPLICA.fullmatch(text)
    if dashed:
        return DeviceId(uuid=dashed[1], is_replica=True)
    old = _OLD_MIG.fullmatch(text)
    if old:
        return DeviceId(old[1], None, int(old[2]), int(old[3]), is_replica=replica is not None)
    if _NAMED.fullmatch(text):
        return DeviceId(uuid=text, is_replica=replica is not None)
    by_minor = _MINOR.fullmatch(text)
    if by_minor is None:
        return None
    shared = replica is not None or by_minor[4] is not None
    return DeviceId(None, int(by_minor[1]), _int(by_minor[2]), _int(by_minor[3]), is_replica=shared)


def find_device(wanted: DeviceId, known: Sequence[NodeDevice]) -> str | None:
    """Give the UUID of a spelled device; None when this node has no such device.

    A MIG instance that the driver does not list is no device of its own: blaming the whole card would be wrong.
    """
    by_uuid = {device.uuid.lower(): device for device in known}
    if wanted.uuid is not None:
        card = by_uuid.get(wanted.uuid.lower())
    else:
        cards = [device for device in known if device.parent_uuid is None and device.minor == wanted.minor]
        card = cards[0] if len(cards) == 1 else None
    if card is None or wanted.gpu_instance is None:
        return None if card is None else card.uuid
    instances = [
        device.uuid
        for device in known
        if device.parent_uuid == card.uuid
        and device.gpu_instance == wanted.gpu_instance
        and wanted.compute_instance in {None, device.compute_instance}
    ]
    return instances[0] if len(instances) == 1 else None


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)
