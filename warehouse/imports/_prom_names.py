"""What the series of GPU exporters mean: which metric of a device, in which unit, by which exporter.

Names and units as in: NVIDIA/dcgm-exporter ``etc/*.csv``; utkuozdemir/nvidia_gpu_exporter ``METRICS.md``;
XuehaiPan/nvitop ``nvitop-exporter``; guilbaults/slurm-job-exporter; the table of PrincetonUniversity/jobstats
``docs/setup/gpu_node_scripts.md``; and our own agent's exporter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from warehouse.contract.metrics import CATALOGUE
from warehouse.contract.units import BYTES_PER_MIB

DCGM, SMI, NVITOP, JOBSTATS, SLURM, OWN = "dcgm", "nvidia_gpu_exporter", "nvitop", "jobstats", "slurm_job", "trueload"


class Kind(Enum):
    """How a series tells its metric."""

    GAUGE = "a value of now"
    RATE = "an amount per second, of now"
    COUNTER = "an amount since some start"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a series is: ``factor`` brings it to the metric's base unit."""

    exporter: str
    column: str
    factor: float
    kind: Kind = Kind.GAUGE


MIB: Final = float(BYTES_PER_MIB)
_GAUGES: Final = (
    ("DCGM_FI_DEV_GPU_UTIL", DCGM, "driver_util_ratio", 0.01),
    ("DCGM_FI_DEV_FB_USED", DCGM, "memory_used_bytes", MIB),
    ("DCGM_FI_DEV_POWER_USAGE", DCGM, "power_watts", 1.0),
    ("DCGM_FI_DEV_GPU_TEMP", DCGM, "temperature_celsius", 1.0),
    ("DCGM_FI_DEV_MEMORY_TEMP", DCGM, "memory_temperature_celsius", 1.0),
    ("DCGM_FI_DEV_SM_CLOCK", DCGM, "sm_clock_hertz", 1e6),
    ("DCGM_FI_DEV_MEM_CLOCK", DCGM, "memory_clock_hertz", 1e6),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", DCGM, "engine_active_ratio", 1.0),
    ("DCGM_FI_PROF_SM_ACTIVE", DCGM, "sm_active_ratio", 1.0),
    ("DCGM_FI_PROF_SM_OCCUPANCY", DCGM, "sm_occupancy_ratio", 1.0),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", DCGM, "tensor_active_ratio", 1.0),
    ("DCGM_FI_PROF_DRAM_ACTIVE", DCGM, "dram_active_ratio", 1.0),
    ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", DCGM, "fp64_active_ratio", 1.0),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", DCGM, "fp32_active_ratio", 1.0),
    ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", DCGM, "fp16_active_ratio", 1.0),
    ("nvidia_smi_utilization_gpu_ratio", SMI, "driver_util_ratio", 1.0),
    ("nvidia_smi_memory_used_bytes", SMI, "memory_used_bytes", 1.0),
    ("nvidia_smi_power_draw_watts", SMI, "power_watts", 1.0),
    ("nvidia_smi_temperature_gpu", SMI, "temperature_celsius", 1.0),
    ("nvidia_smi_temperature_memory", SMI, "memory_temperature_celsius", 1.0),
    ("nvidia_smi_clocks_current_sm_clock_hz", SMI, "sm_clock_hertz", 1.0),
    ("nvidia_smi_clocks_current_memory_clock_hz", SMI, "memory_clock_hertz", 1.0),
    ("nvidia_smi_compute_apps", SMI, "process_count", 1.0),
    ("gpu_utilization_Percentage", NVITOP, "driver_util_ratio", 0.01),
    ("gpu_memory_used_MiB", NVITOP, "memory_used_bytes", MIB),
    ("gpu_power_usage_W", NVITOP, "power_watts", 1.0),
    ("gpu_temperature_C", NVITOP, "temperature_celsius", 1.0),
    ("gpu_clock_sm_MHz", NVITOP, "sm_clock_hertz", 1e6),
    ("gpu_clock_memory_MHz", NVITOP, "memory_clock_hertz", 1e6),
    ("nvidia_gpu_duty_cycle", JOBSTATS, "driver_util_ratio", 0.01),
    ("nvidia_gpu_memory_used_bytes", JOBSTATS, "memory_used_bytes", 1.0),
    ("nvidia_gpu_power_usage_milliwatts", JOBSTATS, "power_watts", 1e-3),
    ("nvidia_gpu_temperature_celsius", JOBSTATS, "temperature_celsius", 1.0),
    ("slurm_job_utilization_gpu", SLURM, "driver_util_ratio", 0.01),
    ("slurm_job_memory_usage_gpu", SLURM, "memory_used_bytes", 1.0),
    ("slurm_job_power_gpu", SLURM, "power_watts", 1e-3),
    ("slurm_job_sm_occupancy_gpu", SLURM, "sm_occupancy_ratio", 0.01),
    ("slurm_job_tensor_gpu", SLURM, "tensor_active_ratio", 0.01),
    ("slurm_job_fp64_gpu", SLURM, "fp64_active_ratio", 0.01),
    ("slurm_job_fp32_gpu", SLURM, "fp32_active_ratio", 0.01),
    ("slurm_job_fp16_gpu", SLURM, "fp16_active_ratio", 0.01),
)
_RATES: Final = (
    ("DCGM_FI_PROF_PCIE_TX_BYTES", DCGM, "pcie_transmitted_bytes", 1.0),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", DCGM, "pcie_received_bytes", 1.0),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", DCGM, "nvlink_transmitted_bytes", 1.0),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", DCGM, "nvlink_received_bytes", 1.0),
    ("nvidia_smi_pcie_throughput_tx_bytes_per_second", SMI, "pcie_transmitted_bytes", 1.0),
    ("nvidia_smi_pcie_throughput_rx_bytes_per_second", SMI, "pcie_received_bytes", 1.0),
)
_COUNTERS: Final = (
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", DCGM, "energy_joules", 1e-3),
    ("nvidia_smi_energy_joules_total", SMI, "energy_joules", 1.0),
)

