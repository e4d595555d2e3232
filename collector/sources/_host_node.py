"""The node as a whole: CPU time, memory, load, disks, network, and how long its tasks waited (proc(5), psi.rst)."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

from collector.sources._host_counts import Look
from collector.sources._host_text import interfaces, pairs, pressure_seconds, read_text, whole

SECTOR_BYTES: Final = 512
"""What a sector is in ``/proc/diskstats``, whatever the disk's own are."""

KIB: Final = 1024
BUSY_TICKS: Final = (0, 1, 2, 5, 6, 7)
"""User, nice, system, irq, softirq, steal in the line ``cpu`` of ``/proc/stat``; time of guests is in user and nice."""

IOWAIT: Final = 4
STAT_BYTES_MAX: Final = 4 * 1024**2
"""A line per CPU and one number per interrupt."""


class Disks:
    """Which block devices are physical: those that have hardware below them in sysfs. Remembered once known."""

    def __init__(self, sys_root: Path) -> None:
        """Look below ``sys_root``, usually ``/sys``."""
        self._root = sys_root
        self._known: dict[str, bool] = {}

    def is_physical(self, device: str) -> bool:
        """Say so of a device by its numbers, such as ``259:0``, or its name, such as ``nvme0n1``."""
        if device not in self._known:
            folder = "dev/block" if ":" in device else "block"
            self._known[device] = "/" not in device and (self._root / folder / device / "device").exists()
        return self._known[device]


class Node:
    """Reads the node below its ``/proc`` and ``/sys``."""

    def __init__(self, proc_root: Path, sys_root: Path, disks: Disks) -> None:
        """Nothing is opened yet."""
        self._proc = proc_root
        self._sys = sys_root
        self._disks = disks
        self._ticks_per_second = float(os.sysconf("SC_CLK_TCK"))
        self._physical: dict[str, bool] = {}

    def look(self) -> Look:
        """Read what it says now; what cannot be read is left out."""
        look = Look()
        self._cpu(look)
        self._memory(look)
        load = (read_text(self._proc / "loadavg") or "").split()
        if load and (number := _number(load[0])) is not None:
            look.gauges["load_count"] = number
        faults = pairs(read_text(self._proc / "vmstat")).get("pgmajfault")
        if faults is not None:
            look.totals["major_fault_count"] = float(faults)
        self._disk_traffic(look)
        self._network_traffic(look)
        for name in ("cpu", "memory", "io"):
            stalled = pressure_seconds(read_text(self._proc / "pressure" / name))
            for kind, column in (("some", f"{name}_stall_seconds"), ("full", f"{name}_full_stall_seconds")):
                if kind in stalled and (kind == "some" or name == "io"):
                    look.totals[column] = stalled[kind]
        return look

    def _cpu(self, look: Look) -> None:
        text = read_text(self._proc / "stat", STAT_BYTES_MAX) or ""
        name, *words = text.partition("\n")[0].split()[:9] or [""]
        ticks = [whole(word) for word in words]
        known = [tick for tick in ticks if tick is not None]
        if name == "cpu" and len(known) == len(ticks) and len(known) > max(BUSY_TICKS):
            look.totals["cpu_seconds"] = sum(known[place] for place in BUSY_TICKS) / self._ticks_per_second
            look.totals["cpu_iowait_seconds"] = known[IOWAIT] / self._ticks_per_second
        blocked = text.partition("\nprocs_blocked ")[2].partition("\n")[0]
        if (number := whole(blocked)) is not None:
            look.gauges["blocked_count"] = float(number)

    def _memory(self, look: Look) -> None:
        known = pairs(read_text(self._proc / "meminfo"))
        if known.get("MemTotal"):
            look.gauges["memory_limit_bytes"] = float(known["MemTotal"] * KIB)
        if "MemAvailable" in known:
            look.gauges["memory_available_bytes"] = float(known["MemAvailable"] * KIB)
        if {"AnonPages", "Shmem", "Cached"} <= known.keys() and known["Shmem"] <= known["Cached"]:
            look.gauges["memory_resident_bytes"] = float((known["AnonPages"] + known["Shmem"]) * KIB)
            look.gauges["page_cache_bytes"] = float((known["Cached"] - known["Shmem"]) * KIB)

    def _disk_traffic(self, look: Look) -> None:
        text = read_text(self._proc / "diskstats")
        rows = [line.split() for line in (text or "").splitlines()]
        physical = [row for row in rows if len(row) >= 10 and self._disks.is_physical(row[2])]  # noqa: PLR2004 - as used
        for column, place in (("disk_read_bytes", 5), ("disk_written_bytes", 9)):
            sectors = [whole(row[place]) for row in physical]
            known = [number for number in sectors if number is not None]
            if known and len(known) == len(sectors):
                look.totals[column] = float(sum(known) * SECTOR_BYTES)

    def _network_traffic(self, look: Look) -> None:
        rows = [row for row in interfaces(read_text(self._proc / "1/net/dev")) if self._is_physical(row[0])]
        if rows:
            look.totals["network_received_bytes"] = float(sum(received for _, received, _ in rows))
            look.totals["network_transmitted_bytes"] = float(sum(sent for _, _, sent in rows))

    def _is_physical(self, interface: str) -> bool:
        if interface not in self._physical:
            path = self._sys / "class/net" / interface / "device"
            self._physical[interface] = "/" not in interface and path.exists()
        return self._physical[interface]


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
