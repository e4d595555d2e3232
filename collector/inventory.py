"""What the node has, as intervals: a record when something changes, and a memory of it across restarts.

The memory is a file beside the spool. It is also how an agent that starts after a card was lost still knows the
card's UUID, which the driver no longer tells. An agent without that memory (a new machine of an old name, a disk that
was wiped) says ``inventory_begun``: what was told of the node before and is not told again has ended.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collector.files import replace_file
from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Device, Event, Node, Record

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice

LOG = logging.getLogger("trueload.agent")
UP: Final = "up"
LOST: Final = "lost"


@dataclass(slots=True)
class _Memory:
    """The open intervals: the node's, each device's, and the indexes that the driver counts but cannot open."""

    node: Node | None = None
    devices: dict[str, Device] = field(default_factory=dict)
    unreadable: list[list[object]] = field(default_factory=list)
    boot_id: str = ""


class Inventory:
    """Compares what the driver shows with what was known."""

    def __init__(self, path: Path, cluster: str, node: str, boot_id: str | None = None) -> None:
        """Restore what was known before; ``boot_id`` tells this boot from others, by default the kernel's.

        Raises:
            BadInputError: the file is damaged.

        """
        self._path = path
        self._cluster = cluster
        self._node = node
        self._memory = _restore(path)
        self._boot_id = _boot_id() if boot_id is None else boot_id
        self._alive_at = path.stat().st_mtime if path.exists() else None
        self._is_new = True
        self._is_written = True
        self._has_said = False

    def resume(self, at: float, gap_seconds: float) -> list[Event]:
        """Say that nothing was measured since the last sign of life, and why, if that is longer ago than a gap.

        To be asked each time that the driver was opened, before :meth:`update`.
        """
        is_new, self._is_new = self._is_new, False
        since = self._alive_at
        if since is None or self._memory.node is None or at - since <= gap_seconds:
            return []
        why = "the driver did not answer"
        if is_new:
            why = "the agent did not run" if self._memory.boot_id == self._boot_id else "the node was started anew"
        return [self._event("agent_gap", since, None, f"{at - since:.0f} s: {why}")]

    def alive(self, at: float) -> None:
        """Note that something was measured and kept: the time of the file is the memory of it."""
        self._alive_at = at
        self._write()
        with suppress(OSError):  # a disk that takes nothing is said elsewhere
            os.utime(self._path, (at, at))

    def update(self, driver: Driver, at: float) -> list[Record]:
        """Give the records of all that changed; what they say is remembered when this returns.

        A disk that takes nothing costs the memory alone: it is written with the next sign of life that finds room.
        """
        begins = [] if self._memory.node is not None else [self._event("inventory_begun", at, None, None)]
        changed: list[Record] = [*begins, *self._node_changes(driver, at), *self._unreadable_changes(driver, at)]
        shown = {device.uuid: device for device in driver.devices}
        for uuid in sorted(set(self._memory.devices) - set(shown)):
            changed += self._missing(self._memory.devices[uuid], shown, at)
        for uuid, device in shown.items():
            now = self._describe(device, at)
            changed += self._device_changes(self._memory.devices.get(uuid), now, at, driver.last_xid.get(uuid))
        if changed or self._memory.boot_id != self._boot_id:
            self._memory.boot_id = self._boot_id
            self._is_written = False
            self._write()
        return changed

    def _write(self) -> None:
        """Write down what is known, unless it is."""
        if self._is_written:
            return
        content = {
            "node": None if self._memory.node is None else asdict(self._memory.node),
            "devices": [asdict(device) for device in self._memory.devices.values()],
            "unreadable": self._memory.unreadable,
            "boot_id": self._boot_id,
        }
        try:
            replace_file(self._path, json.dumps(content).encode())
        except OSError as error:
            if not self._has_said:
                LOG.warning("%s: %s; the inventory is not remembered until there is room", self._path, error.strerror)
            self._has_said = True
            return
        self._is_written, self._has_said = True, False

    def _node_changes(self, driver: Driver, at: float) -> list[Record]:
        now = Node(
            cluster=self._cluster,
            node=self._node,
            since_at=at,
            gpu_count=sum(device.parent_uuid is None for device in driver.devices) + len(driver.unreadable),
            cpu_count=os.cpu_count(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            driver_version=driver.driver_version,
        )
        known = self._memory.node
        if known is not None and replace(known, since_at=at) == now:
            return []
        self._memory.node = now
        if known is None:
            return [now]
        changed: list[Record] = [replace(known, until_at=at), now]
        if known.driver_version != now.driver_version:
            changed.append(self._event("driver_changed", at, None, f"{known.driver_version} to {now.driver_version}"))
        return changed

    def _device_changes(
        self, known: Device | None, now: Device, at: float, last_xid: str | None = None
    ) -> list[Record]:
        if known is not None and replace(known, since_at=at) == now:
            return []
        self._memory.devices[now.device_uuid] = now
        changed: list[Record] = [now] if known is None else [replace(known, until_at=at), now]
        if now.state != (UP if known is None else known.state):
            kind = "device_lost" if now.state == LOST else "device_back"
            detail = f"last Xid {last_xid}" if last_xid is not None and now.state == LOST else None
            changed.append(self._event(kind, at, now.device_uuid, detail))
        return changed

    def _missing(self, known: Device, shown: Mapping[str, KnownDevice], at: float) -> list[Record]:
        """Say what became of a device that the driver does not show: replaced, taken apart, or lost.

        A card in whose place another one is has gone for good, and so has a MIG instance whose card is there: its
        interval ends, and no state follows.
        """
        if known.parent_uuid is not None:
            card = shown.get(known.parent_uuid)
            kind, is_gone = "instance_removed", card is not None and not card.lost
        else:
            kind, is_gone = "device_replaced", known.pci_bus_id in {device.pci_bus_id for device in shown.values()}
        if not is_gone or known.pci_bus_id is None:
            return self._device_changes(known, replace(known, since_at=at, state=LOST), at)
        del self._memory.devices[known.device_uuid]
        return [replace(known, until_at=at), self._event(kind, at, known.device_uuid, known.pci_bus_id)]

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
            minor_number=device.minor_number,
            parent_uuid=device.parent_uuid,
            mig_profile=device.mig_profile,
            gpu_instance_id=device.gpu_instance_id,
            compute_instance_id=device.compute_instance_id,
            share_ratio=None if device.parent_uuid is None else round(device.share_ratio, 6),
            memory_kind=device.memory_kind,
            energy_method=device.energy_method,
        )

    def _event(self, kind: str, at: float, device_uuid: str | None, detail: str | None) -> Event:
        return Event(self._cluster, self._node, kind, at, device_uuid=device_uuid, detail=detail)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _restore(path: Path) -> _Memory:
    if not path.exists():
        return _Memory()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        devices = [Device(**_of(Device, device)) for device in content["devices"]]
        node = None if content["node"] is None else Node(**_of(Node, content["node"]))
        by_uuid = {device.device_uuid: device for device in devices}
        return _Memory(node, by_uuid, content["unreadable"], content.get("boot_id", ""))
    except (OSError, ValueError, KeyError, TypeError) as cause:
        detail = f"damaged ({cause!r}); remove it: the node's inventory then begins anew"
        raise BadInputError(str(path), None, detail) from cause


def _of(kind: type[Device | Node], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Give what this release knows of a record: one that was written by a newer release may say more."""
    return {name: stored[name] for name in (one.name for one in fields(kind)) if name in stored}