SERIES: Final[dict[str, Meaning]] = {
    **{name: Meaning(exporter, column, factor) for name, exporter, column, factor in _GAUGES},
    **{name: Meaning(exporter, column, factor, Kind.RATE) for name, exporter, column, factor in _RATES},
    **{name: Meaning(exporter, column, factor, Kind.COUNTER) for name, exporter, column, factor in _COUNTERS},
    **{
        metric.prometheus_name: Meaning(OWN, metric.name, 1.0, Kind.COUNTER if metric.per_cadence else Kind.GAUGE)
        for metric in CATALOGUE
    },
}
"""Every series that becomes a metric of a device."""

MEMORY_TOTALS: Final[dict[str, float]] = {
    "DCGM_FI_DEV_FB_TOTAL": MIB,
    "nvidia_smi_memory_total_bytes": 1.0,
    "gpu_memory_total_MiB": MIB,
    "nvidia_gpu_memory_total_bytes": 1.0,
    "slurm_job_memory_total_gpu": 1.0,
    "trueload_gpu_memory_total_bytes": 1.0,
}
"""Series that say how much memory a card has, with the factor to bytes."""

JOB_IDS: Final = frozenset({"nvidia_gpu_jobId"})
"""Series whose value is the id of the job that holds the card; 0: nobody."""

POD_FACTS: Final = frozenset({"kube_pod_info", "kube_pod_owner"})
"""Series of kube-state-metrics that say what a pod is: its UID and what made it."""

DEVICE_INFOS: Final = frozenset({"nvidia_smi_gpu_info", "trueload_gpu_info"})
"""Series that describe a card in their labels."""

QUERIED: Final = (*SERIES, *MEMORY_TOTALS, *sorted(JOB_IDS), *sorted(DEVICE_INFOS))
"""Series of devices to ask a server for."""

SM_ACTIVE_IF: Final = "slurm_job_sm_occupancy_gpu"
"""slurm-job-exporter with DCGM gives SM activity under the name of the utilization, and only then this series."""
