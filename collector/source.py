"""The source kind: one file in ``collector/sources/`` = one thing measured on a node.

A source reads and returns; it knows no clock but the one it is called by, no owner, no spool. The agent times it,
catches its failure, counts it by reason and goes on with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collector.aggregate import Moment, Row
    from collector.driver import Driver, KnownDevice
    from warehouse.contract.model import Record, Sample
    from warehouse.contract.settings import AnySetting, Settings


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """What a source says about one process on one device, over the same time as the reading it belongs to.

    ``values`` are keyed by column of ``process_sample``; ``driver_util_ratio`` is the process's share of the driver's
    sample slices, to split a shared device by. What is not known is left out.
    """

    pid: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one source says about one device at one moment.

    ``values`` are keyed by name in the metric catalogue and speak for the time since the source's previous reading of
    this device: gauges as they stand now, means and amounts over that time. What the device cannot give is left out.
    """

    device_uuid: str
    values: Mapping[str, float]
    pids: tuple[int, ...] | None = None
    """Processes on the device right now; None where the source does not know."""

    processes: tuple[ProcessReading, ...] = ()


class Reader(Protocol):
    """An open source."""

    def read(self) -> Sequence[Reading]:
        """Read every device that can be read now; a device that fails is left out.

        Raises:
            DriverGoneError: the driver must be opened anew.

        """
        ...

    def close(self) -> None:
        """Give back what was opened. The driver may be gone by then."""
        ...


@runtime_checkable
class DeviceReader(Protocol):
    """An open source that reads through the driver: one device at a time, each on the device's own lane.

    A call that never returns costs its device and no other, so what is kept between readings is kept per device.
    """

    def read_device(self, device: KnownDevice) -> Reading | None:
        """Read one device; None where it gives nothing.

        Raises:
            DriverGoneError: the driver must be opened anew.

        """
        ...

    def close(self) -> None:
        """Give back what was opened, except of devices with a call that is still out."""
        ...


@runtime_checkable
class BeginsAnew(Protocol):
    """An open source that can forget what it keeps of a device, such as counters that went numb."""

    def begin_anew(self, device: KnownDevice) -> None:
        """Read this device from now on as if for the first time; no call on it is out."""
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """Rows and records of a time that lies some seconds back."""

    rows: Sequence[Row]
    records: Sequence[Record | Sample]


@runtime_checkable
class LateReader(Reader, Protocol):
    """An open source that learns of a second only some seconds later, and so makes its rows by itself.

    ``read`` works on the source's own lane and gives nothing; ``settled`` is called after each round by the agent.
    """

    def settled(
        self, moment: Moment, found: Mapping[str, Sequence[Reading]], owner_of: Callable[[int], str | None]
    ) -> Settled:
        """Take what all sources read in this round, and give what has become certain.

        ``owner_of`` names the attempt that a process belongs to.
        """
        ...

    def uses(self, device_uuid: str, start_at: float, end_at: float) -> Mapping[int, float]:
        """Give the seconds by process that it used of a device within a stretch that was just settled."""
        ...


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source may use: the open driver and the settings."""

    driver: Driver
    settings: Settings


@dataclass(frozen=True, slots=True)
class Source:
    """One thing measured: ``metrics`` are the names in the catalogue that its readings may hold."""

    name: str
    description: str
    metrics: tuple[str, ...]
    open: Callable[[SourceContext], Reader | DeviceReader]
    settings: tuple[AnySetting, ...] = ()
