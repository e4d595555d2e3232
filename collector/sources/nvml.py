"""What every NVIDIA driver can tell: its utilization, memory, power, energy, temperature, clock, processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector.source import Reading, Source, SourceContext

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice

METRICS = (
    "driver_util_ratio",
    "process_count",
    "memory_used_bytes",
    "power_watts",
    "energy_joules",
    "temperature_celsius",
    "sm_clock_hertz",
)


class NvmlReader:
    """Reads the gauges of each device, and its energy counter as the amount since the reading before."""

    def __init__(self, driver: Driver) -> None:
        """Read through an open driver."""
        self._driver = driver
        self._millijoules: dict[str, int] = {}

    def read(self) -> list[Reading]:
        """Read every living device; one that is lost on the way is left out."""
        return [reading for device in self._driver.living() if (reading := self.read_device(device)) is not None]

    def close(self) -> None:
        """Forget the counters."""
        self._millijoules.clear()

    def read_device(self, device: KnownDevice) -> Reading | None:
        """Read one device; None when it is lost on the way."""
        driver, nvml = self._driver, self._driver.nvml
        values: dict[str, float | None] = {}
        rates = driver.call(device, "nvmlDeviceGetUtilizationRates")
        values["driver_util_ratio"] = None if rates is None else rates.gpu / 100
        values["memory_used_bytes"] = self._memory_used_bytes(device)
        milliwatts = driver.call(device, "nvmlDeviceGetPowerUsage")
        values["power_watts"] = None if milliwatts is None else milliwatts / 1000
        values["temperature_celsius"] = driver.call(device, "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
        megahertz = driver.call(device, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
        values["sm_clock_hertz"] = None if megahertz is None else megahertz * 1e6
        values["energy_joules"] = self._energy_joules(device)
        processes = driver.call(device, "nvmlDeviceGetComputeRunningProcesses")
        values["process_count"] = None if processes is None else len(processes)
        if device.lost:
            return None
        pids = None if processes is None else tuple(process.pid for process in processes)
        return Reading(device.uuid, {name: value for name, value in values.items() if value is not None}, pids)

    def _memory_used_bytes(self, device: KnownDevice) -> int | None:
        """Give the memory in use without what the driver reserves, where it can tell the two apart (from 510 on).

        More than there is cannot be true; the value is then absent and counted.
        """
        memory = self._driver.call(device, "nvmlDeviceGetMemoryInfo", self._driver.nvml.nvmlMemory_v2)
        if memory is None:
            memory = self._driver.call(device, "nvmlDeviceGetMemoryInfo")
        if memory is None:
            return None
        if memory.used > memory.total:
            self._driver.failures["memory_used_bytes", "impossible: above the total"] += 1
            return None
        return int(memory.used)

    def _energy_joules(self, device: KnownDevice) -> float | None:
        """Give the energy since the reading before; absent after a failed reading and when the counter was reset."""
        before = self._millijoules.pop(device.uuid, None)
        now = self._driver.call(device, "nvmlDeviceGetTotalEnergyConsumption")
        if now is None:
            return None
        self._millijoules[device.uuid] = now
        return None if before is None or now < before else (now - before) / 1000


def _open(context: SourceContext) -> NvmlReader:
    return NvmlReader(context.driver)


SOURCE = Source(
    name="nvml",
    description="Gauges, energy and processes of each device, as every driver tells them.",
    metrics=METRICS,
    open=_open,
)
