"""The Python side of the NVML stand-in: what a simulated node is, and the file that the C library reads it from.

A writer (a test, the demo cluster) makes a :class:`StandinState` and writes it as often as it likes; a process that has
``TRUELOAD_STANDIN_STATE`` set to that file and :func:`library_path` loaded as ``libnvidia-ml.so.1`` sees each write at
its next NVML call, whole or not at all.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from collector.simulate import layout
from warehouse.contract.errors import BadUseError, TrueloadError

STATE_VARIABLE: Final = "TRUELOAD_STANDIN_STATE"
"""The environment variable that names the state file to the library, read at ``nvmlInit``."""

LIBRARY_NAME: Final = "libnvidia-ml.so.1"

_BUS_ID = re.compile(r"([0-9A-Fa-f]{4}|[0-9A-Fa-f]{8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.0")


@dataclass(frozen=True, slots=True)
class StandinProcess:
    """A process on a device; it appears in the list of compute processes.

    ``used_memory_bytes`` is ``None`` where the driver does not know it, ``driver_util_ratio`` (the process's share of
    the device's sample slices) where it has no sample of the process.
    """

    pid: int
    used_memory_bytes: int | None
    driver_util_ratio: float | None = None
    mps: bool = False


NEVER_RETURNS: Final = -2
"""As the return code of a fault: the call does not come back until the state is written without the fault."""


@dataclass(frozen=True, slots=True)
class StandinFault:
    """The NVML function ``call`` answers for this device with ``return_code`` at once and fills in nothing.

    The code may be 0: drivers have been seen to answer success without an answer. ``NEVER_RETURNS`` blocks the caller.
    """

    call: str
    return_code: int


@dataclass(frozen=True, slots=True)
class GpmCounters:
    """Running integrals since an arbitrary start: the time passed, and the seconds of activity within it.

    A share of 0.5 held for 10 s adds 5 s. Two reads give the exact mean between them.
    """

    elapsed_seconds: float
    engine_active_seconds: float
    sm_active_seconds: float
    sm_occupancy_seconds: float
    tensor_active_seconds: float
    dram_active_seconds: float
    fp64_active_seconds: float = 0.0
    fp32_active_seconds: float = 0.0
    fp16_active_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StandinInstance:
    """A MIG instance."""

    uuid: str
    name: str
    gpu_instance_id: int
    memory_total_bytes: int
    memory_used_bytes: int
    gpm: GpmCounters | None = None
    compute_instance_id: int = 0


@dataclass(frozen=True, slots=True)
class StandinCounters:
    """Running totals since an arbitrary start, and counts of errors; on devices that support them all."""

    power_capped_seconds: float = 0.0
    thermal_slowed_seconds: float = 0.0
    power_braked_seconds: float = 0.0
    pcie_transmitted_bytes: int = 0
    pcie_received_bytes: int = 0
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    remapped_corrected: int = 0
    remapped_uncorrected: int = 0
    remap_pending: bool = False
    remap_failed: bool = False


@dataclass(frozen=True, slots=True)
class StandinEvent:
    """Something that an event set is told: NVML's bit for its kind (8: Xid), and the data (the Xid)."""

    kind: int
    data: int = 0


@dataclass(frozen=True, slots=True)
class StandinDevice:
    """Everything that NVML says about one device at one moment.

    Values are not checked for sense, for a stand-in must also tell what real drivers have told (4294967295 % busy);
    they need only fit NVML's integers. ``energy_joules`` is a total since an arbitrary start. ``gpm`` is ``None`` on
    devices before Hopper; with ``gpm_totals`` it tells totals since boot, too. ``serial`` is ``None`` on boards without
    one, ``counters`` on consumer boards, ``nvlink_bytes`` (sent, received) without NVLink. A ``lost`` device answers
    every call with "GPU is lost". ``events`` are all there were, the oldest first. ``instances`` is ``None`` without
    MIG; a ``None`` among them is a hole in the range of indexes.
    """

    uuid: str
    name: str
    pci_bus_id: str
    minor_number: int
    memory_total_bytes: int
    memory_used_bytes: int
    driver_util_ratio: float
    power_watts: float
    energy_joules: float
    temperature_celsius: float
    sm_clock_hertz: float
    gpm: GpmCounters | None = None
    processes: tuple[StandinProcess, ...] = ()
    lost: bool = False
    faults: tuple[StandinFault, ...] = ()
    serial: str | None = None
    driver_memory_util_ratio: float = 0.0
    clock_event_reasons: int = 0
    memory_clock_hertz: float | None = None
    memory_temperature_celsius: float | None = None
    counters: StandinCounters | None = None
    nvlink_bytes: tuple[int, int] | None = None
    events: tuple[StandinEvent, ...] = ()
    instances: tuple[StandinInstance | None, ...] | None = None
    gpm_totals: bool = False


class StandinState:
    """The state file of one simulated node, open for writing. One writer per file; any number of readers."""

    def __init__(self, descriptor: int, path: Path, node: layout.Node) -> None:
        """Use :meth:`create`."""
        self.path: Final = path
        self._descriptor: int | None = descriptor
        self._node = node
        self._sequence = 0
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: Path,
        driver_version: str,
        devices: Sequence[StandinDevice],
        *,
        cuda_driver_version: int = 12080,
        init_return_code: int = 0,
    ) -> Self:
        """Make the file with a first state; a file of that name is replaced, and its readers keep the old one.

        Args:
            path: where the file shall lie.
            driver_version: as ``nvidia-smi`` shows it, for example ``570.124.06``.
            devices: in the order of NVML's index, 16 at most.
            cuda_driver_version: 1000 times the major plus 10 times the minor version.
            init_return_code: what ``nvmlInit`` returns; 0 is success.

        Raises:
            BadUseError: a value does not fit what NVML can say.
        """
        node = layout.Node(
            cuda_driver_version=_whole(cuda_driver_version, 32, "cuda_driver_version"),
            driver_version=_text(driver_version, 80, "driver_version"),
            nvml_version=_text(f"{cuda_driver_version // 1000}.{driver_version}", 80, "driver_version"),
        )
        first = layout.File(magic=layout.MAGIC, version=layout.VERSION, size_bytes=ctypes.sizeof(layout.File))
        descriptor, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        state = cls(descriptor, path, node)
        try:
            os.pwrite(descriptor, bytes(first), 0)
            state.write(devices, init_return_code=init_return_code)
            Path(unfinished).replace(path)
        except BaseException:
            state.close()
            Path(unfinished).unlink(missing_ok=True)
            raise
        return state

    def write(self, devices: Sequence[StandinDevice], *, init_return_code: int = 0) -> None:
        """Replace the state of all devices; a reader sees all of a device's new values or none.

        Raises:
            BadUseError: a value does not fit what NVML can say, or the state is closed.
        """
        records = [_device_record(device) for device in devices]
        if len(records) > layout.DEVICES_MAX:
            raise BadUseError(f"{len(records)} devices: a simulated node has {layout.DEVICES_MAX} at most")
        with self._lock:
            if self._descriptor is None:
                raise BadUseError(f"{self.path}: the stand-in's state is closed; create it anew to write")
            self._node.written_at_microseconds = time.time_ns() // 1000
            self._node.init_return_code = _whole(init_return_code, 32, "init_return_code", signed=True)
            self._node.device_count = len(records)
            # Each pwrite takes and gives back the file's lock in the kernel, which orders the three for readers of the
            # mapping on any CPU; stores into a mapping of our own would be in order on x86 only.
            self._step(self._descriptor)
            os.pwrite(self._descriptor, bytes(self._node) + b"".join(map(bytes, records)), layout.File.node.offset)
            self._step(self._descriptor)

    def close(self) -> None:
        """Give the file back. It stays on disk with its last state."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        """The state itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _step(self, descriptor: int) -> None:
        """Count the sequence on: to odd before the state changes, to even after it."""
        self._sequence += 1
        os.pwrite(descriptor, self._sequence.to_bytes(8, "little"), layout.File.sequence.offset)


