"""The processes of a device: who is there, how much memory each holds, and its share of the driver's sample slices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collector.source import ProcessReading

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice

MPS_COMMAND: Final = "nvidia-cuda-mps"
"""What the kernel keeps, of 15 characters, of the names of the MPS server and its control daemon."""

LOOK_BACK_MICROSECONDS: Final = 2_000_000
"""Samples of different processes are not aligned in time: asked from the very last one on, some get lost."""

PERCENT_MAX: Final = 100


class Processes:
    """Reads the lists and the samples of processes, with a cursor per device and process."""

    def __init__(self, driver: Driver, proc: Path | None) -> None:
        """Read through a driver; ``proc`` is the host's process table, None where that is not to be seen."""
        self._driver = driver
        self._proc = proc
        self._newest: dict[str, dict[int, int]] = {}
        self._mps: dict[str, dict[int, bool]] = {}

    def read(self, device: KnownDevice) -> tuple[tuple[int, ...] | None, tuple[ProcessReading, ...]]:
        """Give the pids on a device and what is known of each; None where the driver does not tell.

        The MPS server owns the contexts of all its clients and is nobody's job: it is left out, its clients are in.
        """
        listed = self._driver.call(device, "nvmlDeviceGetComputeRunningProcesses")
        if listed is None:
            return None, ()
        pids = {int(process.pid) for process in listed}
        known = self._mps.get(device.uuid, {})
        servers = {pid: known[pid] if pid in known else self._is_mps(pid) for pid in pids}
        self._mps[device.uuid] = servers
        if any(servers.values()):
            listed = [process for process in listed if not servers[int(process.pid)]]
            listed += self._driver.call(device, "nvmlDeviceGetMPSComputeRunningProcesses") or []
        memory = {int(process.pid): self._memory(device, process) for process in listed}
        shares = self._shares(device, set(memory)) if memory else {}
        readings = []
        for pid, used in memory.items():
            values: dict[str, float] = {} if used is None else {"memory_used_bytes": float(used)}
            if pid in shares:
                values["driver_util_ratio"] = shares[pid]
            readings.append(ProcessReading(pid, values))
        return tuple(memory), tuple(readings)

    def _memory(self, device: KnownDevice, process: Any) -> int | None:
        used = process.usedGpuMemory
        if used is not None and device.memory_bytes is not None and used > device.memory_bytes:
            self._driver.count("process memory_used_bytes", "impossible: above the device's total")
            return None
        return used if used is None else int(used)

    def _shares(self, device: KnownDevice, listed: set[int]) -> dict[int, float]:
        """Give each process's mean share since the reading before, from samples that are new and can be true."""
        newest = self._newest.get(device.uuid)
        since = 0 if not newest else max(0, max(newest.values()) - LOOK_BACK_MICROSECONDS)
        key = (device.uuid, "nvmlDeviceGetProcessUtilization", ())
        samples = self._driver.guarded(
            device, key, lambda: self._driver.nvml.nvmlDeviceGetProcessUtilization(device.handle, since)
        )
        if samples is None:
            return {}
        found: dict[int, list[int]] = {}
        seen = dict(newest or {})
        for sample in sorted(samples, key=lambda sample: int(sample.timeStamp)):
            pid, at = int(sample.pid), int(sample.timeStamp)
            if sample.smUtil > PERCENT_MAX:
                self._driver.count("process driver_util_ratio", "impossible: above 1")
            elif pid not in listed:
                self._driver.count("process driver_util_ratio", "of a process that is not there")
            elif at > seen.get(pid, 0):
                seen[pid] = at
                found.setdefault(pid, []).append(sample.smUtil)
        self._newest[device.uuid] = {pid: at for pid, at in seen.items() if pid in listed}
        if newest is None:  # the buffer reaches back to before anybody looked
            return {}
        return {pid: sum(values) / len(values) / PERCENT_MAX for pid, values in found.items()}

    def _is_mps(self, pid: int) -> bool:
        if self._proc is None:  # such a number may be anybody's here
            return False
        try:
            return (self._proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip() == MPS_COMMAND
        except OSError:
            return False
