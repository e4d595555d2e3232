"""What the exporter says, as Prometheus metric families: made anew for each scrape, never between.

A value that is not known is no sample. Labels of a device's values are ``gpu_uuid gpu node model``; everything that
describes it further is in ``trueload_gpu_info``. Nothing is labelled with a process, a command or a person. Series per
job are off unless a number of them is allowed, and go when the job lets go of the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from warehouse.contract.metrics import CATALOGUE

if TYPE_CHECKING:
    from collector.driver import Driver, KnownDevice
    from collector.job_source import Holding
    from collector.recent import Latest, Recent
    from collector.ship import Shipper
    from collector.spool import Spool
    from collector.steps_seen import StepsSeen
    from collector.sweep import SourceHealth

DEVICE_LABELS: Final = ("gpu_uuid", "gpu", "node", "model")
MOST_REASONS: Final = 100
"""Pairs of what failed and why; further ones are counted together as ``other``."""

MIB: Final = 1024**2
Values = Mapping[tuple[str, str], "Latest"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is exported: the parts of a running agent. ``current_seconds``: how long a reading speaks for now."""

    node: str
    version: str
    sources: Sequence[str]
    driver: Driver
    recent: Recent
    spool: Spool
    health: Mapping[str, SourceHealth]
    holdings: Sequence[Holding] = ()
    rejected: Mapping[str, int] | None = None
    shipper: Shipper | None = None
    current_seconds: float = 5.0
    most_jobs: int = 0
    steps: StepsSeen | None = None


def device_families(subject: Subject) -> Iterator[Metric]:
    """Give each device's values: from the first source that has them."""
    values, devices = _current(subject), subject.driver.devices
    for metric in CATALOGUE:
        kind = CounterMetricFamily if metric.per_cadence else GaugeMetricFamily
        family = kind(metric.prometheus_name, f"{metric.help} Source: {metric.vendor_field}.", labels=DEVICE_LABELS)
        for device in devices:
            value = _first(subject, values, device.uuid, metric.name)
            if value is not None:
                family.add_metric(_labels(subject, device), value)
        if family.samples:
            yield family
    up = GaugeMetricFamily("trueload_gpu_up", "1 while the device answers, 0 once it is lost.", labels=DEVICE_LABELS)
    total = GaugeMetricFamily("trueload_gpu_memory_total_bytes", "Memory that the device has.", labels=DEVICE_LABELS)
    info = GaugeMetricFamily(
        "trueload_gpu_info",
        "What the device is; parent_uuid and gpu_instance_id are those of a MIG instance.",
        labels=(*DEVICE_LABELS, "pci_bus_id", "parent_uuid", "gpu_instance_id", "driver_version"),
    )
    for device in devices:
        labels = _labels(subject, device)
        up.add_metric(labels, 0.0 if device.lost else 1.0)
        if device.memory_bytes is not None:
            total.add_metric(labels, device.memory_bytes)
        instance = "" if device.gpu_instance_id is None else str(device.gpu_instance_id)
        more = [device.pci_bus_id or "", device.parent_uuid or "", instance, subject.driver.driver_version or ""]
        info.add_metric([*labels, *more], 1.0)
    yield from (up, total, info)
    last = GaugeMetricFamily(
        "trueload_gpu_last_reading_timestamp_seconds", "When the device last gave a value.", labels=DEVICE_LABELS
    )
    newest: dict[str, float] = {}
    for (uuid, _), latest in subject.recent.latest().items():
        newest[uuid] = max(newest.get(uuid, 0.0), latest.wall)
    for device in devices:
        if device.uuid in newest:
            last.add_metric(_labels(subject, device), newest[device.uuid])
    yield last


