"""What pods become: the job that owns one, an attempt per pod, and how many GPUs it asked for.

A pod is one attempt, by its UID, from the moment it was scheduled to its terminal phase: it holds its cards while its
containers are started again (DESIGN, ruling 2). Its job is the highest owner that stands for one piece of work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from collector.jobs._kube_facts import Queued
from collector.jobs._kube_held import SOURCE, allocations, asked_for, claims_of, instant, limits, restarts
from warehouse.contract.model import Attempt, AttemptState, Job, Record

Object = Mapping[str, Any]

ENDS_BELOW: Final = frozenset({"CronJob", "Node", "ScheduledWorkflow", "CronWorkflow", "ScheduledSparkApplication"})
"""Owners that make one job after the other: each of these is a job of its own. (A static pod's owner is its node.)"""

MOST_OWNERS: Final = 8
"""Owners of owners: JobSet, Job, Pod are three; more than this is a circle."""

LONGEST_COMMAND: Final = 1000
QUEUES: Final = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "scheduling.x-k8s.io/queue", "runai/queue")
"""Labels and annotations that name the queue: Kueue, Volcano, YuniKorn's and Run:ai's."""

GROUPS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations by which a pod names its Volcano PodGroup."""

PHASES: Final = {
    "Pending": AttemptState.PENDING,
    "Running": AttemptState.RUNNING,
    "Succeeded": AttemptState.COMPLETED,
    "Failed": AttemptState.FAILED,
}
REASONS: Final = {
    "DeadlineExceeded": AttemptState.TIMEOUT,
    "Evicted": AttemptState.PREEMPTED,
    "NodeLost": AttemptState.NODE_FAIL,
    "NodeShutdown": AttemptState.NODE_FAIL,
    "OOMKilled": AttemptState.OUT_OF_MEMORY,
    "Preempting": AttemptState.PREEMPTED,
    "Shutdown": AttemptState.NODE_FAIL,
    "Terminated": AttemptState.NODE_FAIL,
    "UnexpectedAdmissionError": AttemptState.FAILED,
}
"""Why a pod failed, where its status or that of a container says more than its phase (Pod lifecycle, node shutdown)."""

DELETED: Final = "Deleted"


@dataclass(frozen=True, slots=True)
class Owner:
    """What a pod belongs to."""

    uid: str
    kind: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    made_at: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How a site writes things: prefixes of resources that are GPUs, labels that name user and team, best first."""

    cluster: str
    resources: tuple[str, ...]
    user_labels: tuple[str, ...]
    account_labels: tuple[str, ...]
    queue_labels: tuple[str, ...] = QUEUES
    series_kinds: tuple[str, ...] = ()
    """Kinds of owners, beside ``ENDS_BELOW``, that make one job after the other."""


Look = Callable[[str, str, str, str], Object | None]
"""Gives an object by API version, kind, namespace and name; None where it is not to be had."""


def owner_of(pod: Object, look: Look, series_kinds: Sequence[str] = ()) -> Owner:
    """Walk up the owners to the one that stands for the job; where one is not to be seen, the last that is known."""
    found = _self(pod, "Pod")
    here: Object | None = pod
    for _ in range(MOST_OWNERS):
        above = next((one for one in _metadata(here).get("ownerReferences") or () if one.get("controller")), None)
        if above is None or above.get("kind") in ENDS_BELOW or above.get("kind") in series_kinds:
            break
        kind, name = str(above.get("kind")), str(above.get("name"))
        here = look(str(above.get("apiVersion")), kind, str(_metadata(pod).get("namespace", "")), name)
        if here is None or _metadata(here).get("uid") != above.get("uid"):
            # Not to be seen, or made anew under the same name: the reference itself names the owner.
            return Owner(str(above.get("uid")), kind, name, found.labels, found.annotations, found.made_at)
        found = _self(here, kind)
    return found


def records_of(pod: Object, owner: Owner, reading: Reading, *, deleted_at: float | None = None) -> list[Record]:
    """Give what is told of a pod; nothing of one without GPUs. What its claims got is told by others."""
    asked = asked_for(pod, reading.resources)
    told, spec, status = _metadata(pod), pod.get("spec") or {}, pod.get("status") or {}
    if not asked and not claims_of(pod):
        return []
    job_key = f"{reading.cluster}/{owner.uid}#0"
    start_at, end_at = _scheduled_at(status), _ended_at(status)
    state, raw = _state(status)
    if deleted_at is not None and end_at is None:
        end_at, state, raw = deleted_at, AttemptState.CANCELLED, DELETED
    attempt = Attempt(
        attempt_key=f"{job_key}:{told.get('uid')}",
        job_key=job_key,
        state=state,
        raw_state=raw,
        start_at=start_at,
        end_at=None if start_at is None or end_at is None else max(start_at, end_at),
        source=SOURCE,
        submit_at=instant(told.get("creationTimestamp")),
        exit_code=_exit_code(status),
        node_count=1,
        node_list=spec.get("nodeName"),
        other_id=f"{told.get('namespace', '')}/{told.get('name', '')}",
    )
    job = _job(pod, owner, reading, job_key, sum(asked.values()))
    return [job, attempt, *allocations(attempt, asked), *restarts(pod, attempt, reading.cluster)]


