"""What a pod holds, and what becomes of its containers meanwhile.

One allocation for each kind of resource that it asks for, one for each device of its claims, one event for each
container that ended and was started again: the pod goes on holding its cards (DESIGN, ruling 2), and what ran was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from zlib import crc32

from collector.jobs._kube_facts import Book, Queued, share_of_profile
from warehouse.contract.model import Allocation, Attempt, Event, Job, Record

Object = Mapping[str, Any]
SOURCE: Final = "kubernetes"
MIG_MARK: Final = "mig-"
"""How NVIDIA's device plugin names instances with the strategy ``mixed``: ``nvidia.com/mig-1g.5gb``."""

RESTARTED: Final = "container_restarted"


def asked_for(pod: Object, resources: Sequence[str]) -> dict[str, float]:
    """Give how many of each GPU resource a pod asks for: all its containers, or one of those that run before."""
    spec = pod.get("spec") or {}
    together: dict[str, float] = {}
    for one in spec.get("containers") or ():
        for name, count in limits(one, resources):
            together[name] = together.get(name, 0.0) + count
    for one in spec.get("initContainers") or ():
        for name, count in limits(one, resources):
            together[name] = max(together.get(name, 0.0), count)
    return {name: count for name, count in together.items() if count}


def limits(container: Object, resources: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Give a container's limits of GPU resources; extended resources are whole numbers, with k at most."""
    for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
        if str(name).startswith(tuple(resources)):
            text = str(amount)
            try:
                yield str(name), float(text[:-1]) * 1000 if text.endswith("k") else float(text)
            except ValueError:
                continue


def claims_of(pod: Object) -> tuple[str, ...]:
    """Give the claims that a pod uses, as ``namespace/name``."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    made = {one.get("name"): one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    names = (one.get("resourceClaimName") or made.get(one.get("name")) for one in spec.get("resourceClaims") or ())
    namespace = (pod.get("metadata") or {}).get("namespace", "")
    return tuple(f"{namespace}/{name}" for name in names if name)


def allocations(attempt: Attempt, asked: Mapping[str, float]) -> Iterator[Allocation]:
    """Give what a pod that was scheduled holds, by resource. An instance's model is its profile."""
    if attempt.start_at is None:
        return
    for resource, count in asked.items():
        kind = resource.rpartition("/")[2]
        profile = kind.removeprefix(MIG_MARK) if kind.startswith(MIG_MARK) else None
        yield Allocation(
            allocation_key=f"{attempt.attempt_key}:requested" + (f":{profile}" if profile else ""),
            attempt_key=attempt.attempt_key,
            gpu_count=count,
            start_at=attempt.start_at,
            end_at=attempt.end_at,
            source=SOURCE,
            certainty="requested",
            share_ratio=share_of_profile(profile),
            node=attempt.node_list,
            gpu_model=profile,
        )


def restarts(pod: Object, attempt: Attempt, cluster: str) -> Iterator[Event]:
    """Give an event for each container that ended and was started again, as far as the pod still tells of it."""
    status = pod.get("status") or {}
    for one in status.get("containerStatuses") or ():
        last = (one.get("lastState") or {}).get("terminated") or {}
        ended = instant(last.get("finishedAt"))
        if ended is None:
            continue
        name, began = str(one.get("name", "")), instant(last.get("startedAt"))
        words = [f"{name}: {last.get('reason') or 'ended'}, exit code {last.get('exitCode')}"]
        words += [] if began is None else [f"after {max(0.0, ended - began):.0f} s"]
        # Kubernetes tells whole seconds: containers that end within one are told apart by a part of it.
        part = crc32(f"{attempt.attempt_key}/{name}".encode()) % 1000 / 1000
        yield Event(
            cluster,
            str(attempt.node_list or ""),
            RESTARTED,
            ended + part,
            attempt_key=attempt.attempt_key,
            detail=f"{' '.join(words)}; restart {one.get('restartCount', 0)}",
        )


def completed(records: Sequence[Record], book: Book, group: str | None, claims: Sequence[str]) -> tuple[Record, ...]:
    """Give a pod's records with what stands beside it: its queue, its claims' cards, its node's model."""
    job = next(one for one in records if isinstance(one, Job))
    attempt = next(one for one in records if isinstance(one, Attempt))
    queued = book.queued(job.scheduler_job_id, group)
    node = book.node(attempt.node_list)
    found: list[Record] = []
    for one in records:
        if queued is not None and isinstance(one, Job):
            found.append(_queued(one, queued))
        elif queued is not None and isinstance(one, Attempt):
            waits = queued.since_at is not None and (one.submit_at is None or queued.since_at <= one.submit_at)
            found.append(replace(one, submit_at=queued.since_at) if waits else one)
        elif node is not None and isinstance(one, Allocation) and not one.gpu_model:
            found.append(replace(one, gpu_model=node.gpu_model, share_ratio=round(node.share_ratio, 6)))
        else:
            found.append(one)
    return (*found, *_claimed(attempt, book, claims))


def _queued(job: Job, queued: Queued) -> Job:
    return replace(
        job,
        partition=job.partition or queued.queue,
        qos=job.qos or queued.priority,
        requested_gpu_count=queued.gpu_count or job.requested_gpu_count,
    )


def _claimed(attempt: Attempt, book: Book, claims: Sequence[str]) -> Iterator[Allocation]:
    if attempt.start_at is None:
        return
    node = book.node(attempt.node_list)
    for claim in claims:
        for one in book.claim(claim) or ():
            uuid = book.uuid(one)
            yield Allocation(
                allocation_key=f"{attempt.attempt_key}:{claim}/{one.pool}/{one.device}",
                attempt_key=attempt.attempt_key,
                gpu_count=1.0,
                start_at=attempt.start_at,
                end_at=attempt.end_at,
                source=SOURCE,
                certainty="claim" if uuid else "claim unresolved",
                device_uuid=uuid,
                node=attempt.node_list,
                gpu_model=None if node is None else node.gpu_model,
            )


def instant(text: object) -> float | None:
    """Read a time of the API; None where it is none."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
