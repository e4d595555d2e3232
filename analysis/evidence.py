"""What is known about one attempt, gathered in one place for families and remedies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.account import GpuSeconds
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
class AttemptEvidence:
    """One attempt with its job's words, its account of GPU time in the window, and its readings.

    ``start_at``/``end_at`` are the attempt's own, not clipped to the window; ``gpu_count`` is the sum over its
    allocations of count x share. ``ladder`` is keyed by column name (``driver_util_ratio``, ``gpu_bound_ratio``, ...).
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
