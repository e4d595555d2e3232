"""Field values: throttle time, traffic, ECC errors, memory temperature and remapped rows, in one call.

Traffic never comes from ``nvmlDeviceGetPcieThroughput``, which measures for 20 ms while the caller waits (nvml.h).
Each value carries a return code of its own; a field that a device does not support is not asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from collector.faults import Fault, fault_of
from collector.sources._counters import Rise, member, number_of

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice

ALL_LINKS: Final = 2**32 - 1
SHARE_DIGITS: Final = 2
"""A share of time is known to a hundredth: counter and time stamp are not taken at the very same moment."""

SHARES: Final = {
    74: "power_capped_ratio",
    269: "thermal_slowed_ratio",
    270: "thermal_slowed_ratio",  # by software, by hardware: whichever is more
    271: "power_braked_ratio",
}
"""Counters of nanoseconds spent slowed down, by field number (nvml.h, ``NVML_FI_DEV_…``)."""

AMOUNTS: Final = {
    (197, 0): ("pcie_transmitted_bytes", 1),
    (198, 0): ("pcie_received_bytes", 1),
    (138, ALL_LINKS): ("nvlink_transmitted_bytes", 1024),
    (139, ALL_LINKS): ("nvlink_received_bytes", 1024),
    (202, ALL_LINKS): ("nvlink_transmitted_bytes", 1),  # from NVLink 5 on; the older ones where both are there
    (204, ALL_LINKS): ("nvlink_received_bytes", 1),
    (3, 0): ("ecc_corrected_count", 1),
    (4, 0): ("ecc_uncorrected_count", 1),
}
"""Counters by field and scope: the metric, and the bytes, or errors, of one count."""

ECC_ERRORS: Final = {"ecc_corrected_count": 0, "ecc_uncorrected_count": 1}
"""Kinds of memory errors (nvml.h, ``nvmlMemoryErrorType_t``), for the call that older drivers have for them."""

VOLATILE_ECC: Final = 0
"""Errors since the driver was loaded (nvml.h, ``nvmlEccCounterType_t``)."""

MEMORY_TEMPERATURE: Final = 82
REMAPPED: Final = {142: "corrected", 143: "uncorrected", 144: "pending", 145: "failed"}

BITS: Final = {"power_capped_ratio": 0x4, "thermal_slowed_ratio": 0x20 | 0x40, "power_braked_ratio": 0x80}
"""Reasons for a low clock as bits of the present moment (``nvmlClocksEventReason…``), where there are no counters."""

METRICS: Final = (
    *BITS,
    *dict.fromkeys(name for name, _ in AMOUNTS.values()),
    "memory_temperature_celsius",
)


class Fields:
    """Reads what one device supports of the fields above."""

    def __init__(self, driver: Driver) -> None:
        """Read through a driver."""
        self._driver = driver
        self._asked: dict[str, list[tuple[int, int]]] = {}
        self._nanoseconds = {number: Rise(driver, name) for number, name in SHARES.items()}
        self._amounts = {key: Rise(driver, name) for key, (name, _) in AMOUNTS.items()}
        self._stamped: dict[str, int] = {}
        self._remapped: dict[str, dict[str, int]] = {}
        self._errors = {name: Rise(driver, name) for name in ECC_ERRORS}

    def read(self, device: KnownDevice) -> dict[str, float]:
        """Give the metrics since the reading before; what a device does not have is left out."""
        whole = [(number, 0) for number in (*SHARES, MEMORY_TEMPERATURE, *REMAPPED)]
        asked = self._asked.setdefault(device.uuid, whole + list(AMOUNTS))
        key = (device.uuid, "nvmlDeviceGetFieldValues", ())
        answer = None
        if asked:
            answer = self._driver.guarded(
                device, key, lambda: self._driver.nvml.nvmlDeviceGetFieldValues(device.handle, asked)
            )
        found = {} if answer is None else self._found(device, answer)
        values = self._amounts_of(device, found) | self._shares_of(device, found, answer)
        if (MEMORY_TEMPERATURE, 0) in found:
            values["memory_temperature_celsius"] = found[MEMORY_TEMPERATURE, 0]
        self._tell_remapped(device, {name: int(found[k, 0]) for k, name in REMAPPED.items() if (k, 0) in found})
        return values

    def _found(self, device: KnownDevice, answer: Any) -> dict[tuple[int, int], float]:
        """Give the numbers by field; the answer is in the order of what was asked."""
        found: dict[tuple[int, int], float] = {}
        asked = self._asked[device.uuid]
        for key, item in zip(asked, answer, strict=True):
            code = member(item, "nvmlReturn")
            if code == 0:
                number = number_of(member(item, "valueType"), member(item, "value"))
                if number is not None:
                    found[key] = number
                else:
                    self._driver.count(f"field {key[0]}", "impossible: a marker for no value")
            elif fault_of(code) in (Fault.UNSUPPORTED, Fault.FORBIDDEN):
                self._asked[device.uuid] = [other for other in self._asked[device.uuid] if other != key]
        return found

    def _amounts_of(self, device: KnownDevice, found: dict[tuple[int, int], float]) -> dict[str, float]:
        values: dict[str, float] = {}
        if not device.told_by_fields:
            device.told_by_fields = frozenset(name for key, (name, _) in AMOUNTS.items() if key in found)
        for key, (name, bytes_each) in AMOUNTS.items():
            rise = self._amounts[key].since_last(device, None if key not in found else int(found[key]))
            if rise is not None:
                values.setdefault(name, float(rise * bytes_each))
        for name, kind in ECC_ERRORS.items():
            if (3 + kind, 0) not in self._asked[device.uuid]:
                count = self._driver.call(device, "nvmlDeviceGetTotalEccErrors", kind, VOLATILE_ECC)
                rise = self._errors[name].since_last(device, count)
                if rise is not None:
                    values[name] = float(rise)
        return values

    def _shares_of(self, device: KnownDevice, found: dict[tuple[int, int], float], answer: Any) -> dict[str, float]:
        before = self._stamped.get(device.uuid)
        stamp = None
        if answer is not None and any((number, 0) in found for number in SHARES):
            stamp = next(member(item, "timestamp") for item in answer if member(item, "nvmlReturn") == 0)
        if stamp is None:
            return self._bits_of(device)
        self._stamped[device.uuid] = stamp
        microseconds = 0 if before is None else stamp - before
        values: dict[str, float] = {}
        for number, name in SHARES.items():
            rise = self._nanoseconds[number].since_last(device, int(found[number, 0]) if (number, 0) in found else None)
            if rise is not None and microseconds > 0:
                share = round(rise / 1000 / microseconds, SHARE_DIGITS)
                values[name] = max(share, values.get(name, 0.0))
        return values

    def _bits_of(self, device: KnownDevice) -> dict[str, float]:
        if any((number, 0) in self._asked[device.uuid] for number in SHARES):
            return {}  # it has counters, and did not answer this time
        reasons = self._driver.call(device, "nvmlDeviceGetCurrentClocksEventReasons")
        return {} if reasons is None else {name: float(bool(reasons & bits)) for name, bits in BITS.items()}

    def _tell_remapped(self, device: KnownDevice, now: dict[str, int]) -> None:
        """Tell an event when rows were remapped, or wait for a reset to be."""
        before = self._remapped.get(device.uuid)
        if not now or now == before:
            return
        self._remapped[device.uuid] = now
        if before is not None:
            detail = ", ".join(f"{name} {count}" for name, count in now.items())
            self._driver.tell("rows_remapped", device.uuid, detail)