def library_path(machine: str | None = None) -> Path:
    """The stand-in library for an architecture (default: this machine's), to be loaded before ``nvmlInit``.

    Raises:
        TrueloadError: it was not built, or not for this architecture.
    """
    machine = machine or platform.machine()
    path = Path(__file__).parent / "native" / "lib" / {"arm64": "aarch64"}.get(machine, machine) / LIBRARY_NAME
    if not path.exists():
        raise TrueloadError(
            f"{path}: the NVML stand-in is not built for {machine}; it comes with an install of trueload on x86_64 and "
            "aarch64, and in a source tree `python build_native.py` makes it"
        )
    return path


def _device_record(device: StandinDevice) -> layout.Device:
    bus_id = _BUS_ID.fullmatch(device.pci_bus_id)
    if bus_id is None:
        raise BadUseError(f"pci_bus_id {device.pci_bus_id!r}: expected the form 00000000:1A:00.0")
    if len(device.processes) > layout.PROCESSES_MAX or len(device.faults) > layout.FAULTS_MAX:
        raise BadUseError(
            f"{device.uuid}: {len(device.processes)} processes and {len(device.faults)} faults; "
            f"{layout.PROCESSES_MAX} and {layout.FAULTS_MAX} are the most"
        )
    domain, bus, number = (int(part, 16) for part in bus_id.groups())
    record = layout.Device(
        uuid=_text(device.uuid, 96, "uuid"),
        name=_text(device.name, 96, "name"),
        serial=_text(device.serial or "", 30, "serial"),
        pci_domain=domain,
        pci_bus=bus,
        pci_device=number,
        minor_number=_whole(device.minor_number, 32, "minor_number"),
        memory_total_bytes=_whole(device.memory_total_bytes, 64, "memory_total_bytes"),
        memory_used_bytes=_whole(device.memory_used_bytes, 64, "memory_used_bytes"),
        energy_millijoules=_whole(device.energy_joules * 1e3, 64, "energy_joules"),
        clock_event_reasons=_whole(device.clock_event_reasons, 64, "clock_event_reasons"),
        driver_util_percent=_whole(device.driver_util_ratio * 1e2, 32, "driver_util_ratio"),
        driver_memory_util_percent=_whole(device.driver_memory_util_ratio * 1e2, 32, "driver_memory_util_ratio"),
        power_milliwatts=_whole(device.power_watts * 1e3, 32, "power_watts"),
        sm_clock_megahertz=_whole(device.sm_clock_hertz / 1e6, 32, "sm_clock_hertz"),
        temperature_celsius=_whole(device.temperature_celsius, 32, "temperature_celsius", signed=True),
        lost=device.lost,
        gpm_supported=0 if device.gpm is None else 1 + device.gpm_totals,
        process_count=len(device.processes),
        fault_count=len(device.faults),
        mig_enabled=device.instances is not None,
        memory_temperature_celsius=layout.UNSUPPORTED_32
        if device.memory_temperature_celsius is None
        else _whole(device.memory_temperature_celsius, 32, "memory_temperature_celsius", signed=True),
        memory_clock_megahertz=_whole((device.memory_clock_hertz or 0.0) / 1e6, 32, "memory_clock_hertz"),
        event_count=len(device.events),
    )
    _fill_gpm(record.gpm, device.gpm)
    _fill_counters(record, device)
    for number, event in list(enumerate(device.events))[-layout.EVENTS_MAX :]:
        record.events[number % layout.EVENTS_MAX] = layout.Event(event.kind, event.data)
    for place, instance in enumerate(device.instances or ()):
        if instance is not None:
            record.instances[place] = _instance_record(instance)
    for place, process in enumerate(device.processes):
        record.processes[place] = _process_record(process)
    for place, fault in enumerate(device.faults):
        record.faults[place] = _fault_record(fault)
    return record


