"""The NVIDIA driver through ``nvidia-ml-py``: opening it, its devices, and calls under the table of faults.

The binding is loaded here and only when a driver is opened, so that everything else of the room works without it.
A call costs only its own device, whatever happens, even when it never returns: it has its thread to itself then
(:mod:`collector.lanes`). The exceptions are failures of the driver as a whole.
"""

from __future__ import annotations

import ctypes
import logging
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, Final

from collector.faults import Fault, fault_of
from collector.lanes import Lanes
from warehouse.contract.errors import BadUseError, TrueloadError

LOG = logging.getLogger("trueload.driver")
OPEN_PATIENCE_SECONDS: Final = 30.0
"""How long ``nvmlInit`` may take: without the persistence daemon the driver brings each card up first."""

STRAGGLER_SECONDS: Final = 5.0
"""How long the others are waited for after the last device that answered, when the driver is opened: bringing a card up
takes a second or two, one after the other; one that hangs must not keep the others from being measured."""

CLOSE_PATIENCE_SECONDS: Final = 2.0
"""How long ``nvmlShutdown`` is waited for: the agent has to end within its grace period."""

OCCURRENCES_MAX: Final = 1000
NOT_RETURNED: Final = "does not return"
NOBODY: Final = ""
ENERGY_CALL: Final = "nvmlDeviceGetTotalEnergyConsumption"
_PROFILE: Final = re.compile(r"(?:(\d)c\.)?(\d)g\.")


class DriverGoneError(TrueloadError):
    """The driver is not there, or not the one that was opened: open it anew, later."""


@dataclass(slots=True)
class KnownDevice:
    """A device that answered when the driver was opened. ``handle`` is the binding's and means nothing elsewhere.

    A MIG instance has ``parent_uuid``, the numbers of its GPU and compute instance, its profile as the driver names it
    (``1g.12gb``), and ``share_ratio``, its part of the card's compute slices. ``minor_number`` is that of
    ``/dev/nvidia<minor>``, which is not the index on every board. ``told_by_fields`` are the metrics that field values
    tell of it. ``calling`` is the call that is out right now, with the monotonic time of its begin.
    ``memory_util_ratio`` is what the driver said last of its memory's utilization, where the exporter is to tell it.
    ``memory_kind`` and ``energy_method`` are those of :class:`warehouse.contract.model.Device`.
    """

    uuid: str
    index: int
    handle: Any
    gpu_model: str | None
    memory_bytes: int | None
    pci_bus_id: str | None
    lost: bool = False
    parent_uuid: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    mig_profile: str | None = None
    share_ratio: float = 1.0
    minor_number: int | None = None
    told_by_fields: frozenset[str] = frozenset()
    memory_util_ratio: float | None = None
    memory_kind: str | None = None
    energy_method: str | None = None
    calling: tuple[str, float] | None = None

    @property
    def lane(self) -> str:
        """Give the name of the lane that its calls are made on; an instance shares its card's."""
        return f"gpu {self.index}"


