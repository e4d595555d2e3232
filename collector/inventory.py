"""What the node has, as intervals: a record when something changes, and a memory of it across restarts.

The memory is a file beside the spool. It is also how an agent that starts after a card was lost still knows the
card's UUID, which the driver no longer tells.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector.files import replace_file
from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Device, Event, Node, Record

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice

UP: Final = "up"
LOST: Final = "lost"


@dataclass(slots=True)
class _Memory:
    """The open intervals: the node's, each device's, and the indexes that the driver counts but cannot open."""

    node: Node | None = None
    devices: dict[str, Device] = field(default_factory=dict)
    unreadable: list[list[object]] = field(default_factory=list)


class Inventory:
    """Compares what the driver shows with what was known."""

    def __init__(self, path: Path, cluster: str, node: str) -> None:
        """Restore what was known before.

        Raises:
            BadInputError: the file is damaged.

        """
        self._path = path
        self._cluster = cluster
        self._node = node
        self._memory = _restore(path)

    def update(self, driver: Driver, at: float) -> list[Record]:
        """Give the records of all that changed; what they say is remembered when this returns."""
        changed: list[Record] = [*self._node_changes(driver, at), *self._unreadable_changes(driver, at)]
        shown = {device.uuid: device for device in driver.devices}
        for uuid, device in shown.items():
            changed += self._device_changes(self._memory.devices.get(uuid), self._describe(device, at), at)
        for uuid in set(self._memory.devices) - set(shown):
            known = self._memory.devices[uuid]
            changed += self._device_changes(known, replace(known, since_at=at, state=LOST), at)
        if changed:
            content = {
                "node": None if self._memory.node is None else asdict(self._memory.node),
                "devices": [asdict(device) for device in self._memory.devices.values()],
                "unreadable": self._memory.unreadable,
            }
            replace_file(self._path, json.dumps(content).encode())
        return changed

    def _node_changes(self, driver: Driver, at: float) -> list[Record]:
        now = Node(
            cluster=self._cluster,
            node=self._node,
            since_at=at,
            gpu_count=len(driver.devices) + len(driver.unreadable),
            cpu_count=os.cpu_count(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            driver_version=driver.driver_version,
        )
        known = self._memory.node
        if known is not None and replace(known, since_at=at) == now:
            return []
        self._memory.node = now
        return [now] if known is None else [replace(known, until_at=at), now]

    def _device_changes(self, known: Device | None, now: Device, at: float) -> list[Record]:
        if known is not None and replace(known, since_at=at) == now:
            return []
        self._memory.devices[now.device_uuid] = now
        changed: list[Record] = [now] if known is None else [replace(known, until_at=at), now]
        if now.state != (UP if known is None else known.state):
            kind = "device_lost" if now.state == LOST else "device_back"
            changed.append(self._event(kind, at, now.device_uuid, None))
        return changed

    def _unreadable_changes(self, driver: Driver, at: float) -> list[Record]:
        now: list[list[object]] = [[index, reason] for index, reason in driver.unreadable]
        if now == self._memory.unreadable:
            return []
        self._memory.unreadable = now
        detail = "; ".join(f"index {index}: {reason}" for index, reason in driver.unreadable)
        return [self._event("device_unreadable", at, None, detail)] if detail else []

    def _describe(self, device: KnownDevice, at: float) -> Device:
        return Device(
            device_uuid=device.uuid,
            cluster=self._cluster,
            node=self._node,
            since_at=at,
            state=LOST if device.lost else UP,
            device_index=device.index,
            gpu_model=device.gpu_model,
            memory_bytes=device.memory_bytes,
            pci_bus_id=device.pci_bus_id,
        )

    def _event(self, kind: str, at: float, device_uuid: str | None, detail: str | None) -> Event:
        return Event(self._cluster, self._node, kind, at, device_uuid=device_uuid, detail=detail)


def _restore(path: Path) -> _Memory:
    if not path.exists():
        return _Memory()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        devices = [Device(**device) for device in content["devices"]]
        node = None if content["node"] is None else Node(**content["node"])
        return _Memory(node, {device.device_uuid: device for device in devices}, content["unreadable"])
    except (OSError, ValueError, KeyError, TypeError) as cause:
        detail = f"damaged ({cause!r}); remove it: the node's inventory then begins anew"
        raise BadInputError(str(path), None, detail) from cause
