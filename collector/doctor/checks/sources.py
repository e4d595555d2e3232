"""What does each source read on each device, and what not?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from collector.agent import chosen_sources
from collector.doctor.check import Check, Finding, Site, Stage, not_told
from collector.doctor.checks.devices import RESET
from collector.driver import Driver, DriverGoneError, KnownDevice
from collector.faults import Fault
from collector.source import DeviceReader, Reader, Reading, Source, SourceContext
from collector.sweep import SourceHealth, sweep
from warehouse.contract.errors import TrueloadError

BETWEEN_SECONDS: Final = 0.3
"""Between two rounds: counters give nothing at first, and GPM's samples must lie 0.1 s apart (nvml.h)."""

MOST_NAMES: Final = 4
FIXES: Final = {
    "gpm": "GPM comes with Hopper; before it run a dcgm-exporter on the node and add dcgm to agent.sources",
    "dcgm": "run a dcgm-exporter on the node, or take dcgm out of agent.sources",
}
RIGHTS: Final = "run as root; in a container with the driver's device files, for some calls with SYS_ADMIN"


def _run(site: Site) -> Iterator[Finding]:
    driver = site.driver
    if driver is None:
        yield not_told("the driver does not open")
        return
    readers: dict[str, Reader | DeviceReader] = {}
    chosen = {source.name: source for source in chosen_sources(site.settings)}
    for name, source in chosen.items():
        try:
            readers[name] = source.open(SourceContext(driver, site.settings))
        except TrueloadError as error:
            yield Finding(name, ok=False, reason=str(error), fix=FIXES.get(name, ""))
    health = {name: SourceHealth() for name in readers}
    said: list[str] = []
    found: dict[str, list[Reading]] = {}
    try:
        for wait_seconds in (0.0, BETWEEN_SECONDS, BETWEEN_SECONDS):
            time.sleep(wait_seconds)
            found = sweep(driver, readers, health, said.append)
    except DriverGoneError as error:
        yield Finding("the driver went away", ok=False, reason=str(error), fix="run the doctor again", needed=True)
        return
    for name, reader in readers.items():
        if isinstance(reader, DeviceReader):
            for device in driver.devices:
                yield _of_device(driver, device, chosen[name], found[name])
        else:
            yield _of_node(chosen[name], found[name], health[name], said)


def _of_node(source: Source, readings: Sequence[Reading], health: SourceHealth, said: Sequence[str]) -> Finding:
    own = [line for line in said if line.startswith((f"source {source.name}:",))]
    if health.failures or own:
        why = own[0] if own else ", ".join(health.failures)
        return Finding(source.name, ok=False, reason=why, fix=FIXES.get(source.name, ""))
    devices = len({reading.device_uuid for reading in readings})
    return Finding(f"{source.name}: {f'values of {devices} devices' if devices else 'it answers'}")


def _of_device(driver: Driver, device: KnownDevice, source: Source, readings: Sequence[Reading]) -> Finding:
    """Judge one source on one device: nothing at all, or a call that is forbidden, is no answer."""
    stuck = [call for call in driver.stuck() if call.device_uuid == device.uuid]
    if stuck:
        why = f"{stuck[0].call} does not return; the agent goes on without this device"
        return Finding(source.name, device.uuid, ok=False, reason=why, fix=RESET)
    if device.lost:
        return Finding(source.name, device.uuid, ok=False, reason="it is lost", fix=RESET)
    values: Mapping[str, float] = next((r.values for r in readings if r.device_uuid == device.uuid), {})
    told = f"{source.name}: {len(values)} of {len(source.metrics)} values"
    is_gpm = source.name == "gpm"
    refused = {
        call: said
        for (uuid, call), said in driver.refused.items()
        if uuid == device.uuid and call.startswith("nvmlGpm") == is_gpm
    }
    forbidden = [f"{call}: {text}" for call, (fault, text) in refused.items() if fault is Fault.FORBIDDEN]
    if forbidden:
        return Finding(told, device.uuid, ok=False, reason=_listed(forbidden), fix=RIGHTS)
    lacking = [name for name in source.metrics if name not in values]
    if values:
        return Finding(told, device.uuid, reason=f"without {_listed(lacking)}" if lacking else "")
    other = [f"{call}: {text}" for call, (_, text) in refused.items()]
    if is_gpm and _has_gpm(driver, device):
        return Finding(told, device.uuid, ok=None, reason=_listed(other) or "nothing between two samples; run it again")
    why = _listed(other) or "the device does not have it"
    return Finding(told, device.uuid, ok=False, reason=why, fix=FIXES.get(source.name, RESET))


def _has_gpm(driver: Driver, device: KnownDevice) -> bool:
    support = driver.call(device, "nvmlGpmQueryDeviceSupport")
    return support is not None and bool(support.isSupportedDevice)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


CHECK = Check("sources", "what each source reads on each device", Stage.DEVICES, _run)
