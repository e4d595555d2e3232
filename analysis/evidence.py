"""What is known about one attempt, gathered in one place for families and remedies; and what is missing.

Evidence is a mean with its source and the share of the attempt that it covers. What is not known is absent, never 0:
:func:`require` turns absence into an answer that says which coverage was missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warehouse.contract.model import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from analysis.account import GpuSeconds
    from analysis.waves import Work
    from warehouse.contract.model import AttemptState


@dataclass(frozen=True, slots=True)
class IdleStretch:
    """A stretch in which a device was held and idle: ``kind`` is ``no_process`` or ``with_process``."""

    device_uuid: str
    start_at: float
    end_at: float
    kind: str
    gpu_share: float

    @property
    def gpu_seconds(self) -> float:
        """Give the GPU-seconds of the stretch."""
        return (self.end_at - self.start_at) * self.gpu_share


@dataclass(frozen=True, slots=True)
class Reading:
    """One rung of the ladder for one attempt: its mean, its source, and the share of the attempt that it covers."""

    value: float
    source: str
    coverage_ratio: float
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Happening:
    """An event on a device or node of an attempt while it held it, such as ``xid`` or ``device_lost``."""

    kind: str
    happened_at: float
    node: str | None
    device_uuid: str | None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class RankWork:
    """The computing of one rank by hour: seconds of kernels that are no communication, hours that all ranks know."""

    profile: str
    compute_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AttemptEvidence:
    """One attempt with its job's words, its account of GPU time in the window, and its readings.

    ``start_at``/``end_at`` are the attempt's own, not clipped to the window; ``gpu_count`` is the sum over its
    allocations of count x share. ``ladder`` is keyed by column name (``driver_util_ratio``, ``gpu_bound_ratio``, ...).
    ``host`` holds what the job used of its hosts and waited for there, ``board`` power and slowed clocks, each by a
    name that ends in its unit (``analysis.surroundings``). ``profiled_kernels`` counts the kernels of its profile,
    ``work`` is what its traced kernels did.
    """

    attempt_key: str
    job_key: str
    scheduler_job_id: str
    cluster: str
    state: AttemptState
    start_at: float
    end_at: float | None
    gpu_count: float
    node_count: int | None
    gpu_seconds: GpuSeconds
    name: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    command: str | None = None
    image: str | None = None
    work_dir: str | None = None
    array_job_id: str | None = None
    het_job_id: str | None = None
    interactive: bool | None = None
    gpu_model: str | None = None
    nodes: tuple[str, ...] = ()
    device_uuids: tuple[str, ...] = ()
    device_memory_bytes: float | None = None
    memory_peak_bytes: float | None = None
    time_limit_seconds: float | None = None
    ladder: dict[str, Reading] = field(default_factory=dict)
    idle_stretches: tuple[IdleStretch, ...] = ()
    submit_at: float | None = None
    cpu_count: float | None = None
    requested_cpu_count: float | None = None
    requested_memory_bytes: float | None = None
    comment: str | None = None
    host: Mapping[str, Reading] = field(default_factory=dict)
    board: Mapping[str, Reading] = field(default_factory=dict)
    events: tuple[Happening, ...] = ()
    ranks: tuple[RankWork, ...] = ()
    profiled_kernels: int | None = None
    work: Work | None = None

    def coverage_of(self, name: str) -> float:
        """Give the share of the attempt in which a kind of evidence is known (``KINDS``), 0 where it is not."""
        return _COVERAGE[name](self)


def _reading(readings: Mapping[str, Reading], names: Iterable[str]) -> float:
    return max((readings[name].coverage_ratio for name in names if name in readings), default=0.0)


_LADDER = ("gpu_bound_ratio", "engine_active_ratio", "driver_util_ratio")
_COVERAGE: dict[str, Callable[[AttemptEvidence], float]] = {
    "use": lambda one: _reading(one.ladder, _LADDER),
    "fill": lambda one: _reading(one.ladder, ("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")),
    "pauses": lambda one: 0.0 if one.gpu_seconds.gaps is None else (one.gpu_seconds.coverage_ratio or 0.0),
    "cpu": lambda one: _reading(one.host, ("cpu_count",)),
    "memory": lambda one: _reading(one.host, ("memory_resident_bytes",)),
    "disk": lambda one: _reading(one.host, ("disk_read_bytes_per_second", "io_stall_ratio")),
    "network": lambda one: _reading(one.host, ("network_received_bytes_per_second",)),
    "power": lambda one: _reading(one.board, ("power_watts",)),
    "kernels": lambda one: 1.0 if one.profiled_kernels else 0.0,
    "ranks": lambda one: 1.0 if len(one.ranks) > 1 else 0.0,
}

KINDS = {
    "use": "how busy the GPUs were: device samples, or the site's own means of use",
    "fill": "how well busy time fills the card: samples of SM, tensor or memory activity (GPM, DCGM)",
    "pauses": "how long each pause lasted: device samples at a cadence of a minute or less",
    "cpu": "CPU time of the job: the agent's host source on its nodes",
    "memory": "host memory of the job: the agent's host source on its nodes",
    "disk": "disk traffic and waits of the job: the agent's host source on its nodes",
    "network": "network traffic of the job: the agent's host source, where the job has a network namespace of its own",
    "power": "board power: NVML or DCGM samples",
    "kernels": "kernels and launch configurations: the tracer in the job, or an imported profile",
    "ranks": "kernel time of at least two ranks: the tracer in the job, or a profile of each rank",
}
"""Each kind of evidence, and what tells it."""


def coverage(attempts: Iterable[AttemptEvidence], kind: str) -> float:
    """Give the share of a subject's GPU time of which a kind of evidence is known; 0 for no time."""
    pairs = [(one.gpu_seconds.allocated, one.coverage_of(kind)) for one in attempts]
    whole = sum(weight for weight, _ in pairs)
    return sum(weight * known for weight, known in pairs) / whole if whole > 0 else 0.0


def require(attempts: Iterable[AttemptEvidence], kinds: Iterable[str], wanted_ratio: float) -> tuple[Missing, ...]:
    """Give the kinds of evidence that cover less than ``wanted_ratio`` of a subject's GPU time; none: it is enough."""
    members = list(attempts)
    found = (Missing(kind, coverage(members, kind), wanted_ratio) for kind in kinds)
    return tuple(one for one in found if one.coverage_ratio < wanted_ratio)


def evidence_coverage(attempts: Iterable[AttemptEvidence]) -> dict[str, float]:
    """Give for a family or job, by kind of evidence, the share of its GPU time of which it is known."""
    members = list(attempts)
    return {kind: coverage(members, kind) for kind in KINDS}
