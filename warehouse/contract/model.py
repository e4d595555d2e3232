"""The records that travel between rooms. Each is one row of the store's table of the same name.

Instants (``*_at``) are seconds since the epoch, UTC; ``None`` means not known (for an end: not yet). Keys are text:

* ``job_key``: ``cluster/scheduler-id#generation``; a new generation when an id comes back without a requeue;
* ``attempt_key``: ``job_key`` + ``:`` + what tells one start of the job from another (a database index or a start);
* ``allocation_key``: ``attempt_key`` + ``:`` + device, node or a running number.

Absent is ``None``, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar


class AttemptState(StrEnum):
    """How an attempt stands or ended, over all schedulers. The scheduler's own word stays in ``raw_state``."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"
    UNKNOWN = "unknown"


FAILED_STATES = frozenset(
    {AttemptState.FAILED, AttemptState.TIMEOUT, AttemptState.OUT_OF_MEMORY, AttemptState.NODE_FAIL}
)
"""States whose GPU time counts as ``failed``: the attempt did not reach its own end."""

LOST_STATES = frozenset({AttemptState.REQUEUED, AttemptState.PREEMPTED, AttemptState.NODE_FAIL})
"""States after which a scheduler may start the same job again."""


@dataclass(frozen=True, slots=True)
class Job:
    """One submission to a scheduler."""

    TABLE: ClassVar[str] = "job"
    KEY: ClassVar[tuple[str, ...]] = ("job_key",)

    job_key: str
    cluster: str
    scheduler_job_id: str
    source: str
    array_job_id: str | None = None
    array_task_index: int | None = None
    het_job_id: str | None = None
    het_offset: int | None = None
    name: str | None = None
    user: str | None = None
    account: str | None = None
    namespace: str | None = None
    partition: str | None = None
    qos: str | None = None
    command: str | None = None
    work_dir: str | None = None
    image: str | None = None
    comment: str | None = None
    submit_at: float | None = None
    requested_gpu_count: float | None = None
    requested_cpu_count: int | None = None
    requested_memory_bytes: int | None = None
    requested_node_count: int | None = None
    time_limit_seconds: float | None = None
    interactive: bool | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a job. A requeue makes a new one. ``end_at`` is None while it runs.

    ``other_id`` is a second name that a node may know it by: Slurm's SLUID, or a pod's ``namespace/name``.
    """

    TABLE: ClassVar[str] = "attempt"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_key",)

    attempt_key: str
    job_key: str
    state: AttemptState
    raw_state: str | None
    start_at: float | None
    end_at: float | None
    source: str
    submit_at: float | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    node_count: int | None = None
    node_list: str | None = None
    cpu_count: int | None = None
    other_id: str | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices held by an attempt over an interval, busy or not.

    ``device_uuid`` is None where the source knows only a count (accounting); then ``gpu_count`` may exceed 1.
    ``share_ratio`` is the share of each device that is held (MIG slices, time slicing), 1 for whole cards. The
    GPU-seconds of an allocation are ``gpu_count * share_ratio * (end_at - start_at)``.
    """

    TABLE: ClassVar[str] = "allocation"
    KEY: ClassVar[tuple[str, ...]] = ("allocation_key",)

    allocation_key: str
    attempt_key: str
    gpu_count: float
    start_at: float
    end_at: float | None
    source: str
    certainty: str = "scheduler"
    share_ratio: float = 1.0
    device_uuid: str | None = None
    node: str | None = None
    gpu_model: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an attempt. Steps hold no GPU time of their own; it is their attempt's."""

    TABLE: ClassVar[str] = "step"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_key", "step_id")

    attempt_key: str
    step_id: str
    name: str | None = None
    raw_state: str | None = None
    start_at: float | None = None
    end_at: float | None = None
    memory_peak_bytes: int | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    """What one source says about a whole attempt: means over its life, kept when samples are gone.

    ``coverage_ratio`` is the share of the attempt that the means cover; ``coverage_assumed`` says that the source
    does not tell and 1 was taken. Ratios are per device, averaged over the attempt's devices.
    """

    TABLE: ClassVar[str] = "attempt_summary"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_key", "source")

    attempt_key: str
    source: str
    coverage_ratio: float
    coverage_assumed: bool
    driver_util_ratio: float | None = None
    engine_active_ratio: float | None = None
    gpu_bound_ratio: float | None = None
    sm_active_ratio: float | None = None
    gpu_memory_used_bytes: float | None = None
    gpu_memory_peak_bytes: float | None = None
    power_watts: float | None = None
    energy_joules: float | None = None
    cpu_load_count: float | None = None
    host_memory_used_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node over an interval of unchanged inventory. ``until_at`` None: still so."""

    TABLE: ClassVar[str] = "node"
    KEY: ClassVar[tuple[str, ...]] = ("cluster", "node", "since_at")

    cluster: str
    node: str
    since_at: float
    until_at: float | None = None
    gpu_count: int | None = None
    cpu_count: int | None = None
    memory_bytes: int | None = None
    driver_version: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU on a node over an interval in one state, ``up`` or ``lost``. Keyed by UUID, never by index.

    A MIG instance is a device too: a part of the card ``parent_uuid``, of which it has ``share_ratio`` of the compute
    slices. Cards alone make up capacity. ``minor_number`` is that of ``/dev/nvidia<minor>``. ``memory_kind`` is
    ``dedicated`` or ``unified``: one that shares the host's memory has no ``memory_bytes`` of its own.
    ``energy_method`` says what its energy is read from: the driver's ``counter``, or ``power`` over the time elapsed.
    """

    TABLE: ClassVar[str] = "device"
    KEY: ClassVar[tuple[str, ...]] = ("device_uuid", "since_at")

    device_uuid: str
    cluster: str
    node: str
    since_at: float
    until_at: float | None = None
    state: str = "up"
    device_index: int | None = None
    gpu_model: str | None = None
    memory_bytes: int | None = None
    pci_bus_id: str | None = None
    minor_number: int | None = None
    parent_uuid: str | None = None
    mig_profile: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    share_ratio: float | None = None
    memory_kind: str | None = None
    energy_method: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at an instant: a lost device, a driver change, a gap of an agent."""

    TABLE: ClassVar[str] = "event"
    KEY: ClassVar[tuple[str, ...]] = ("cluster", "node", "kind", "happened_at", "device_uuid")

    cluster: str
    node: str
    kind: str
    happened_at: float
    device_uuid: str | None = None
    attempt_key: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process on one device over one cadence.

    Busy times, counts and lengths speak for the ``covered_seconds`` of the cadence; in ``source_lost_seconds`` of it
    nothing is known. ``late_seconds`` bounds what the busy times may lack. ``kernel_seconds`` is the sum of single
    kernel lengths. ``steps_total`` counts the process's own steps since its start, over all its devices, and
    ``process_key`` tells processes apart for ever. ``tracing_seconds`` is the time that tracing itself added while the
    device was idle, with its bounds; None where its cost was never calibrated. The GPU-bound share without it is
    ``gpu_bound_seconds / (covered_seconds - tracing_seconds)``.

    One row per source: the tracer (``kernels``) tells times and counts, the driver (``nvml``) memory and the process's
    share of the driver's sample slices.
    """

    TABLE: ClassVar[str] = "process_sample"
    KEY: ClassVar[tuple[str, ...]] = ()

    cluster: str
    node: str
    device_uuid: str
    pid: int
    sampled_at: float
    cadence_seconds: float
    source: str
    attempt_key: str | None = None
    gpu_bound_seconds: float | None = None
    copy_seconds: float | None = None
    gpu_busy_seconds: float | None = None
    launch_count: int | None = None
    memory_used_bytes: float | None = None
    cpu_seconds: float | None = None
    process_key: str | None = None
    covered_seconds: float | None = None
    source_lost_seconds: float | None = None
    late_seconds: float | None = None
    kernel_count: int | None = None
    kernel_seconds: float | None = None
    gap_count: int | None = None
    steps_total: int | None = None
    tracing_low_seconds: float | None = None
    tracing_seconds: float | None = None
    tracing_high_seconds: float | None = None
    driver_util_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class HostSample:
    """What a node, or one job's part of it, used of the host over one cadence.

    ``scope`` is ``node``, ``group`` (a job's control group, with all its processes) or ``tree`` (a process and its
    descendants); ``subject`` names the group's path or the process, None for the node. Amounts speak for the cadence,
    bytes of memory, counts and limits for its end. ``memory_resident_bytes`` is memory that cannot be dropped (of a
    tree: its processes' private pages), ``page_cache_bytes`` file content that can. ``*_stall_seconds`` are the
    kernel's pressure totals: time in which some task (``io_full_stall_seconds``: every task) waited for it.
    ``block_delay_seconds`` sums the waits for block devices of the processes that are looked at: of a group those on
    devices, of a tree all; ``blocked_count`` are those in uninterruptible sleep. Traffic of network file systems is no
    disk traffic. Network bytes are known where a network namespace belongs to the subject alone.
    """

    TABLE: ClassVar[str] = "host_sample"
    KEY: ClassVar[tuple[str, ...]] = ()

    cluster: str
    node: str
    scope: str
    sampled_at: float
    cadence_seconds: float
    source: str
    subject: str | None = None
    attempt_key: str | None = None
    cpu_seconds: float | None = None
    cpu_throttled_seconds: float | None = None
    cpu_iowait_seconds: float | None = None
    cpu_limit_count: float | None = None
    load_count: float | None = None
    memory_resident_bytes: float | None = None
    page_cache_bytes: float | None = None
    memory_available_bytes: float | None = None
    memory_limit_bytes: float | None = None
    disk_read_bytes: float | None = None
    disk_written_bytes: float | None = None
    network_received_bytes: float | None = None
    network_transmitted_bytes: float | None = None
    major_fault_count: int | None = None
    cpu_stall_seconds: float | None = None
    memory_stall_seconds: float | None = None
    io_stall_seconds: float | None = None
    io_full_stall_seconds: float | None = None
    block_delay_seconds: float | None = None
    blocked_count: int | None = None


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One kernel in one launch configuration within one hour, as one profile of an attempt saw it.

    ``profile`` names the profile, one rank's: several of one attempt stand side by side. ``grid`` and ``block`` count
    blocks and threads, such as ``24x1x1``. ``hour_at`` is the begin of the hour in which the launches began to run.
    """

    TABLE: ClassVar[str] = "kernel_profile"
    KEY: ClassVar[tuple[str, ...]] = (
        "attempt_key",
        "profile",
        "hour_at",
        "kernel_name",
        "grid",
        "block",
        "registers_per_thread",
        "shared_memory_bytes",
    )

    attempt_key: str
    profile: str
    source: str
    hour_at: float
    kernel_name: str
    launch_count: int
    total_seconds: float
    longest_seconds: float
    grid: str | None = None
    block: str | None = None
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LengthProfile:
    """How many kernels (``kind`` ``kernel``) or gaps between work (``gap``) of a length ended within one hour.

    Lengths lie in ``[shortest_seconds, longest_seconds)``; None: without an upper bound. ``profile`` as in
    :class:`KernelProfile`.
    """

    TABLE: ClassVar[str] = "length_profile"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_key", "profile", "hour_at", "device_uuid", "kind", "shortest_seconds")

    attempt_key: str
    profile: str
    source: str
    hour_at: float
    device_uuid: str
    kind: str
    shortest_seconds: float
    longest_seconds: float | None
    length_count: int


Record = Job | Attempt | Allocation | Step | AttemptSummary | KernelProfile | LengthProfile | Node | Device | Event
"""Records with a key: writing one again replaces what was known about it."""

RECORDS: dict[str, type[Record]] = {
    kind.TABLE: kind
    for kind in (
        *(Job, Attempt, Allocation, Step, AttemptSummary),
        *(KernelProfile, LengthProfile, Node, Device, Event),
    )
}

Sample = ProcessSample | HostSample
"""Rows without a key: each is added once."""

SAMPLES: dict[str, type[Sample]] = {kind.TABLE: kind for kind in (ProcessSample, HostSample)}

SAMPLE_COLUMNS: tuple[str, ...] = (
    "cluster",
    "node",
    "device_uuid",
    "sampled_at",
    "cadence_seconds",
    "source",
    "attempt_key",
    "share_ratio",
    "attribution",
)
"""Columns of ``device_sample`` before the metrics: a sample covers ``[sampled_at, sampled_at + cadence_seconds)``,
comes from one source, and carries its owner (None: nobody known) with the way the owner was found."""


def columns(kind: type[Record | Sample]) -> tuple[str, ...]:
    """Give the column names of a record's table, in order."""
    return tuple(item.name for item in fields(kind))


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open stretch of time that a document speaks about. None: from the first, to the last thing known."""

    since_at: float | None = None
    until_at: float | None = None


@dataclass(frozen=True, slots=True)
class Saving:
    """An estimate in GPU-seconds: the 10th, 50th and 90th percentile of what the same work would have saved.

    ``likely`` is None when the evidence gives only a bound.
    """

    low: float
    likely: float | None
    high: float


@dataclass(frozen=True, slots=True)
class Subject:
    """What an advice is about: ``kind`` is ``job``, ``family`` or ``node``; ``id`` its key."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One advice with its evidence. ``confidence`` is ``measured``, ``calibrated``, ``modelled`` or ``bound``."""

    recommendation_id: str
    subject: Subject
    remedy: str
    title: str
    saving_gpu_seconds: Saving
    confidence: str
    how: str
    rung: str
    evidence: tuple[str, ...]
    action: str
    risks: tuple[str, ...]
    excludes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """A kind of evidence that covers too little: the share of the GPU time that it covers, and what would be enough."""

    evidence: str
    coverage_ratio: float
    wanted_ratio: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a remedy says nothing on a subject, and what it would need.

    With ``missing`` the data are insufficient, and more of them would change the answer; without, the remedy does not
    apply, whatever is measured.
    """

    subject: Subject
    remedy: str
    reason: str
    needs: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
