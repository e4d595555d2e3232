"""One round of reading: every device on its own lane, every other source on a lane of its own.

Whoever does not answer within the patience is left out of the round and not asked again until its call has returned.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, cast

from collector.driver import DriverGoneError
from collector.source import DeviceReader, Reader, Reading

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice

Say = Callable[[str], None]


@dataclass(slots=True)
class SourceHealth:
    """How a source does: reads, failures by reason, and the time it took.

    A read is one round for a source of the node, one device for a source that reads through the driver.
    """

    reads: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Read:
    """What one source gave on one lane, the time it took, and its failure."""

    source: str
    readings: Sequence[Reading]
    seconds: float
    error: Exception | None


def sweep(
    driver: Driver, readers: dict[str, Reader | DeviceReader], health: dict[str, SourceHealth], say_once: Say
) -> dict[str, list[Reading]]:
    """Read every source once; give the readings by source.

    Raises:
        DriverGoneError: the driver must be opened anew.

    """
    by_device: dict[str, DeviceReader] = {}
    jobs: dict[str, Callable[[], list[_Read]]] = {}
    for name, reader in readers.items():
        if reads_devices(type(reader)):
            by_device[name] = cast("DeviceReader", reader)
        else:
            jobs[f"source {name}"] = _node_job(name, cast("Reader", reader))
    if by_device:
        lanes: dict[str, list[KnownDevice]] = {}
        for device in driver.living():
            lanes.setdefault(device.lane, []).append(device)
        jobs |= {lane: _device_job(by_device, devices) for lane, devices in lanes.items()}
    done = driver.lanes.run(jobs, driver.patience_seconds)
    for lane in jobs.keys() - done.keys():
        say_once(f"{lane}: {_what_is_out(driver, lane)} does not return; the others go on")
    found: dict[str, list[Reading]] = {name: [] for name in readers}
    for job in done.values():
        for read in job.result():
            _count(health[read.source], read, say_once)
            found[read.source] += read.readings
    return found


@cache
def reads_devices(kind: type) -> bool:
    """Say whether readers of a class read one device at a time; remembered, for a protocol is slow to ask."""
    return issubclass(kind, DeviceReader)


def _what_is_out(driver: Driver, lane: str) -> str:
    """Name the device and the call that a lane waits for."""
    for device in driver.devices:
        if device.lane == lane and device.calling is not None:
            return f"{device.uuid}: {device.calling[0]}"
    return "what was asked"


def _node_job(name: str, reader: Reader) -> Callable[[], list[_Read]]:
    return lambda: [_timed(name, reader.read)]


def _device_job(readers: dict[str, DeviceReader], devices: list[KnownDevice]) -> Callable[[], list[_Read]]:
    def one(reader: DeviceReader, device: KnownDevice) -> list[Reading]:
        reading = reader.read_device(device)
        return [] if reading is None else [reading]

    return lambda: [
        _timed(name, lambda reader=reader, device=device: one(reader, device))  # type: ignore[misc]
        for device in devices
        for name, reader in readers.items()
        if not device.lost
    ]


def _timed(source: str, read: Callable[[], Sequence[Reading]]) -> _Read:
    begin = time.perf_counter()
    try:
        readings, error = read(), None
    except DriverGoneError:
        raise
    except Exception as caught:  # noqa: BLE001 - the framework's border: whatever a source does, the others go on
        readings, error = [], caught
    return _Read(source, readings, time.perf_counter() - begin, error)


def _count(health: SourceHealth, read: _Read, say_once: Say) -> None:
    health.reads += 1
    health.seconds += read.seconds
    health.slowest_seconds = max(health.slowest_seconds, read.seconds)
    if read.error is not None:
        health.failures[type(read.error).__name__] += 1
        say_once(f"source {read.source}: {read.error!r}")
