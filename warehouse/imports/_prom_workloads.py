"""Workloads as series show them: which attempt a device's time belongs to, and the rows that say so.

A job that its scheduler has told of (accounting, or the collector of a Kubernetes cluster) keeps its attempts; here it
only learns which devices it held. What nobody told of becomes a job of its own, as long as it was seen. Its attempt
goes on while it is seen again within ``import.workload_gap_seconds`` (and under the same UID, for a pod).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from warehouse.contract.model import Allocation, Attempt, AttemptState, Job, Record
from warehouse.importer import ImportOptions
from warehouse.imports._device_owner import attempt_at
from warehouse.imports._prom_labels import Workload
from warehouse.settings import IMPORT_WORKLOAD_GAP_SECONDS

SEEN: Final = "seen-"
"""Begins what tells the attempts of this source from those of a scheduler, behind the job's key."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What kube-state-metrics says of a pod."""

    uid: str | None = None
    made_by: str | None = None


@dataclass(slots=True)
class Run:
    """One attempt as it was seen: ``is_ours`` says that no scheduler told of it."""

    workload: Workload
    attempt_key: str
    job_key: str
    is_ours: bool
    start_at: float
    end_at: float
    uid: str | None = None
    made_by: str | None = None
    bounds: tuple[float, float] | None = None
    first_on: dict[str, float] = field(default_factory=dict)
    last_on: dict[str, float] = field(default_factory=dict)

    def sees(self, device: str, at: float, until: float) -> None:
        """Take note that it held a device in a stretch of time."""
        self.start_at, self.end_at = min(self.start_at, at), max(self.end_at, until)
        self.first_on[device] = min(self.first_on.get(device, at), at)
        self.last_on[device] = max(self.last_on.get(device, until), until)


class Workloads:
    """The attempts that were seen so far, over all windows of one import."""

    def __init__(self, options: ImportOptions, cluster: str, source: str) -> None:
        """Start with nobody seen."""
        self._options = options
        self._cluster = cluster
        self._source = source
        self._gap_seconds = options.settings[IMPORT_WORKLOAD_GAP_SECONDS]
        self._runs: dict[tuple[str, str], list[Run]] = {}

    def run_of(self, workload: Workload, at: float, facts: Mapping[tuple[str, str], PodFacts]) -> Run:
        """Give the attempt of a workload that is seen on a device at an instant."""
        known = self._runs.setdefault((workload.kind, workload.id), [])
        told = facts.get((workload.namespace or "", workload.id.rpartition("/")[2]), PodFacts())
        uid = workload.pod_uid or told.uid
        for run in known:
            if self._fits(run, at, uid):
                run.uid, run.made_by = run.uid or uid, run.made_by or told.made_by
                return run
        found = self._from_store(workload, at, uid) or self._new(workload, at, uid)
        found.made_by = told.made_by
        known.append(found)
        return found

    def rows(self, run: Run, device: str, node: str, gpu_model: str | None, share_ratio: float) -> tuple[Record, ...]:
        """Give the rows that say what a workload is and that it held a device."""
        start, end = run.first_on[device], run.last_on[device]
        if run.bounds is not None:
            start, end = max(start, run.bounds[0]), min(end, run.bounds[1])
        held = Allocation(
            allocation_key=f"{run.attempt_key}:{device}:{int(start)}",
            attempt_key=run.attempt_key,
            gpu_count=1.0,
            start_at=start,
            end_at=max(start, end),
            source=self._source,
            certainty="seen",
            share_ratio=share_ratio,
            device_uuid=device,
            node=node,
            gpu_model=gpu_model,
        )
        if not run.is_ours:
            return (held,)
        workload = run.workload
        is_pod = workload.kind == "pod"
        job = Job(
            job_key=run.job_key,
            cluster=self._cluster,
            scheduler_job_id=workload.id,
            source=self._source,
            name=(run.made_by or workload.id.rpartition("/")[2]) if is_pod else None,
            user=workload.user,
            account=workload.account or workload.namespace,
            namespace=workload.namespace,
        )
        attempt = Attempt(
            attempt_key=run.attempt_key,
            job_key=run.job_key,
            state=AttemptState.UNKNOWN,
            raw_state=None,
            start_at=run.start_at,
            end_at=run.end_at,
            source=self._source,
        )
        return (job, attempt, held)

    def _fits(self, run: Run, at: float, uid: str | None) -> bool:
        if uid is not None and run.uid is not None:
            return uid == run.uid
        if run.bounds is not None:
            return run.bounds[0] <= at < run.bounds[1]
        return run.start_at - self._gap_seconds <= at <= run.end_at + self._gap_seconds

    def _from_store(self, workload: Workload, at: float, uid: str | None) -> Run | None:
        past = self._options.past_attempts(self._cluster, [workload.id])
        told = tuple(one for one in past if f":{SEEN}" not in one.attempt_key)
        same = next((one for one in told if uid is not None and one.attempt_key.endswith(f":{uid}")), None)
        attempt = same or attempt_at(told, at)
        if attempt is not None and attempt.start_at is not None:
            bounds = (attempt.start_at, at + 1e9 if attempt.end_at is None else attempt.end_at)
            return Run(workload, attempt.attempt_key, attempt.job_key, False, at, at, bounds=bounds)  # noqa: FBT003 - not ours
        for one in past:
            suffix = one.attempt_key.rpartition(f":{SEEN}")[2]
            if one.start_at is None or f":{SEEN}" not in one.attempt_key:
                continue
            run = Run(workload, one.attempt_key, one.job_key, True, one.start_at, one.end_at or one.start_at)  # noqa: FBT003 - ours
            run.uid = None if suffix.isdigit() else suffix
            if self._fits(run, at, uid):
                return run
        return None

    def _new(self, workload: Workload, at: float, uid: str | None) -> Run:
        job_key = f"{self._cluster}/{workload.id}#0"
        return Run(workload, f"{job_key}:{SEEN}{uid or int(at)}", job_key, True, at, at, uid=uid)  # noqa: FBT003 - ours
