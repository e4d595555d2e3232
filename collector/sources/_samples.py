"""The driver's ring buffers of samples: denser than any polling, read on from where the last reading ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector.sources._counters import number_of

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice


class SampleBuffer:
    """One kind of sample (``nvmlSamplingType_t``), with one cursor per device."""

    def __init__(self, driver: Driver, name: str, kind: int, highest: float) -> None:
        """Read through a driver; samples outside 0 to ``highest`` are rejected and counted under ``name``."""
        self._driver = driver
        self._name = name
        self._kind = kind
        self._highest = highest
        self._cursors: dict[str, int] = {}

    def mean(self, device: KnownDevice) -> float | None:
        """Give the mean of the samples since the reading before; None where there is none, or this is the first."""
        cursor = self._cursors.get(device.uuid, 0)
        key = (device.uuid, "nvmlDeviceGetSamples", (self._kind,))
        answer = self._driver.guarded(
            device, key, lambda: self._driver.nvml.nvmlDeviceGetSamples(device.handle, self._kind, cursor)
        )
        if answer is None:
            return None
        value_type, samples = answer
        new = [sample for sample in samples if sample.timeStamp > cursor]
        if not new:
            return None
        self._cursors[device.uuid] = max(sample.timeStamp for sample in new)
        if cursor == 0:  # the buffer reaches back to before anybody looked
            return None
        values = [number_of(value_type, sample.sampleValue) for sample in new]
        possible = [value for value in values if value is not None and 0 <= value <= self._highest]
        if len(possible) < len(values):
            self._driver.count(self._name, "impossible sample", len(values) - len(possible))
        return sum(possible) / len(possible) if possible else None