@dataclass(frozen=True, slots=True)
class StuckCall:
    """A call that has not returned."""

    device_uuid: str
    call: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened on a device: an event of the store, before it has a node. ``at`` is wall time."""

    kind: str
    device_uuid: str
    at: float
    detail: str | None


class Driver:
    """An open driver. One per process; each device is used from its own lane, all else from one thread."""

    def __init__(self, library: str = "", *, reprobe_seconds: float = 60.0, patience_seconds: float = 0.5) -> None:
        """Prepare. ``library`` is the path of libnvidia-ml.so.1 where the loader would not find the right one."""
        self.devices: tuple[KnownDevice, ...] = ()
        self.driver_version: str | None = None
        self.unreadable: tuple[tuple[int, str], ...] = ()
        """Indexes that the driver counts but cannot open, with its reason."""
        self.failures: Counter[tuple[str, str]] = Counter()
        """Failed calls by name and reason, and values that cannot be true by name and why."""
        self.refused: dict[tuple[str, str], tuple[Fault, str]] = {}
        """Calls that a device does not answer, by device and name: what that means, and the driver's words."""

        self.last_failure = "no call failed"
        """The last call that failed, with the driver's words."""
        self.occurrences: deque[Occurrence] = deque(maxlen=OCCURRENCES_MAX)
        """What happened and has not been taken yet; of too many the oldest go."""
        self.last_xid: dict[str, str] = {}
        self.lanes = Lanes()
        self.patience_seconds = patience_seconds
        self._library = library
        self._reprobe_seconds = reprobe_seconds
        self._probe_at = 0.0
        self._unsupported: set[tuple[str, str, tuple[Any, ...]]] = set()
        self._nvml: ModuleType | None = None
        self._counting = threading.Lock()

    @property
    def nvml(self) -> Any:
        """Give the binding's module, for its constants and structures."""
        if self._nvml is None:
            raise DriverGoneError("the NVIDIA driver is not open")
        return self._nvml

    def open(self, wanted: Callable[[], bool] | None = None) -> None:
        """Load the library, initialise it and look what devices there are; ``wanted`` ends the wait early.

        Raises:
            BadUseError: the binding is not installed, or ``library`` cannot be loaded.
            DriverGoneError: there is no driver, or it does not answer now.

        """
        pynvml = _load_binding(self._library)
        self.close()
        done = self.lanes.run({"driver": lambda: _initialise(pynvml)}, OPEN_PATIENCE_SECONDS, wanted)
        if "driver" not in done:
            raise DriverGoneError("the NVIDIA driver does not answer (nvmlInit does not return)")
        try:
            self.driver_version, count = done["driver"].result()
        except pynvml.NVMLError as error:
            raise DriverGoneError(f"the NVIDIA driver does not answer ({error}); is it loaded?") from error
        self._nvml = pynvml
        self._unsupported.clear()
        self.refused.clear()
        self.unreadable = tuple((index, NOT_RETURNED) for index in range(count))
        self._discover(OPEN_PATIENCE_SECONDS, wanted)

    def close(self, *, shutdown: bool = True) -> None:
        """Shut the library down. Never fails and never hangs: a driver that is gone needs no goodbye.

        Without ``shutdown``, and with a call still out, the library is left as it is.
        """
        if self._nvml is not None:
            nvml, self._nvml = self._nvml, None
            out = self.lanes.stuck
            if out or not shutdown:  # shutting down under a call that is out would take its memory away
                LOG.warning(
                    "the driver is left without goodbye: a call of %s is still out", out[0] if out else "events"
                )
            else:
                done = self.lanes.run({"driver": nvml.nvmlShutdown}, CLOSE_PATIENCE_SECONDS)
                if "driver" in done and done["driver"].error is not None:
                    LOG.debug("shutdown: %s", done["driver"].error)
        self.devices = ()

    def living(self) -> Iterator[KnownDevice]:
        """Give the devices that are not lost; a call may lose one on the way."""
        for device in self.devices:
            if not device.lost:
                yield device

    def stuck(self) -> list[StuckCall]:
        """Give the calls that have been out for longer than the patience, for people to see."""
        now = time.monotonic()
        out = [(device.uuid, device.calling) for device in self.devices]
        return [
            StuckCall(uuid, calling[0], now - calling[1])
            for uuid, calling in out
            if calling is not None and now - calling[1] >= self.patience_seconds
        ]

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
        device.calling = (key[1], time.monotonic())
        try:
            return function()
        except nvml.NVMLError as error:
            self._fail(device, key, error)
            return None
        finally:
            device.calling = None

    def never_asked_again(self, device: KnownDevice, name: str, *arguments: Any) -> bool:
        """Say whether a call was found to be unsupported or forbidden on a device."""
        return (device.uuid, name, arguments) in self._unsupported

    def count(self, what: str, reason: str, times: int = 1) -> None:
        """Count a failed call or a value that cannot be true. Safe from every lane."""
        with self._counting:
            self.failures[what, reason] += times

    def tell(self, kind: str, device_uuid: str, detail: str | None) -> None:
        """Note that something happened, now. Safe from every thread."""
        if kind == "xid" and detail is not None:
            self.last_xid[device_uuid] = detail
        self.occurrences.append(Occurrence(kind, device_uuid, time.time(), detail))

    def card_of(self, device: KnownDevice) -> KnownDevice:
        """Give the card of a MIG instance, or the device itself."""
        if device.parent_uuid is None:
            return device
        return next((card for card in self.devices if card.uuid == device.parent_uuid), device)

    def reprobe(self) -> list[KnownDevice]:
        """Ask lost devices and unreadable indexes again, now and then; give those that are back.

        Cards are also asked whether they are cut into other MIG instances now: ``devices`` is another tuple then.
        """
        now = time.monotonic()
        if now < self._probe_at:
            return []
        self._probe_at = now + self._reprobe_seconds
        self._cut_anew()
        lost = [device for device in self.devices if device.lost and device.parent_uuid is None]
        if not (lost or self.unreadable):
            return []
        known = {device.uuid for device in self.devices}
        jobs = {device.lane: (lambda device=device: self._is_back(device)) for device in lost}
        done = self.lanes.run(jobs, self.patience_seconds)
        back = [device for device in lost if device.lane in done and done[device.lane].value]
        for device in back:
            device.lost = False
            for instance in self.devices:
                instance.lost = instance.lost and instance.parent_uuid != device.uuid
        self._discover(self.patience_seconds)
        return back + [device for device in self.devices if device.uuid not in known]

    def _cut_anew(self) -> None:
        """Take note of MIG instances that were made or removed while the driver was open."""
        cards = [device for device in self.living() if device.parent_uuid is None]
        jobs = {card.lane: (lambda card=card: self._other_instances(card)) for card in cards}
        done = self.lanes.run(jobs, self.patience_seconds)
        found = {
            card.uuid: done[card.lane].value
            for card in cards
            if card.lane in done and done[card.lane].error is None and done[card.lane].value is not None
        }
        if not found:
            return
        devices: list[KnownDevice] = []
        for device in self.devices:
            if device.parent_uuid not in found:
                devices += [device, *found.get(device.uuid, ())]
        self.devices = tuple(devices)

    def _other_instances(self, card: KnownDevice) -> list[KnownDevice] | None:
        """Give a card's MIG instances where they are not those that are known; None where they are, or cannot be told.

        An answer that fails says nothing: only the driver's own "not found" means that a place is empty.
        """
        known = {device.uuid for device in self.devices if device.parent_uuid == card.uuid}
        mode = self.call(card, "nvmlDeviceGetMigMode")
        if mode is None:
            return None
        most = self.call(card, "nvmlDeviceGetMaxMigDeviceCount") if mode[0] else 0
        if most is None:
            return None
        found: set[str] = set()
        for place in range(most):
            uuid = self._uuid_at(card, place)
            if uuid is None:
                return None
            found.add(uuid)
        return None if found - {NOBODY} == known else self._instances(card)

    def _uuid_at(self, card: KnownDevice, place: int) -> str | None:
        """Give the UUID of the instance at a place, ``NOBODY`` where there is none, None where that cannot be told."""
        nvml = self.nvml

        def ask() -> str:
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, place)
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_NOT_FOUND:
                    return NOBODY
                raise
            return _text(nvml.nvmlDeviceGetUUID(handle))

        uuid: str | None = self.guarded(card, (card.uuid, "nvmlDeviceGetMigDeviceHandleByIndex", (place,)), ask)
        return uuid

    def _is_back(self, device: KnownDevice) -> bool:
        nvml = self.nvml
        try:
            device.handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)
            nvml.nvmlDeviceGetMemoryInfo(device.handle)
        except nvml.NVMLError as error:
            return bool(error.value == nvml.NVML_ERROR_NOT_SUPPORTED)  # it answers, but has no memory of its own
        return True

    def _discover(self, patience_seconds: float, wanted: Callable[[], bool] | None = None) -> None:
        """Look at every index that is unreadable so far, each on its own lane."""
        nvml = self.nvml
        answered_at: list[float] = []

        def describe(index: int) -> list[KnownDevice]:
            try:
                return self._describe(index)
            finally:
                answered_at.append(time.monotonic())

        def still_wanted() -> bool:
            is_late = bool(answered_at) and time.monotonic() - answered_at[-1] > STRAGGLER_SECONDS
            return not is_late and (wanted is None or wanted())

        jobs = {f"gpu {index}": partial(describe, index) for index, _ in self.unreadable}
        done = self.lanes.run(jobs, patience_seconds, still_wanted)
        found, unreadable = list(self.devices), []
        for index, _ in self.unreadable:
            job = done.get(f"gpu {index}")
            if job is None:
                unreadable.append((index, NOT_RETURNED))
            elif isinstance(job.error, nvml.NVMLError):
                unreadable.append((index, str(job.error)))
            else:
                found += job.result()
        self.devices = tuple(sorted(found, key=lambda device: device.index))
        self.unreadable = tuple(unreadable)

    def _describe(self, index: int) -> list[KnownDevice]:
        """Describe the card at an index, and its MIG instances after it."""
        nvml = self.nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        card = KnownDevice(_text(nvml.nvmlDeviceGetUUID(handle)), index, handle, None, None, None)
        name = self.call(card, "nvmlDeviceGetName")
        memory = self.call(card, "nvmlDeviceGetMemoryInfo")
        pci = self.call(card, "nvmlDeviceGetPciInfo")
        card.gpu_model = None if name is None else _text(name)
        card.memory_bytes = int(memory.total) if memory is not None and memory.total > 0 else None
        card.memory_kind = self._memory_kind(card, memory)
        card.energy_method = self._energy_method(card)
        card.pci_bus_id = None if pci is None else _text(pci.busId)
        card.minor_number = self.call(card, "nvmlDeviceGetMinorNumber")
        return [card, *self._instances(card)]

    def _memory_kind(self, card: KnownDevice, memory: Any) -> str | None:
        """Say what the memory is: a driver that knows of none, or of 0 bytes, drives a part that shares the host's."""
        if card.memory_bytes is not None:
            return "dedicated"
        is_without = memory is not None or self.never_asked_again(card, "nvmlDeviceGetMemoryInfo")
        return "unified" if is_without else None

    def _energy_method(self, card: KnownDevice) -> str | None:
        """Say what its energy will be read from; None where that cannot be told yet."""
        if self.call(card, ENERGY_CALL) is not None:
            return "counter"
        return "power" if self.never_asked_again(card, ENERGY_CALL) else None

    def _instances(self, card: KnownDevice) -> list[KnownDevice]:
        """Give a card's MIG instances; the range of their indexes has holes."""
        mode = self.call(card, "nvmlDeviceGetMigMode")
        if mode is None or not mode[0]:
            return []
        found = []
        most = self.call(card, "nvmlDeviceGetMaxMigDeviceCount") or 0
        for place in range(most):
            handle = self.call(card, "nvmlDeviceGetMigDeviceHandleByIndex", place)
            uuid = None if handle is None else self.call(replace(card, handle=handle), "nvmlDeviceGetUUID")
            if uuid is None:
                continue
            instance = replace(card, uuid=_text(uuid), handle=handle, parent_uuid=card.uuid, memory_bytes=None)
            instance.energy_method = None  # energy is the card's
            instance.gpu_instance_id = self.call(instance, "nvmlDeviceGetGpuInstanceId")
            instance.compute_instance_id = self.call(instance, "nvmlDeviceGetComputeInstanceId")
            name = self.call(instance, "nvmlDeviceGetName")
            instance.gpu_model = card.gpu_model if name is None else _text(name)
            instance.mig_profile = mig_profile_of(instance.gpu_model)
            instance.share_ratio = share_of_profile(instance.mig_profile, most)
            memory = self.call(instance, "nvmlDeviceGetMemoryInfo")
            instance.memory_bytes = None if memory is None else int(memory.total)
            found.append(instance)
        return found

    def _fail(self, device: KnownDevice, key: tuple[str, str, tuple[Any, ...]], error: Any) -> None:
        fault = fault_of(error.value)
        if fault is Fault.NO_DATA:
            return
        self.count(key[1], str(error))
        self.last_failure = f"{key[1]}: {error}"
        self.refused[device.uuid, key[1]] = (fault, str(error))
        if fault is Fault.DRIVER_GONE:
            raise DriverGoneError(f"{key[1]}: {error}") from error
        if fault is Fault.DEVICE_LOST:
            self._lose(device, f"{key[1]}: {error}")
        elif fault in (Fault.UNSUPPORTED, Fault.FORBIDDEN):
            self._unsupported.add(key)
            level = logging.WARNING if fault is Fault.FORBIDDEN else logging.INFO
            LOG.log(level, "%s: %s will not be asked again (%s)", device.uuid, key[1], error)

    def _lose(self, device: KnownDevice, why: str) -> None:
        """Mark a card and its instances; a lost instance is a lost card."""
        card = device.parent_uuid or device.uuid
        for other in (device, *self.devices):
            other.lost = other.lost or card in (other.uuid, other.parent_uuid)
        self._probe_at = time.monotonic() + self._reprobe_seconds
        LOG.warning("%s: lost (%s)", device.uuid, why)


