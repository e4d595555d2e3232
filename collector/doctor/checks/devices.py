"""Which devices are there, and which of them answer?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collector.doctor.check import Check, Finding, Site, Stage, not_told
from collector.driver import NOT_RETURNED, KnownDevice

RESET: Final = "look into dmesg for Xid errors; reset it (nvidia-smi --gpu-reset -i N) or reboot"
GIB: Final = 1024**3


def _run(site: Site) -> Iterator[Finding]:
    driver = site.driver
    if driver is None:
        yield not_told("the driver does not open")
        return
    living = [device for device in driver.devices if not device.lost and device.parent_uuid is None]
    cards = [device for device in driver.devices if device.parent_uuid is None]
    count = len(cards) + len(driver.unreadable)
    if not count:
        fix = "in a container: NVIDIA_VISIBLE_DEVICES=all; else look into lspci and dmesg"
        yield Finding("none", ok=False, reason="the driver counts no device", fix=fix, needed=True)
        return
    reason = "" if living else "none of them answers"
    yield Finding(f"{len(living)} of {count} answer", ok=bool(living), reason=reason, needed=True)
    for device in driver.devices:
        ok = not device.lost
        yield Finding(_said(device), device.uuid, ok=ok, reason="" if ok else "it is lost", fix="" if ok else RESET)
    for index, reason in driver.unreadable:
        why = "its calls do not return" if reason == NOT_RETURNED else reason
        yield Finding("cannot be opened", f"index {index}", ok=False, reason=why, fix=RESET)


def _said(device: KnownDevice) -> str:
    parts = [device.gpu_model or "unknown model"]
    if device.parent_uuid is not None:
        parts.append(f"instance {device.gpu_instance_id} of {device.parent_uuid}")
    if device.memory_bytes is not None:
        parts.append(f"{device.memory_bytes / GIB:.0f} GiB")
    if device.pci_bus_id is not None:
        parts.append(device.pci_bus_id)
    return ", ".join(parts)


CHECK = Check("devices", "which devices answer", Stage.DEVICES, _run)