def group_of(pod: Object) -> str | None:
    """Give the Volcano PodGroup of a pod, as ``namespace/name``."""
    told = _metadata(pod)
    name = _first(_texts(told.get("annotations")), GROUPS)
    return None if name is None else f"{told.get('namespace', '')}/{name}"


def waiting_job(owner_uid: str, queued: Queued, cluster: str) -> Job | None:
    """Give the job of work that waits in a queue and has no pods yet; None where it asks for no GPUs."""
    if not queued.gpu_count or not queued.owner_name:
        return None
    return Job(
        job_key=f"{cluster}/{owner_uid}#0",
        cluster=cluster,
        scheduler_job_id=owner_uid,
        source=SOURCE,
        name=queued.owner_name,
        account=queued.namespace or None,
        namespace=queued.namespace or None,
        partition=queued.queue,
        qos=queued.priority,
        submit_at=queued.since_at,
        requested_gpu_count=queued.gpu_count,
    )


def _job(pod: Object, owner: Owner, reading: Reading, job_key: str, gpus: float) -> Job:
    told, spec = _metadata(pod), pod.get("spec") or {}
    containers = spec.get("containers") or [{}]
    main = next((one for one in containers if any(limits(one, reading.resources))), containers[0])
    words = {**_texts(told.get("annotations")), **_texts(told.get("labels")), **owner.annotations, **owner.labels}
    command = " ".join(str(word) for word in [*(main.get("command") or ()), *(main.get("args") or ())])
    return Job(
        job_key=job_key,
        cluster=reading.cluster,
        scheduler_job_id=owner.uid,
        source=SOURCE,
        name=owner.name,
        user=_first(words, reading.user_labels),
        account=_first(words, reading.account_labels) or told.get("namespace"),
        namespace=told.get("namespace"),
        partition=_first(words, reading.queue_labels),
        qos=spec.get("priorityClassName"),
        command=command[:LONGEST_COMMAND] or None,
        image=main.get("image"),
        submit_at=instant(told.get("creationTimestamp")) if owner.made_at is None else owner.made_at,
        # What a job of several pods asks for in all is not said by one of them.
        requested_gpu_count=gpus if gpus and owner.kind == "Pod" else None,
    )


def _state(status: Object) -> tuple[AttemptState, str]:
    phase = str(status.get("phase") or "Unknown")
    state = PHASES.get(phase, AttemptState.UNKNOWN)
    if phase != "Failed":
        return state, phase
    reasons = [status.get("reason"), *(one.get("reason") for one in _terminated(status))]
    reasons += [one.get("reason") for one in status.get("conditions") or () if one.get("type") == "DisruptionTarget"]
    known = next((str(reason) for reason in reasons if reason in REASONS), None)
    return (state, phase) if known is None else (REASONS[known], known)


def _scheduled_at(status: Object) -> float | None:
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "True":
            return instant(one.get("lastTransitionTime"))
    return instant(status.get("startTime"))


def _ended_at(status: Object) -> float | None:
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    ends = [instant(one.get("finishedAt")) for one in _terminated(status)]
    # A pod that was evicted before it began has no container that ended; its last condition tells when.
    ends = [end for end in ends if end is not None] or [
        at for one in status.get("conditions") or () if (at := instant(one.get("lastTransitionTime"))) is not None
    ]
    return max((end for end in ends if end is not None), default=None)


def _terminated(status: Object) -> list[Object]:
    found = [(one.get("state") or {}).get("terminated") for one in status.get("containerStatuses") or ()]
    return [one for one in found if one]


def _exit_code(status: Object) -> int | None:
    codes = [one.get("exitCode") for one in _terminated(status)]
    known = [code for code in codes if isinstance(code, int)]
    return next((code for code in known if code), known[0] if known else None)


def _self(found: Object, kind: str) -> Owner:
    told = _metadata(found)
    labels, annotations = _texts(told.get("labels")), _texts(told.get("annotations"))
    made_at = instant(told.get("creationTimestamp"))
    return Owner(str(told.get("uid", "")), kind, str(told.get("name", "")), labels, annotations, made_at)


def _metadata(found: Object | None) -> Object:
    told = (found or {}).get("metadata")
    return told if isinstance(told, Mapping) else {}


def _texts(words: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in words.items()} if isinstance(words, Mapping) else {}


def _first(words: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((words[name] for name in names if words.get(name)), None)
