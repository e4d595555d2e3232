"""GPU performance metrics (Hopper and later): exact means of activity between two samples.

A sample is a snapshot of the device's counters; the driver works out the mean between two of them, in percent. They
must lie more than 0.1 s apart (nvml.h); two of the same moment give "no data", and the older one is then kept.

Newer drivers also tell totals since boot (numbers 248 to 260): cycles elapsed and active, whose differences are exact
over any two readings. They stand in where a mean is not given, and are held against it where it is: what they count
was never seen on a real GPU here, so a total that disagrees with its mean is counted and not believed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.faults import Fault, fault_of
from collector.source import Reading, Source, SourceContext
from collector.sources._counters import Rise, member

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
"""Numbers of the metrics in nvml.h (``nvmlGpmMetricId_t``): means in percent."""

CYCLES_ELAPSED: Final = 248
CYCLES: Final = {
    "sm_active_ratio": 249,
    "tensor_active_ratio": 250,
    "fp64_active_ratio": 258,
    "fp32_active_ratio": 259,
    "fp16_active_ratio": 260,
}
"""Totals of active cycles since boot, over those that elapsed."""

TRAFFIC: Final = {
    "pcie_transmitted_bytes": (255, 20),
    "pcie_received_bytes": (256, 21),
    "nvlink_transmitted_bytes": (None, 61),
    "nvlink_received_bytes": (None, 60),
}
"""Traffic as a total in bytes since boot, else as a mean in MiB/s; asked where the driver's field values tell none."""

TRAFFIC_NAMES: Final = {number: name for name, pair in TRAFFIC.items() for number in pair if number is not None}
MIB: Final = 1024**2
DISAGREE_RATIO: Final = 0.05
"""A total and a mean over the same time differ by rounding alone; by more than this they count different things."""

ACTIVITY: Final = (*GPM_IDS.values(), CYCLES_ELAPSED, *CYCLES.values())
WANTED: Final = (*ACTIVITY, *TRAFFIC_NAMES)
"""All numbers that are asked for at first; what a device does not support is not asked again."""

PERCENT_DIGITS: Final = 6
"""A share is rounded here before it is judged, so that 100.0000000001 % is not an impossible value."""


@dataclass(slots=True)
class _Pair:
    """The buffers of one device: the sample before, the one to fill next, and the request that compares them."""

    older: Any
    newer: Any
    request: Any
    wanted: tuple[int, ...] = WANTED
    filled: bool = False
    answered_at: float | None = None


