"""Waits for what devices report by themselves: Xid errors and ECC errors, on a thread of its own."""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from collector.faults import Fault, fault_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from collector.driver import Driver, KnownDevice
    from collector.lanes import Job

WAIT_MILLISECONDS: Final = 500
"""How long one wait lasts: the thread has to notice within it that it shall end."""

GOODBYE_SECONDS: Final = 1.5
LANE: Final = "driver events"
"""Where calls for the whole driver are made, so that one that never returns holds up events alone."""

KINDS: Final = {0x1: "ecc_corrected", 0x2: "ecc_uncorrected", 0x8: "xid"}
"""NVML's bits for kinds of events (nvml.h, ``nvmlEventType…``), and the kind of event in the store."""

WANTED: Final = sum(KINDS)


class EventWatch:
    """An event set over all devices of an open driver that support events."""

    def __init__(self, driver: Driver) -> None:
        """Register every device, each on its own lane; one that cannot costs only its own events."""
        self._driver = driver
        self._stop = threading.Event()
        self._by_handle: dict[int, str] = {}
        self._set: Any = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to wait, if any device reports events."""
        created = self._on_lane("nvmlEventSetCreate", self._driver.nvml.nvmlEventSetCreate)
        if created is None:
            return
        self._set = created.value
        cards = [device for device in self._driver.living() if device.parent_uuid is None]
        jobs = {card.lane: (lambda card=card: self._register(card)) for card in cards}
        done = self._driver.lanes.run(jobs, self._driver.patience_seconds)
        if any(job.error is None and job.value for job in done.values()):
            self._thread = threading.Thread(target=self._work, name="events", daemon=True)
            self._thread.start()

    def stop(self) -> bool:
        """End the thread; False when a wait does not return, and the library must not be shut down under it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(GOODBYE_SECONDS)
            if self._thread.is_alive():
                return False
        registering = any(self._driver.lanes.busy(device.lane) for device in self._driver.devices)
        if self._set is not None and not registering:  # a registration that is still out writes to the set
            self._on_lane("nvmlEventSetFree", partial(self._driver.nvml.nvmlEventSetFree, self._set))
        self._set = None
        return not self._driver.lanes.busy(LANE)

    def _on_lane(self, name: str, call: Callable[[], Any]) -> Job | None:
        """Make a call that is of no device, and may never return; None where it failed or is still out."""
        done = self._driver.lanes.run({LANE: call}, self._driver.patience_seconds).get(LANE)
        if done is None:
            self._driver.count(name, "does not return")
        elif done.error is not None:
            self._driver.count(name, str(done.error))
        return done if done is not None and done.error is None else None

    def _register(self, card: KnownDevice) -> bool:
        kinds = self._driver.call(card, "nvmlDeviceGetSupportedEventTypes")
        if not kinds or not kinds & WANTED:
            return False
        key = (card.uuid, "nvmlDeviceRegisterEvents", ())
        nvml = self._driver.nvml
        registered: list[bool] = []

        def register() -> None:
            nvml.nvmlDeviceRegisterEvents(card.handle, kinds & WANTED, self._set)
            registered.append(True)

        self._driver.guarded(card, key, register)
        if registered:
            self._by_handle[_address(card.handle)] = card.uuid
        return bool(registered)

    def _work(self) -> None:
        nvml = self._driver.nvml
        while not self._stop.is_set():
            try:
                data = nvml.nvmlEventSetWait_v2(self._set, WAIT_MILLISECONDS)
            except nvml.NVMLError as error:
                fault = fault_of(error.value)
                if fault is Fault.NO_DATA:  # nothing happened
                    continue
                self._driver.count("nvmlEventSetWait_v2", str(error))
                if fault is Fault.DRIVER_GONE:
                    return
                self._stop.wait(WAIT_MILLISECONDS / 1000)
                continue
            uuid = self._by_handle.get(_address(data.device))
            kind = KINDS.get(data.eventType)
            if uuid is not None and kind is not None:
                self._driver.tell(kind, uuid, str(data.eventData) if kind == "xid" else None)


def _address(handle: Any) -> int:
    """Give what tells one handle from another."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