def mig_profile_of(name: str | None) -> str | None:
    """Give the profile in an instance's name, such as ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``; None without one."""
    _, is_mig, profile = (name or "").rpartition(" MIG ")
    return profile.strip() or None if is_mig else None


def share_of_profile(profile: str | None, slices: int) -> float:
    """Give an instance's part of its card's compute slices, 1 where it is not known.

    A profile begins with its slices: ``3g.40gb`` has three of a card that can be cut into ``slices`` (the most
    instances it can have: 7, or 4 on an A30), ``1c.3g.40gb`` one of them (NVIDIA MIG User Guide, profile names).
    """
    found = _PROFILE.match(profile or "")
    part = int(found[1] or found[2]) if found else 0
    return part / slices if 0 < part <= slices else 1.0


def _initialise(pynvml: Any) -> tuple[str, int]:
    """Initialise the library; give the driver's version and the number of devices."""
    pynvml.nvmlInit()
    try:
        return _text(pynvml.nvmlSystemGetDriverVersion()), pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        pynvml.nvmlShutdown()  # as often as it was initialised
        raise


def _load_binding(library: str) -> Any:
    try:
        import pynvml
    except ModuleNotFoundError as cause:
        raise BadUseError("the agent needs nvidia-ml-py: pip install 'trueload[agent]'") from cause
    if library:
        try:
            # The binding asks its loader by soname, which gives it the library that is loaded already.
            ctypes.CDLL(library)
        except OSError as cause:
            raise BadUseError(f"agent.nvml_library: {library} cannot be loaded ({cause})") from cause
    return pynvml


def _text(value: str | bytes) -> str:
    """Give text: older bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
