"""The NVIDIA driver through ``nvidia-ml-py``: opening it, its devices, and one table of what each failure means.

The binding is loaded here and only when a driver is opened, so that everything else of the room works without it.
A call costs only its own device, whatever happens; the exceptions are failures of the driver as a whole.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, Final

from warehouse.contract.errors import BadUseError, TrueloadError

LOG = logging.getLogger("trueload.driver")


class DriverGoneError(TrueloadError):
    """The driver is not there, or not the one that was opened: open it anew, later."""


class Fault(Enum):
    """What a failed call means, and so what is done about it."""

    UNSUPPORTED = "not supported"  # this device never answers this call: not asked again
    DEVICE_LOST = "device lost"  # the device is gone until it is reset; the others are not concerned
    DRIVER_GONE = "driver gone"  # nothing answers any more until the driver is opened anew
    NO_DATA = "no data"  # an answer without content, nothing to count
    TRANSIENT = "failed"  # counted, asked again next time


FAULT_OF_CODE: Final = {
    1: Fault.DRIVER_GONE,  # uninitialised: somebody shut the library down
    3: Fault.UNSUPPORTED,
    4: Fault.UNSUPPORTED,  # no permission: the same next time, so said once
    6: Fault.NO_DATA,  # not found
    9: Fault.DRIVER_GONE,  # driver not loaded
    13: Fault.UNSUPPORTED,  # the library is older than the call
    15: Fault.DEVICE_LOST,
    16: Fault.DEVICE_LOST,  # needs a reset
    18: Fault.DRIVER_GONE,  # library and kernel module differ: the driver was upgraded under us
    21: Fault.NO_DATA,
}
"""NVML's return codes that are more than transient (nvml.h, ``nvmlReturn_t``)."""


@dataclass(slots=True)
class KnownDevice:
    """A device that answered when the driver was opened. ``handle`` is the binding's and means nothing elsewhere."""

    uuid: str
    index: int
    handle: Any
    gpu_model: str | None
    memory_bytes: int | None
    pci_bus_id: str | None
    lost: bool = False


class Driver:
    """An open driver. One per process, used from one thread."""

    def __init__(self, library: str = "", *, reprobe_seconds: float = 60.0) -> None:
        """Prepare. ``library`` is the path of libnvidia-ml.so.1 where the loader would not find the right one."""
        self.devices: tuple[KnownDevice, ...] = ()
        self.driver_version: str | None = None
        self.unreadable: tuple[tuple[int, str], ...] = ()
        """Indexes that the driver counts but cannot open, with its reason."""
        self.failures: Counter[tuple[str, str]] = Counter()
        """Failed calls by name and reason."""
        self._library = library
        self._reprobe_seconds = reprobe_seconds
        self._probe_at = 0.0
        self._unsupported: set[tuple[str, str, tuple[Any, ...]]] = set()
        self._nvml: ModuleType | None = None

    @property
    def nvml(self) -> Any:
        """Give the binding's module, for its constants and structures."""
        if self._nvml is None:
            raise DriverGoneError("the NVIDIA driver is not open")
        return self._nvml

    def open(self) -> None:
        """Load the library, initialise it and look what devices there are.

        Raises:
            BadUseError: the binding is not installed, or ``library`` cannot be loaded.
            DriverGoneError: there is no driver, or it does not answer now.

        """
        try:
            import pynvml
        except ModuleNotFoundError as cause:
            raise BadUseError("the agent needs nvidia-ml-py: pip install 'trueload[agent]'") from cause
        if self._library:
            try:
                # The binding asks its loader by soname, which gives it the library that is loaded already.
                ctypes.CDLL(self._library)
            except OSError as cause:
                raise BadUseError(f"agent.nvml_library: {self._library} cannot be loaded ({cause})") from cause
        try:
            pynvml.nvmlInit()
            self._nvml = pynvml
            self._unsupported.clear()
            self._discover()
            self.driver_version = _text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            self._nvml = None
            raise DriverGoneError(f"the NVIDIA driver does not answer ({error}); is it loaded?") from error

    def close(self) -> None:
        """Shut the library down. Never fails: a driver that is gone needs no goodbye."""
        if self._nvml is not None:
            nvml, self._nvml = self._nvml, None
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError as error:
                LOG.debug("shutdown: %s", error)
        self.devices = ()

    def living(self) -> Iterator[KnownDevice]:
        """Give the devices that are not lost; a call may lose one on the way."""
        for device in self.devices:
            if not device.lost:
                yield device

    def call(self, device: KnownDevice, name: str, *arguments: Any) -> Any:
        """Make one NVML call on a device; None where it gives nothing, now or ever.

        Raises:
            DriverGoneError: the driver as a whole is gone.

        """
        key = (device.uuid, name, arguments)
        if device.lost or key in self._unsupported:
            return None
        return self.guarded(device, key, lambda: getattr(self.nvml, name)(device.handle, *arguments))

    def guarded(self, device: KnownDevice, key: tuple[str, str, tuple[Any, ...]], function: Callable[[], Any]) -> Any:
        """Run a call that takes more than a handle and plain values, under the same rules."""
        if device.lost or key in self._unsupported:
            return None
        nvml = self.nvml
        try:
            return function()
        except nvml.NVMLError as error:
            self._fail(device, key, error)
            return None

    def reprobe(self) -> list[KnownDevice]:
        """Ask lost devices again, now and then; give those that are back."""
        now = time.monotonic()
        lost = [device for device in self.devices if device.lost]
        if not lost or now < self._probe_at:
            return []
        self._probe_at = now + self._reprobe_seconds
        return [device for device in lost if self._is_back(device)]

    def _is_back(self, device: KnownDevice) -> bool:
        nvml = self.nvml
        try:
            device.handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)
            nvml.nvmlDeviceGetMemoryInfo(device.handle)
        except nvml.NVMLError:
            return False
        device.lost = False
        return True

    def _discover(self) -> None:
        nvml = self.nvml
        found: list[KnownDevice] = []
        unreadable: list[tuple[int, str]] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                device = KnownDevice(_text(nvml.nvmlDeviceGetUUID(handle)), index, handle, None, None, None)
            except nvml.NVMLError as error:
                unreadable.append((index, str(error)))
                continue
            name = self.call(device, "nvmlDeviceGetName")
            memory = self.call(device, "nvmlDeviceGetMemoryInfo")
            pci = self.call(device, "nvmlDeviceGetPciInfo")
            device.gpu_model = None if name is None else _text(name)
            device.memory_bytes = None if memory is None else int(memory.total)
            device.pci_bus_id = None if pci is None else _text(pci.busId)
            found.append(device)
        self.devices, self.unreadable = tuple(found), tuple(unreadable)

    def _fail(self, device: KnownDevice, key: tuple[str, str, tuple[Any, ...]], error: Any) -> None:
        fault = FAULT_OF_CODE.get(error.value, Fault.TRANSIENT)
        if fault is Fault.NO_DATA or error.value == 0:  # the binding raises "success" where it got an empty answer
            return
        self.failures[key[1], str(error)] += 1
        if fault is Fault.DRIVER_GONE:
            raise DriverGoneError(f"{key[1]}: {error}") from error
        if fault is Fault.DEVICE_LOST:
            device.lost = True
            self._probe_at = time.monotonic() + self._reprobe_seconds
            LOG.warning("%s: lost (%s: %s)", device.uuid, key[1], error)
        elif fault is Fault.UNSUPPORTED:
            self._unsupported.add(key)
            LOG.info("%s: %s will not be asked again (%s)", device.uuid, key[1], error)


def _text(value: str | bytes) -> str:
    """Give text: older bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