def job_families(subject: Subject, now: float) -> Iterator[Metric]:
    """Give what is held: per device always, per job up to the number that is allowed."""
    held = [
        (holding.attempt_key, holding.device_uuid, holding.share_ratio)
        for holding in subject.holdings
        if holding.device_uuid is not None
        and holding.start_at <= now
        and (holding.end_at is None or holding.end_at > now)
    ]
    shares: dict[str, float] = {}
    for _, device_uuid, share in held:
        shares[device_uuid] = shares.get(device_uuid, 0.0) + share
    allocated = GaugeMetricFamily(
        "trueload_gpu_allocated_ratio", "Share of the device that jobs hold, busy or not.", labels=DEVICE_LABELS
    )
    for device in subject.driver.devices:
        if device.uuid in shares:
            allocated.add_metric(_labels(subject, device), min(1.0, shares[device.uuid]))
    yield allocated
    if subject.steps is not None:
        yield CounterMetricFamily(
            "trueload_node_steps_total",
            "Steps that traced processes of this node counted since the agent began.",
            value=subject.steps.total,
        )
    by_job: dict[tuple[str, str], float] = {}
    for attempt_key, device_uuid, share in held:
        by_job[attempt_key, device_uuid] = by_job.get((attempt_key, device_uuid), 0.0) + share
    if subject.most_jobs:
        workloads = GaugeMetricFamily(
            "trueload_workload_gpu_allocated_ratio",
            "Share of the device that the workload holds now, busy or not.",
            labels=("gpu_uuid", "node", "workload"),
        )
        for (workload, device_uuid), share in list(by_job.items())[: subject.most_jobs]:
            workloads.add_metric([device_uuid, subject.node, workload], share)
        yield workloads
        yield _steps_of_workloads(subject, {workload for workload, _ in by_job})
        left_out = max(0, len(by_job) - subject.most_jobs)
        yield GaugeMetricFamily(
            "trueload_agent_workload_series_left_out", "Series of workloads beyond the number allowed.", value=left_out
        )


def _steps_of_workloads(subject: Subject, held: set[str]) -> Metric:
    """Give the steps of workloads: of those that hold a device first, then of those seen last, up to the number."""
    family = CounterMetricFamily(
        "trueload_workload_steps_total",
        "Steps that the workload's processes here counted.",
        labels=("node", "workload"),
    )
    known = {} if subject.steps is None else subject.steps.of_workloads()
    newest = list(reversed(known))
    ordered = [one for one in newest if one in held] + [one for one in newest if one not in held]
    for workload in ordered[: subject.most_jobs]:
        family.add_metric([subject.node, workload], known[workload])
    return family


def agent_families(subject: Subject) -> Iterator[Metric]:
    """Give how the agent itself does."""
    build = GaugeMetricFamily("trueload_agent_build_info", "The agent's release.", labels=("version",))
    build.add_metric([subject.version], 1.0)
    yield build
    per_source = ("source",)
    reads = CounterMetricFamily("trueload_agent_collect_reads_total", "Reads of a source.", labels=per_source)
    spent = CounterMetricFamily("trueload_agent_collect_seconds_total", "Time that reads took.", labels=per_source)
    slowest = GaugeMetricFamily(
        "trueload_agent_collect_slowest_seconds", "The longest that a read has taken.", labels=per_source
    )
    for source, health in subject.health.items():
        reads.add_metric([source], health.reads)
        spent.add_metric([source], health.seconds)
        slowest.add_metric([source], health.slowest_seconds)
    yield from (reads, spent, slowest)
    failures = {
        (source, why): n for source, health in subject.health.items() for why, n in dict(health.failures).items()
    }
    for name, text, what, counts in (
        ("collect_errors", "Reads that failed.", "source", failures),
        ("driver_errors", "Calls of the driver that failed.", "call", dict(subject.driver.failures)),
    ):
        family = CounterMetricFamily(f"trueload_agent_{name}_total", text, labels=(what, "reason"))
        for labels, count in _bounded(counts).items():
            family.add_metric(labels, count)
        yield family
    last = GaugeMetricFamily(
        "trueload_agent_last_success_timestamp_seconds", "When a source last gave a value.", labels=per_source
    )
    newest: dict[str, float] = {}
    for (_, source), latest in subject.recent.latest().items():
        newest[source] = max(newest.get(source, 0.0), latest.wall)
    for source, at in newest.items():
        last.add_metric([source], at)
    yield last
    rejected = CounterMetricFamily(
        "trueload_agent_rejected_values_total", "Values that cannot be true, by metric.", labels=("metric",)
    )
    for metric_name, count in (subject.rejected or {}).items():
        rejected.add_metric([metric_name], count)
    yield rejected
    yield GaugeMetricFamily(
        "trueload_agent_stuck_calls", "Calls of the driver that have not returned.", value=len(subject.driver.stuck())
    )
    yield from _spool_families(subject.spool)
    if subject.shipper is not None:
        yield from _ship_families(subject.shipper)