def _fill_gpm(record: layout.Gpm, counters: GpmCounters | None) -> None:
    for field, _kind in layout.Gpm._fields_ if counters is not None else ():
        setattr(record, field, getattr(counters, field))


def _fill_counters(record: layout.Device, device: StandinDevice) -> None:
    if device.nvlink_bytes is not None:
        record.nvlink_supported = 1
        record.nvlink_transmitted_kib, record.nvlink_received_kib = (amount // 1024 for amount in device.nvlink_bytes)
    counters = device.counters
    if counters is None:
        return
    record.counters_supported = 1
    for name in ("power_capped", "thermal_slowed", "power_braked"):
        nanoseconds = _whole(getattr(counters, f"{name}_seconds") * 1e9, 64, f"{name}_seconds")
        setattr(record, f"{name}_nanoseconds", nanoseconds)
    for name in (
        *("pcie_transmitted_bytes", "pcie_received_bytes", "ecc_corrected", "ecc_uncorrected"),
        *("remapped_corrected", "remapped_uncorrected", "remap_pending", "remap_failed"),
    ):
        setattr(record, name, getattr(counters, name))


def _instance_record(instance: StandinInstance) -> layout.Instance:
    record = layout.Instance(
        uuid=_text(instance.uuid, 96, "uuid"),
        name=_text(instance.name, 96, "name"),
        memory_total_bytes=_whole(instance.memory_total_bytes, 64, "memory_total_bytes"),
        memory_used_bytes=_whole(instance.memory_used_bytes, 64, "memory_used_bytes"),
        gpu_instance_id=_whole(instance.gpu_instance_id, 32, "gpu_instance_id"),
        compute_instance_id=_whole(instance.compute_instance_id, 32, "compute_instance_id"),
    )
    _fill_gpm(record.gpm, instance.gpm)
    return record


def _process_record(process: StandinProcess) -> layout.Process:
    memory, util = process.used_memory_bytes, process.driver_util_ratio
    return layout.Process(
        used_memory_bytes=layout.UNKNOWN_64 if memory is None else _whole(memory, 64, "used_memory_bytes"),
        pid=_whole(process.pid, 32, "pid"),
        driver_util_percent=layout.UNKNOWN_32 if util is None else _whole(util * 1e2, 32, "driver_util_ratio"),
        mps=process.mps,
    )


def _fault_record(fault: StandinFault) -> layout.Fault:
    if fault.call not in layout.FAULTABLE_CALLS:
        raise BadUseError(f"fault of {fault.call!r}: the stand-in exports no call of this name on a device")
    return layout.Fault(fault.call.encode(), _whole(fault.return_code, 32, "return_code", signed=True))


def _whole(value: float, bits: int, field: str, *, signed: bool = False) -> int:
    """A value as the integer that NVML has for it; ctypes would cut it off silently."""
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    whole = round(value)
    if not lowest <= whole <= highest:
        raise BadUseError(f"{field}: {value} does not fit NVML's integer for it, {lowest} to {highest}")
    return whole


def _text(value: str, size_bytes: int, field: str) -> bytes:
    encoded = value.encode()
    if len(encoded) >= size_bytes or b"\0" in encoded:
        raise BadUseError(f"{field} {value!r}: NVML has {size_bytes - 1} bytes for it, without a null character")
    return encoded
