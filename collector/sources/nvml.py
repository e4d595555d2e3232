"""What every NVIDIA driver can tell: gauges, energy, traffic, what slows a device down, and its processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector.processes import ProcessTable
from collector.source import Reading, Source, SourceContext
from collector.sources import _fields
from collector.sources._counters import WATTS_MAX, Energy
from collector.sources._fields import Fields
from collector.sources._processes import Processes
from collector.sources._samples import SampleBuffer

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice

SAMPLES_OF_POWER: Final = 0
SAMPLES_OF_UTILIZATION: Final = 1
PERCENT_MAX: Final = 100

METRICS = (
    "driver_util_ratio",
    "process_count",
    "memory_used_bytes",
    "power_watts",
    "energy_joules",
    "temperature_celsius",
    "sm_clock_hertz",
    "memory_clock_hertz",
    *_fields.METRICS,
)


class NvmlReader:
    """Reads the gauges of each device, and its counters as the amounts since the reading before."""

    def __init__(self, driver: Driver, proc: Path | None = Path("/proc"), *, tells_memory_util: bool = False) -> None:
        """Read through an open driver; ``proc`` is the host's process table, None where that is not to be seen.

        ``tells_memory_util`` costs one call more, for the exporter's dcgm names.
        """
        self._driver = driver
        self._tells_memory_util = tells_memory_util
        self._energy = Energy(driver)
        self._fields = Fields(driver)
        self._processes = Processes(driver, proc)
        self._power = SampleBuffer(driver, "power_watts", SAMPLES_OF_POWER, WATTS_MAX * 1000)
        self._utilization = SampleBuffer(driver, "driver_util_ratio", SAMPLES_OF_UTILIZATION, PERCENT_MAX)

    def read_device(self, device: KnownDevice) -> Reading | None:
        """Read one device; None when it is lost on the way. A MIG instance tells its memory alone."""
        values: dict[str, float | None] = {"memory_used_bytes": self._memory_used_bytes(device)}
        if device.parent_uuid is not None:
            told = _known(values)  # nothing of an instance that was removed: the driver is asked for others soon
            return Reading(device.uuid, told) if told and not device.lost else None
        driver, nvml = self._driver, self._driver.nvml
        values["driver_util_ratio"] = self._driver_util_ratio(device)
        values["power_watts"] = watts = self._power_watts(device)
        values["energy_joules"] = self._energy.joules(device, watts)
        values["temperature_celsius"] = driver.call(device, "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
        for name, clock in (("sm_clock_hertz", nvml.NVML_CLOCK_SM), ("memory_clock_hertz", nvml.NVML_CLOCK_MEM)):
            megahertz = driver.call(device, "nvmlDeviceGetClockInfo", clock)
            values[name] = None if megahertz is None else megahertz * 1e6
        if self._tells_memory_util:
            rates = driver.call(device, "nvmlDeviceGetUtilizationRates")
            known = rates is not None and rates.memory <= PERCENT_MAX
            device.memory_util_ratio = rates.memory / PERCENT_MAX if known else None
        values |= self._fields.read(device)
        pids, processes = self._processes.read(device)
        values["process_count"] = None if pids is None else len(pids)
        known = _known(values)
        silent = device.lost or (not known and pids is None)  # a row without any value would say that it was there
        return None if silent else Reading(device.uuid, known, pids, processes)

    def close(self) -> None:
        """Nothing was opened."""

    def _driver_util_ratio(self, device: KnownDevice) -> float | None:
        """Give the mean of the driver's samples since the reading before, else its newest value."""
        percent = self._utilization.mean(device)
        if percent is None:
            rates = self._driver.call(device, "nvmlDeviceGetUtilizationRates")
            percent = None if rates is None else rates.gpu
        return None if percent is None else percent / PERCENT_MAX

    def _power_watts(self, device: KnownDevice) -> float | None:
        milliwatts = self._power.mean(device)
        if milliwatts is None:
            milliwatts = self._driver.call(device, "nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1000

    def _memory_used_bytes(self, device: KnownDevice) -> int | None:
        """Give the memory in use without what the driver reserves, where it can tell the two apart (from 510 on).

        More than there is cannot be true; the value is then absent and counted. A total of nothing is how machines
        whose processor and GPU share their memory answer: they have no such number.
        """
        memory = self._driver.call(device, "nvmlDeviceGetMemoryInfo", self._driver.nvml.nvmlMemory_v2)
        if memory is None:
            memory = self._driver.call(device, "nvmlDeviceGetMemoryInfo")
        if memory is None or memory.total == 0:
            return None
        if memory.used > memory.total:
            self._driver.count("memory_used_bytes", "impossible: above the total")
            return None
        return int(memory.used)


def _known(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _open(context: SourceContext) -> NvmlReader:
    from collector.settings import EXPORTER_DCGM_NAMES, PROC_ROOT  # which imports this module for its constant

    settings = context.settings
    proc = Path(settings[PROC_ROOT])
    seen = proc if ProcessTable(proc).sees_host_pids() else None
    return NvmlReader(context.driver, seen, tells_memory_util=settings[EXPORTER_DCGM_NAMES])


SOURCE = Source(
    name="nvml",
    description="Gauges, energy, traffic, slow-downs and processes of each device, as every driver tells them.",
    metrics=METRICS,
    open=_open,
)