def _spool_families(spool: Spool) -> Iterator[Metric]:
    gauge, counter = GaugeMetricFamily, CounterMetricFamily
    yield gauge("trueload_agent_queued_batches", "Batches that wait or were refused.", value=spool.waiting_count)
    yield gauge("trueload_agent_queued_bytes", "Bytes of these batches.", value=spool.waiting_bytes)
    yield gauge("trueload_agent_queued_in_memory_batches", "Batches the disk refused.", value=spool.memory_count)
    yield gauge("trueload_agent_kept_batches", "Batches kept until a backup has them.", value=spool.kept_count)
    yield counter("trueload_agent_dropped_batches_total", "Batches dropped by a bound.", value=spool.dropped_total)


def _ship_families(shipper: Shipper) -> Iterator[Metric]:
    counter = CounterMetricFamily
    yield counter("trueload_agent_shipped_batches_total", "Batches that the server took.", value=shipper.shipped_total)
    yield counter("trueload_agent_refused_batches_total", "Batches it will never take.", value=shipper.refused_total)
    yield counter("trueload_agent_failed_posts_total", "Posts without a good answer.", value=shipper.failed_total)
    yield counter(
        "trueload_agent_resent_batches_total", "Batches that the server had lost.", value=shipper.lost_by_server_total
    )
    if shipper.clock is not None:
        for bound, value in (("low", shipper.clock.low), ("high", shipper.clock.high)):
            text = f"By how much this node's clock is ahead of the server's: the {bound} end of what is known."
            yield GaugeMetricFamily(f"trueload_agent_clock_ahead_{bound}_seconds", text, value=value)
    if shipper.last_success_at is not None:
        yield GaugeMetricFamily(
            "trueload_agent_last_shipped_timestamp_seconds", "When it last took one.", value=shipper.last_success_at
        )


# The names of dcgm-exporter that dashboards already use (its default counters): our metric, and the factor to its unit.
_DCGM: Final = (
    ("DCGM_FI_DEV_GPU_UTIL", "driver_util_ratio", 100.0, "GPU utilization (in %)."),
    ("DCGM_FI_DEV_FB_USED", "memory_used_bytes", 1 / MIB, "Framebuffer memory used (in MiB)."),
    ("DCGM_FI_DEV_POWER_USAGE", "power_watts", 1.0, "Power draw (in W)."),
    ("DCGM_FI_DEV_GPU_TEMP", "temperature_celsius", 1.0, "GPU temperature (in C)."),
    ("DCGM_FI_DEV_MEMORY_TEMP", "memory_temperature_celsius", 1.0, "Memory temperature (in C)."),
    ("DCGM_FI_DEV_MEM_CLOCK", "memory_clock_hertz", 1e-6, "Memory clock frequency (in MHz)."),
    ("DCGM_FI_DEV_SM_CLOCK", "sm_clock_hertz", 1e-6, "SM clock frequency (in MHz)."),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energy_joules", 1000.0, "Energy since the agent began (in mJ)."),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "engine_active_ratio", 1.0, "Ratio of time the graphics engine is active."),
    ("DCGM_FI_PROF_SM_ACTIVE", "sm_active_ratio", 1.0, "Ratio of cycles an SM has at least one warp assigned."),
    ("DCGM_FI_PROF_SM_OCCUPANCY", "sm_occupancy_ratio", 1.0, "Ratio of resident warps to the most that fit."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tensor_active_ratio", 1.0, "Ratio of cycles the tensor pipe is active."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "dram_active_ratio", 1.0, "Ratio of cycles the memory interface is active."),
    ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "fp64_active_ratio", 1.0, "Ratio of cycles the fp64 pipe is active."),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "fp32_active_ratio", 1.0, "Ratio of cycles the fp32 pipe is active."),
    ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "fp16_active_ratio", 1.0, "Ratio of cycles the fp16 pipe is active."),
)
_DCGM_LABELS: Final = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")


