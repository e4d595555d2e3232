"""GPU performance metrics (Hopper and later): exact means of activity between two samples.

A sample is a snapshot of the device's counters; the driver works out the mean between two of them, in percent. They
must lie more than 0.1 s apart (nvml.h); two of the same moment give "no data", and the older one is then kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.source import Reading, Source, SourceContext

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice

GPM_IDS: Final = {
    "engine_active_ratio": 1,
    "sm_active_ratio": 2,
    "sm_occupancy_ratio": 3,
    "tensor_active_ratio": 5,
    "dram_active_ratio": 10,
    "fp64_active_ratio": 11,
    "fp32_active_ratio": 12,
    "fp16_active_ratio": 13,
}
"""Numbers of the metrics in nvml.h (``nvmlGpmMetricId_t``)."""

PERCENT_DIGITS: Final = 6
"""A share is rounded here before it is judged, so that 100.0000000001 % is not an impossible value."""


@dataclass(slots=True)
class _Pair:
    """The buffers of one device: the sample before, the one to fill next, and the request that compares them."""

    older: Any
    newer: Any
    request: Any
    filled: bool = False


class GpmReader:
    """Takes a sample of each device that has GPM and compares it with the one before."""

    def __init__(self, driver: Driver) -> None:
        """Read through an open driver."""
        self._driver = driver
        self._pairs: dict[str, _Pair] = {}

    def close(self) -> None:
        """Give the sample buffers back, except those that a call which is still out may write to."""
        out = {device.uuid for device in self._driver.devices if device.calling is not None}
        for pair in (pair for uuid, pair in self._pairs.items() if uuid not in out):
            self._driver.nvml.nvmlGpmSampleFree(pair.older)
            self._driver.nvml.nvmlGpmSampleFree(pair.newer)
        self._pairs.clear()

    def read_device(self, device: KnownDevice) -> Reading | None:
        """Take a sample and compare it with the one before; None where the device has no GPM, or nothing new."""
        driver = self._driver
        if device.uuid not in self._pairs:
            support = driver.call(driver.card_of(device), "nvmlGpmQueryDeviceSupport")
            if support is None or not support.isSupportedDevice:
                return None
            self._pairs[device.uuid] = self._allocate()
        pair = self._pairs[device.uuid]
        if self._take(device, pair) is None:
            pair.filled = False
            return None
        values: dict[str, float] = {}
        if pair.filled:
            pair.request.sample1, pair.request.sample2 = pair.older, pair.newer
            compare = (device.uuid, "nvmlGpmMetricsGet", ())
            answer = driver.guarded(device, compare, lambda: driver.nvml.nvmlGpmMetricsGet(pair.request))
            values = {} if answer is None else _values(answer)
            if not values:
                return None
        pair.older, pair.newer, pair.filled = pair.newer, pair.older, True
        return Reading(device.uuid, values)

    def _take(self, device: KnownDevice, pair: _Pair) -> Any:
        """Fill the newer buffer: of the device, or of one MIG instance through its card."""
        driver, instance = self._driver, device.gpu_instance_id
        if device.parent_uuid is None:
            take = (device.uuid, "nvmlGpmSampleGet", ())
            return driver.guarded(device, take, lambda: driver.nvml.nvmlGpmSampleGet(device.handle, pair.newer))
        take = (device.uuid, "nvmlGpmMigSampleGet", ())
        handle = driver.card_of(device).handle
        return driver.guarded(device, take, lambda: driver.nvml.nvmlGpmMigSampleGet(handle, instance, pair.newer))

    def _allocate(self) -> _Pair:
        nvml = self._driver.nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(GPM_IDS)
        for place, number in enumerate(GPM_IDS.values()):
            request.metrics[place].metricId = number
        return _Pair(nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc(), request)


def _values(answer: Any) -> dict[str, float]:
    """Give the metrics that have an answer of their own: each carries its own return code."""
    found = {}
    for place, name in enumerate(GPM_IDS):
        metric = answer.metrics[place]
        if metric.nvmlReturn == 0:
            found[name] = round(metric.value, PERCENT_DIGITS) / 100
    return found


def _open(context: SourceContext) -> GpmReader:
    return GpmReader(context.driver)


SOURCE = Source(
    name="gpm",
    description="Engine, SM, tensor and memory activity by hardware counters, on Hopper and later.",
    metrics=tuple(GPM_IDS),
    open=_open,
)