class GpmReader:
    """Takes a sample of each device that has GPM and compares it with the one before."""

    def __init__(self, driver: Driver, clock: Callable[[], float] = time.monotonic) -> None:
        """Read through an open driver; ``clock`` gives seconds that only go forward."""
        self._driver = driver
        self._clock = clock
        self._pairs: dict[str, _Pair] = {}
        self._totals = {number: Rise(driver, f"gpm {number}") for number in WANTED}

    def close(self) -> None:
        """Give the sample buffers back, except those of a lane that is at work: its next call may write to them."""
        driver = self._driver
        idle = {device.uuid for device in driver.devices if not driver.lanes.busy(device.lane)}
        for pair in (pair for uuid, pair in self._pairs.items() if uuid in idle):
            self._driver.nvml.nvmlGpmSampleFree(pair.older)
            self._driver.nvml.nvmlGpmSampleFree(pair.newer)
        self._pairs.clear()

    def begin_anew(self, device: KnownDevice) -> None:
        """Give the buffers of a device back; the next reading asks anew whether it has GPM."""
        pair = self._pairs.pop(device.uuid, None)
        if pair is not None:
            self._driver.nvml.nvmlGpmSampleFree(pair.older)
            self._driver.nvml.nvmlGpmSampleFree(pair.newer)

    def read_device(self, device: KnownDevice) -> Reading | None:
        """Take a sample and compare it with the one before; None where the device has no GPM, or nothing new."""
        driver = self._driver
        if device.uuid not in self._pairs:
            support = driver.call(driver.card_of(device), "nvmlGpmQueryDeviceSupport")
            if support is None or not support.isSupportedDevice:
                return None
            of_its_own = device.parent_uuid is None  # instances of a card share its links
            self._pairs[device.uuid] = self._allocate(WANTED if of_its_own else ACTIVITY)
        pair = self._pairs[device.uuid]
        if self._take(device, pair) is None:
            pair.filled = False
            return None
        values: dict[str, float] = {}
        if pair.filled:
            pair.request.sample1, pair.request.sample2 = pair.older, pair.newer
            compare = (device.uuid, "nvmlGpmMetricsGet", ())
            answer = driver.guarded(device, compare, lambda: driver.nvml.nvmlGpmMetricsGet(pair.request))
            found = {} if answer is None else self._found(device, pair, answer)
            values = self._values(device, pair, found)
            if not values:
                return None
        pair.answered_at = self._clock()
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

    def _allocate(self, wanted: tuple[int, ...]) -> _Pair:
        nvml = self._driver.nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        pair = _Pair(nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc(), request)
        _ask_for(pair, wanted)
        return pair

    def _found(self, device: KnownDevice, pair: _Pair, answer: Any) -> dict[int, float]:
        """Give what has an answer of its own, by number: each carries its own return code.

        What the device does not support is not asked again, nor is traffic that the driver's field values tell.
        """
        metrics = member(answer, "metrics")
        codes = {number: member(metrics[place], "nvmlReturn") for place, number in enumerate(pair.wanted)}
        values = {number: float(member(metrics[place], "value")) for place, number in enumerate(pair.wanted)}
        kept = tuple(
            number
            for number in pair.wanted
            if fault_of(codes[number]) is not Fault.UNSUPPORTED
            and TRAFFIC_NAMES.get(number) not in device.told_by_fields
        )
        if kept != pair.wanted:
            _ask_for(pair, kept)
        return {number: values[number] for number in kept if codes[number] == 0 and math.isfinite(values[number])}

    def _values(self, device: KnownDevice, pair: _Pair, found: dict[int, float]) -> dict[str, float]:
        means = {
            name: round(found[number], PERCENT_DIGITS) / 100 for name, number in GPM_IDS.items() if number in found
        }
        rises = {
            number: self._totals[number].since_last(device, int(found[number]))
            for number in (CYCLES_ELAPSED, *CYCLES.values(), *(total for total, _ in TRAFFIC.values() if total))
            if number in found
        }
        elapsed = rises.get(CYCLES_ELAPSED)
        for name, number in CYCLES.items():
            rise = rises.get(number)
            if rise is None or not elapsed:
                continue
            share = round(rise / elapsed, PERCENT_DIGITS)
            if abs(means.setdefault(name, share) - share) > DISAGREE_RATIO:
                self._driver.count(name, "a total since boot that disagrees with the mean")
        seconds = None if pair.answered_at is None else self._clock() - pair.answered_at
        for name, (total, rate) in TRAFFIC.items():
            risen = None if total is None else rises.get(total)
            if risen is not None:
                means[name] = float(risen)
            elif rate in found and seconds is not None:
                means[name] = found[rate] * MIB * seconds
        return means


def _ask_for(pair: _Pair, numbers: tuple[int, ...]) -> None:
    pair.wanted = numbers
    pair.request.numMetrics = len(numbers)
    for place, number in enumerate(numbers):
        pair.request.metrics[place].metricId = number


def _open(context: SourceContext) -> GpmReader:
    return GpmReader(context.driver)


SOURCE = Source(
    name="gpm",
    description="Engine, SM, tensor and memory activity and traffic by hardware counters, on Hopper and later.",
    metrics=(*GPM_IDS, *TRAFFIC),
    open=_open,
)
