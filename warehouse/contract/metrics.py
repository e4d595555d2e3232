"""The metric catalogue: one row per thing that is measured on a device.

Columns of ``device_sample``, Prometheus names and the table in ``docs/metrics.md`` are generated from it. To add a
metric, add a row; the store adds the column by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from warehouse.contract.units import Unit


class Rung(StrEnum):
    """The rungs of "how busy", from the most flattering to the truest (docs/concepts.md: the ladder). Never mixed."""

    DRIVER_UTIL = "driver_util"
    ENGINE_ACTIVE = "engine_active"
    GPU_BOUND = "gpu_bound"


RUNGS_BEST_FIRST = (Rung.GPU_BOUND, Rung.ENGINE_ACTIVE, Rung.DRIVER_UTIL)
"""The order in which a document looks for the rung that covers enough of its time."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One column of a device sample.

    ``lowest`` and ``highest`` bound what is possible, in ``unit``; a value outside is rejected and counted, never
    clamped (``None``: no bound). ``keeps_max`` says that the sample also holds the maximum within its cadence, as
    ``<name>_max``. ``rung`` is set where the metric says how busy the device is; ``per_cadence`` marks an amount
    within the sample's cadence, to be divided by it to give a share of time.
    """

    name: str
    unit: Unit
    help: str
    vendor_field: str
    rung: Rung | None = None
    lowest: float | None = 0.0
    highest: float | None = None
    keeps_max: bool = False
    per_cadence: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Give the column names in the store: the mean, and the maximum where it is kept."""
        return (self.name, f"{self.name}_max") if self.keeps_max else (self.name,)

    @property
    def is_time_within_cadence(self) -> bool:
        """Say whether the value is a time within the sample's cadence, and so can never exceed it."""
        return self.per_cadence and self.unit is Unit.SECONDS

    @property
    def prometheus_name(self) -> str:
        """Give the exporter's metric name: amounts are counters, and ``_count`` is a word that Prometheus keeps."""
        if self.per_cadence:
            return f"trueload_gpu_{self.name.removesuffix('_count')}_total"
        return f"trueload_gpu_{self.name.removesuffix('_count')}{'_number' if self.unit is Unit.COUNT else ''}"