def dcgm_families(subject: Subject) -> Iterator[Metric]:
    """Give the same values under the names, units and labels of dcgm-exporter."""
    values, driver = _current(subject), subject.driver

    def scaled(ours: str, factor: float) -> Callable[[KnownDevice], float | None]:
        def read(device: KnownDevice) -> float | None:
            value = _first(subject, values, device.uuid, ours)
            return None if value is None else value * factor

        return read

    def free(device: KnownDevice) -> float | None:
        used = _first(subject, values, device.uuid, "memory_used_bytes")
        return None if used is None or device.memory_bytes is None else (device.memory_bytes - used) / MIB

    def memory_util(device: KnownDevice) -> float | None:
        is_current = _first(subject, values, device.uuid, "memory_used_bytes") is not None
        return device.memory_util_ratio * 100 if is_current and device.memory_util_ratio is not None else None

    def last_xid(device: KnownDevice) -> float | None:
        said = driver.last_xid.get(device.uuid, "")
        return float(said) if said.isdecimal() else None

    reads = [(name, text, scaled(ours, factor)) for name, ours, factor, text in _DCGM]
    reads.append(("DCGM_FI_DEV_FB_FREE", "Framebuffer memory not used, reserved included (in MiB).", free))
    reads.append(("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", memory_util))
    reads.append(("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error since the agent began.", last_xid))
    for name, text, read in reads:
        family = GaugeMetricFamily(name, text, labels=_DCGM_LABELS)
        for device in driver.devices:
            value = read(device)
            if value is not None:
                family.add_metric(_dcgm_labels(subject, device), value)
        if family.samples:
            yield family


def _dcgm_labels(subject: Subject, device: KnownDevice) -> list[str]:
    number = str(device.index)
    labels = [number, device.uuid, device.pci_bus_id or "", f"nvidia{number}", device.gpu_model or ""]
    return [*labels, subject.node, subject.driver.driver_version or ""]


def _current(subject: Subject) -> Values:
    """Give what was read just now: a device that does not answer any more has no values."""
    oldest = time.monotonic() - subject.current_seconds
    return {key: latest for key, latest in subject.recent.latest().items() if latest.monotonic >= oldest}


def _first(subject: Subject, values: Values, device_uuid: str, name: str) -> float | None:
    for source in subject.sources:
        latest = values.get((device_uuid, source))
        if latest is not None:
            value = latest.gauges.get(name, latest.totals.get(name))
            if value is not None:
                return value
    return None


def _labels(subject: Subject, device: KnownDevice) -> list[str]:
    return [device.uuid, str(device.index), subject.node, device.gpu_model or ""]


def _bounded(counts: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Keep the number of series within bounds whatever fails."""
    listed: Iterable[tuple[tuple[str, str], float]] = sorted(counts.items())
    found: dict[tuple[str, str], float] = {}
    for place, (labels, count) in enumerate(listed):
        key = labels if place < MOST_REASONS else ("other", "other")
        found[key] = found.get(key, 0) + count
    return found
