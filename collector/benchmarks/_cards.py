"""The card that the benchmarks of the agent put into a stand-in node, with everything that the agent reads of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from collector.simulate.standin import GpmCounters, StandinCounters, StandinDevice, StandinProcess

GIB: Final = 1024**3


def uuid_of(place: int) -> str:
    """Give the UUID of the card at a place."""
    return f"GPU-{place:08d}-0000-0000-0000-000000000000"


def card(place: int, seconds: float, processes: Sequence[StandinProcess] = ()) -> StandinDevice:
    """Give a card as it is when nothing is wrong, so long after its start."""
    busy_seconds = seconds / 2
    return StandinDevice(
        uuid=uuid_of(place),
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id=f"00000000:{0x10 + place:02X}:00.0",
        minor_number=place,
        memory_total_bytes=80 * GIB,
        memory_used_bytes=40 * GIB,
        driver_util_ratio=0.9,
        power_watts=500.0,
        energy_joules=500.0 * seconds,
        temperature_celsius=60.0,
        sm_clock_hertz=1.98e9,
        memory_clock_hertz=2.6e9,
        memory_temperature_celsius=70.0,
        gpm=GpmCounters(seconds, *(busy_seconds,) * 8),
        counters=StandinCounters(power_capped_seconds=busy_seconds, pcie_received_bytes=int(1e9 * seconds)),
        nvlink_bytes=(int(1e9 * seconds), int(1e9 * seconds)),
        processes=tuple(processes),
    )