CATALOGUE: tuple[Metric, ...] = (
    Metric(
        "driver_util_ratio",
        Unit.RATIO,
        "Share of the driver's sample slices in which at least one kernel ran.",
        "NVML utilization.gpu, DCGM_FI_DEV_GPU_UTIL",
        rung=Rung.DRIVER_UTIL,
        highest=1.0,
    ),
    Metric(
        "engine_active_ratio",
        Unit.RATIO,
        "Share of time in which the graphics or compute engine was busy.",
        "NVML GPM 1, DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        rung=Rung.ENGINE_ACTIVE,
        highest=1.0,
    ),
    Metric(
        "gpu_bound_seconds",
        Unit.SECONDS,
        "Length of the union of kernel intervals within the cadence.",
        "CUPTI activity records",
        rung=Rung.GPU_BOUND,
        per_cadence=True,
    ),
    Metric(
        "copy_seconds",
        Unit.SECONDS,
        "Length of the union of copy and memset intervals within the cadence.",
        "CUPTI activity records",
        per_cadence=True,
    ),
    Metric(
        "gpu_busy_seconds",
        Unit.SECONDS,
        "Length of the union of kernel, copy and memset intervals within the cadence.",
        "CUPTI activity records",
        per_cadence=True,
    ),
    Metric(
        "sm_active_ratio",
        Unit.RATIO,
        "Share of SM-time with at least one resident warp.",
        "NVML GPM 2, DCGM_FI_PROF_SM_ACTIVE",
        highest=1.0,
    ),
    Metric(
        "sm_occupancy_ratio",
        Unit.RATIO,
        "Resident warps over the most that fit.",
        "NVML GPM 3, DCGM_FI_PROF_SM_OCCUPANCY",
        highest=1.0,
    ),
    Metric(
        "tensor_active_ratio",
        Unit.RATIO,
        "Share of cycles in which a tensor pipe was active.",
        "NVML GPM 5, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        highest=1.0,
    ),
    Metric(
        "dram_active_ratio",
        Unit.RATIO,
        "Share of cycles in which device memory was read or written.",
        "NVML GPM 10, DCGM_FI_PROF_DRAM_ACTIVE",
        highest=1.0,
    ),
    Metric(
        "fp64_active_ratio",
        Unit.RATIO,
        "Share of cycles in which a pipe for 64-bit numbers was active.",
        "NVML GPM 11, DCGM_FI_PROF_PIPE_FP64_ACTIVE",
        highest=1.0,
    ),
    Metric(
        "fp32_active_ratio",
        Unit.RATIO,
        "Share of cycles in which a pipe for 32-bit numbers was active.",
        "NVML GPM 12, DCGM_FI_PROF_PIPE_FP32_ACTIVE",
        highest=1.0,
    ),
    Metric(
        "fp16_active_ratio",
        Unit.RATIO,
        "Share of cycles in which a pipe for 16-bit numbers was active.",
        "NVML GPM 13, DCGM_FI_PROF_PIPE_FP16_ACTIVE",
        highest=1.0,
    ),
    Metric(
        "process_count",
        Unit.COUNT,
        "Compute processes on the device.",
        "NVML compute running processes",
    ),
    Metric(
        "memory_used_bytes",
        Unit.BYTES,
        "Device memory in use.",
        "NVML memory.used, DCGM_FI_DEV_FB_USED",
        keeps_max=True,
    ),
    Metric(
        "power_watts",
        Unit.WATTS,
        "Board power.",
        "NVML power usage, DCGM_FI_DEV_POWER_USAGE",
        highest=5000.0,
        keeps_max=True,
    ),
    Metric(
        "energy_joules",
        Unit.JOULES,
        "Energy used within the cadence, from the driver's counter.",
        "NVML total energy consumption, DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        per_cadence=True,
    ),
    Metric(
        "temperature_celsius",
        Unit.CELSIUS,
        "Temperature of the GPU.",
        "NVML temperature, DCGM_FI_DEV_GPU_TEMP",
        lowest=-60.0,
        highest=200.0,
        keeps_max=True,
    ),
    Metric(
        "sm_clock_hertz",
        Unit.HERTZ,
        "Clock of the streaming multiprocessors.",
        "NVML clock info, DCGM_FI_DEV_SM_CLOCK",
    ),
    Metric(
        "memory_clock_hertz",
        Unit.HERTZ,
        "Clock of the device memory.",
        "NVML clock info, DCGM_FI_DEV_MEM_CLOCK",
    ),
    Metric(
        "memory_temperature_celsius",
        Unit.CELSIUS,
        "Temperature of the device memory.",
        "NVML field 82, DCGM_FI_DEV_MEMORY_TEMP",
        lowest=-60.0,
        highest=200.0,
        keeps_max=True,
    ),
    Metric(
        "power_capped_ratio",
        Unit.RATIO,
        "Share of time in which the clock was lowered to stay within the power limit.",
        "NVML field 74, else clock event reasons",
        highest=1.0,
    ),
    Metric(
        "thermal_slowed_ratio",
        Unit.RATIO,
        "Share of time in which the clock was lowered because of heat.",
        "NVML fields 269 and 270 (the larger), else clock event reasons",
        highest=1.0,
    ),
    Metric(
        "power_braked_ratio",
        Unit.RATIO,
        "Share of time in which the board's power brake lowered the clock.",
        "NVML field 271, else clock event reasons",
        highest=1.0,
    ),
    Metric(
        "pcie_transmitted_bytes",
        Unit.BYTES,
        "Bytes that the device sent over PCIe within the cadence.",
        "NVML field 197, else GPM 255, 20",
        per_cadence=True,
    ),
    Metric(
        "pcie_received_bytes",
        Unit.BYTES,
        "Bytes that the device received over PCIe within the cadence.",
        "NVML field 198, else GPM 256, 21",
        per_cadence=True,
    ),
    Metric(
        "nvlink_transmitted_bytes",
        Unit.BYTES,
        "Bytes that the device sent over all its NVLinks within the cadence.",
        "NVML field 138 or 202, else GPM 61",
        per_cadence=True,
    ),
    Metric(
        "nvlink_received_bytes",
        Unit.BYTES,
        "Bytes that the device received over all its NVLinks within the cadence.",
        "NVML field 139 or 204, else GPM 60",
        per_cadence=True,
    ),
    Metric(
        "ecc_corrected_count",
        Unit.COUNT,
        "Memory errors within the cadence that were corrected.",
        "NVML field 3, else total ECC errors (volatile)",
        per_cadence=True,
    ),
    Metric(
        "ecc_uncorrected_count",
        Unit.COUNT,
        "Memory errors within the cadence that could not be corrected.",
        "NVML field 4, else total ECC errors (volatile), DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        per_cadence=True,
    ),
)

BY_NAME = {metric.name: metric for metric in CATALOGUE}
METRIC_COLUMNS = tuple(column for metric in CATALOGUE for column in metric.columns)


def is_possible(metric: Metric, value: float, cadence_seconds: float) -> bool:
    """Say whether a value can be true. NaN and infinities never are; a time within the cadence never exceeds it."""
    if not -math.inf < value < math.inf:  # NaN compares with nothing
        return False
    if metric.lowest is not None and value < metric.lowest:
        return False
    # Asked of every value that an agent reads: the property would cost as much as all the rest.
    is_time = metric.per_cadence and metric.unit is Unit.SECONDS
    highest = cadence_seconds if is_time else metric.highest
    return highest is None or value <= highest
