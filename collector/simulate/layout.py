"""The layout of the stand-in's state file: the twin of ``native/standin_state.h``.

The library refuses a file whose version or size differs from its own, and a test compares every offset.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar, Final

MAGIC: Final = int.from_bytes(b"TLDNVML1", "little")
VERSION: Final = 2
DEVICES_MAX: Final = 16
PROCESSES_MAX: Final = 32
FAULTS_MAX: Final = 16
EVENTS_MAX: Final = 8
INSTANCES_MAX: Final = 8
UNSUPPORTED_32: Final = -(2**31)
UNKNOWN_32: Final = 2**32 - 1
UNKNOWN_64: Final = 2**64 - 1

FAULTABLE_CALLS: Final = frozenset(
    {
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetIndex",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetName",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetSamples",
        "nvmlDeviceGetSerial",
        "nvmlDeviceGetSupportedEventTypes",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceRegisterEvents",
        "nvmlGpmMetricsGet",
        "nvmlGpmMigSampleGet",
        "nvmlGpmQueryDeviceSupport",
        "nvmlGpmSampleGet",
    }
)
"""The library's calls on one device: those that can be lost or faulty with it. Names are the exported symbols."""

_Fields = list[tuple[str, Any]]


class Process(ctypes.LittleEndianStructure):
    """``struct standin_process``."""

    _fields_: ClassVar[_Fields] = [
        ("used_memory_bytes", ctypes.c_uint64),
        ("pid", ctypes.c_uint32),
        ("driver_util_percent", ctypes.c_uint32),
        ("mps", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    ]


class Fault(ctypes.LittleEndianStructure):
    """``struct standin_fault``."""

    _fields_: ClassVar[_Fields] = [("call", ctypes.c_char * 60), ("return_code", ctypes.c_int32)]


class Gpm(ctypes.LittleEndianStructure):
    """``struct standin_gpm``."""

    _fields_: ClassVar[_Fields] = [
        ("elapsed_seconds", ctypes.c_double),
        ("engine_active_seconds", ctypes.c_double),
        ("sm_active_seconds", ctypes.c_double),
        ("sm_occupancy_seconds", ctypes.c_double),
        ("tensor_active_seconds", ctypes.c_double),
        ("dram_active_seconds", ctypes.c_double),
        ("fp64_active_seconds", ctypes.c_double),
        ("fp32_active_seconds", ctypes.c_double),
        ("fp16_active_seconds", ctypes.c_double),
    ]


class Instance(ctypes.LittleEndianStructure):
    """``struct standin_instance``."""

    _fields_: ClassVar[_Fields] = [
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("memory_total_bytes", ctypes.c_uint64),
        ("memory_used_bytes", ctypes.c_uint64),
        ("gpu_instance_id", ctypes.c_uint32),
        ("compute_instance_id", ctypes.c_uint32),
        ("gpm", Gpm),
    ]


class Event(ctypes.LittleEndianStructure):
    """``struct standin_event``."""

    _fields_: ClassVar[_Fields] = [("type", ctypes.c_uint64), ("data", ctypes.c_uint64)]


class Device(ctypes.LittleEndianStructure):
    """``struct standin_device``."""

    _fields_: ClassVar[_Fields] = [
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("serial", ctypes.c_char * 32),
        ("pci_domain", ctypes.c_uint32),
        ("pci_bus", ctypes.c_uint32),
        ("pci_device", ctypes.c_uint32),
        ("minor_number", ctypes.c_uint32),
        ("memory_total_bytes", ctypes.c_uint64),
        ("memory_used_bytes", ctypes.c_uint64),
        ("energy_millijoules", ctypes.c_uint64),
        ("clock_event_reasons", ctypes.c_uint64),
        ("driver_util_percent", ctypes.c_uint32),
        ("driver_memory_util_percent", ctypes.c_uint32),
        ("power_milliwatts", ctypes.c_uint32),
        ("sm_clock_megahertz", ctypes.c_uint32),
        ("temperature_celsius", ctypes.c_int32),
        ("lost", ctypes.c_uint32),
        ("gpm_supported", ctypes.c_uint32),
        ("process_count", ctypes.c_uint32),
        ("fault_count", ctypes.c_uint32),
        ("mig_enabled", ctypes.c_uint32),
        ("memory_temperature_celsius", ctypes.c_int32),
        ("memory_clock_megahertz", ctypes.c_uint32),
        ("power_capped_nanoseconds", ctypes.c_uint64),
        ("thermal_slowed_nanoseconds", ctypes.c_uint64),
        ("power_braked_nanoseconds", ctypes.c_uint64),
        ("pcie_transmitted_bytes", ctypes.c_uint64),
        ("pcie_received_bytes", ctypes.c_uint64),
        ("nvlink_transmitted_kib", ctypes.c_uint64),
        ("nvlink_received_kib", ctypes.c_uint64),
        ("ecc_corrected", ctypes.c_uint64),
        ("ecc_uncorrected", ctypes.c_uint64),
        ("remapped_corrected", ctypes.c_uint32),
        ("remapped_uncorrected", ctypes.c_uint32),
        ("remap_pending", ctypes.c_uint32),
        ("remap_failed", ctypes.c_uint32),
        ("counters_supported", ctypes.c_uint32),
        ("nvlink_supported", ctypes.c_uint32),
        ("event_count", ctypes.c_uint64),
        ("events", Event * EVENTS_MAX),
        ("gpm", Gpm),
        ("processes", Process * PROCESSES_MAX),
        ("faults", Fault * FAULTS_MAX),
        ("instances", Instance * INSTANCES_MAX),
    ]


class Node(ctypes.LittleEndianStructure):
    """``struct standin_node``."""

    _fields_: ClassVar[_Fields] = [
        ("written_at_microseconds", ctypes.c_uint64),
        ("init_return_code", ctypes.c_int32),
        ("device_count", ctypes.c_uint32),
        ("cuda_driver_version", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("driver_version", ctypes.c_char * 80),
        ("nvml_version", ctypes.c_char * 80),
    ]


class File(ctypes.LittleEndianStructure):
    """``struct standin_file``."""

    _fields_: ClassVar[_Fields] = [
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("size_bytes", ctypes.c_uint32),
        ("sequence", ctypes.c_uint64),
        ("node", Node),
        ("devices", Device * DEVICES_MAX),
    ]
