"""Running totals of the driver as amounts since the reading before: resets and impossible values leave no step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from collector.driver import ENERGY_CALL

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice

WATTS_MAX: Final = 5000.0
"""More than any board draws: the bound of ``power_watts`` in the metric catalogue."""

SENTINEL_64: Final = 2**63 - 2**32
"""From here on a 64-bit number is one of the markers for "no value": all ones, and DCGM's blanks."""


@dataclass(slots=True)
class Rise:
    """One counter. A value below the one before is a reset: that step is dropped, and counted."""

    driver: Driver
    name: str
    _last: dict[str, int] = field(default_factory=dict)

    def since_last(self, device: KnownDevice, value: int | None) -> int | None:
        """Give how far the counter rose since the reading before; None where that is not known."""
        before = self._last.pop(device.uuid, None)
        if value is None:
            return None
        if not 0 <= value < SENTINEL_64:
            self.driver.count(self.name, "impossible: a marker for no value")
            return None
        self._last[device.uuid] = value
        if before is None:
            return None
        if value < before:
            self.driver.count(self.name, "the counter started over")
            return None
        return value - before


class Energy:
    """Energy since the reading before: from the counter, or where a device has none, power over the time elapsed."""

    def __init__(self, driver: Driver, clock: Callable[[], float] = time.monotonic) -> None:
        """Read through a driver; ``clock`` gives seconds that only go forward."""
        self._driver = driver
        self._clock = clock
        self._counter = Rise(driver, "energy_joules")
        self._read_at: dict[str, float] = {}

    def joules(self, device: KnownDevice, watts: float | None) -> float | None:
        """Give the energy used since the reading before of this device."""
        name, now = ENERGY_CALL, self._clock()
        before, self._read_at[device.uuid] = self._read_at.get(device.uuid), now
        elapsed_seconds = None if before is None else now - before
        if self._driver.never_asked_again(device, name):
            return None if watts is None or elapsed_seconds is None else watts * elapsed_seconds
        millijoules = self._counter.since_last(device, self._driver.call(device, name))
        if millijoules is None or elapsed_seconds is None:
            return None
        # The driver renews its counter some ten times a second, so a step may belong to more than the time elapsed.
        if millijoules / 1000 > WATTS_MAX * (elapsed_seconds + 1.0):
            self._driver.count("energy_joules", f"impossible: above {WATTS_MAX:g} W")
            return None
        return millijoules / 1000


member: Final = object.__getattribute__
"""Reads a member of one of the binding's structures past its own ``__getattribute__``, which decodes text and costs
several times the call to the driver."""


def number_of(value_type: int, value: Any) -> float | None:
    """Give what stands in NVML's union; None for NaN, infinities and markers for "no value".

    The types are those of ``nvmlValueType_t``: double, unsigned, unsigned long, unsigned and signed 64-bit, signed 32.
    """
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal")
    if value_type >= len(members):
        return None
    number = member(value, members[value_type])
    if isinstance(number, float):
        return number if math.isfinite(number) and abs(number) < SENTINEL_64 else None
    return None if number >= SENTINEL_64 or (value_type == 1 and number >= 2**32 - 1) else number
