"""Pods of a cluster: what they become, and how they are followed over a real list and watch."""

from __future__ import annotations

from typing import Any

import pytest

from collector.jobs._kube_facts import share_of_profile
from collector.jobs._kube_held import asked_for
from collector.jobs._kube_pods import owner_of, records_of
from tests.collector.jobs.kube_words import READING, T0, instant, owned, pod, reference
from warehouse.contract.model import Allocation, Attempt, AttemptState, Event, Job


def nothing(_api_version: str, _kind: str, _namespace: str, _name: str) -> None:
    return None


def records(one: Any, **words: Any) -> tuple[Job, Attempt, Allocation]:
    job, attempt, held = records_of(one, owner_of(one, nothing), READING, **words)
    assert isinstance(job, Job)
    assert isinstance(attempt, Attempt)
    assert isinstance(held, Allocation)
    return job, attempt, held


def test_a_pod_is_an_attempt_from_its_scheduling_to_its_terminal_phase() -> None:
    job, attempt, held = records(pod(gpus=2, phase="Succeeded", end=100.0))
    assert (attempt.attempt_key, attempt.other_id) == ("c/uid-train-0#0:uid-train-0", "ml/train-0")
    assert (attempt.state, attempt.start_at, attempt.end_at) == (AttemptState.COMPLETED, T0 + 10, T0 + 100)
    assert (held.gpu_count, held.start_at, held.end_at, held.node) == (2.0, T0 + 10, T0 + 100, "n1")
    assert (job.name, job.namespace, job.account, job.image, job.command) == (
        *("train-0", "ml", "ml", "img:1"),
        "python train.py",
    )


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("Error", AttemptState.FAILED),
        ("OOMKilled", AttemptState.OUT_OF_MEMORY),
        ("DeadlineExceeded", AttemptState.TIMEOUT),
        ("Evicted", AttemptState.PREEMPTED),
        ("NodeShutdown", AttemptState.NODE_FAIL),
    ],
)
def test_why_a_pod_failed_is_its_state(reason: str, state: AttemptState) -> None:
    _, attempt, _ = records(pod(phase="Failed", end=50.0, exit_code=137, reason=reason))
    assert (attempt.state, attempt.exit_code, attempt.end_at) == (state, 137, T0 + 50)


def restarted(name: str = "main", ended: float = 332.0, **words: Any) -> Any:
    """Make a running pod whose container ran from T0 + 20 s and was started again for the third time."""
    last = {"exitCode": 137, "reason": "OOMKilled", "startedAt": instant(20), "finishedAt": instant(ended)}
    status = {"name": name, "restartCount": 3, "state": {"running": {}}, "lastState": {"terminated": last}}
    return pod(containerStatuses=[status, {"name": "beside", "restartCount": 0, "state": {"running": {}}}], **words)


def test_a_container_that_is_started_again_is_an_event_and_the_pod_goes_on_holding_its_card() -> None:
    job, attempt, held, event = records_of(restarted(), owner_of(restarted(), nothing), READING)
    assert isinstance(job, Job)
    assert isinstance(attempt, Attempt)
    assert isinstance(held, Allocation)
    assert isinstance(event, Event)
    assert (attempt.state, attempt.end_at, held.end_at) == (AttemptState.RUNNING, None, None)
    assert (event.kind, event.node, event.attempt_key) == ("container_restarted", "n1", attempt.attempt_key)
    assert event.detail == "main: OOMKilled, exit code 137 after 312 s; restart 3"
    assert T0 + 332 <= event.happened_at < T0 + 333


def test_containers_that_end_within_one_second_on_a_node_are_two_events() -> None:
    events = [
        one
        for name in ("a", "b")
        for one in records_of(restarted(name=name), owner_of(restarted(), nothing), READING)
        if isinstance(one, Event)
    ]
    assert len({(one.node, one.kind, one.happened_at) for one in events}) == 2


def test_slices_of_a_card_are_counted_by_profile_with_their_share() -> None:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/mig-3g.20gb": "2", "cpu": "8"}
    own = pod(gpus=0)
    own["spec"]["containers"][0]["resources"]["limits"] = limits
    held = [one for one in records_of(own, owner_of(own, nothing), READING) if isinstance(one, Allocation)]
    assert {(one.gpu_model, one.gpu_count, round(one.share_ratio, 6)) for one in held} == {
        (None, 1.0, 1.0),
        ("3g.20gb", 2.0, round(3 / 7, 6)),
    }
    assert len({one.allocation_key for one in held}) == 2


@pytest.mark.parametrize(
    ("profile", "share"),
    [("1g.5gb", 1 / 7), ("7g.80gb", 1.0), ("1g.6gb", 1 / 4), ("1c.3g.40gb", 1 / 7), ("1g.10gb+me", 1 / 7), (None, 1.0)],
)
def test_the_share_of_an_instance_follows_from_its_profile(profile: str | None, share: float) -> None:
    assert share_of_profile(profile) == pytest.approx(share)


def test_a_site_can_name_its_own_kinds_that_make_one_job_after_the_other() -> None:
    own = pod(metadata={"ownerReferences": [reference("Run", "nightly-7", "site.example/v1")]})
    above = owned("Run", "nightly-7", reference("Schedule", "nightly", "site.example/v1"))

    def look(_version: str, _kind: str, _namespace: str, one: str) -> Any:
        return above if one == "nightly-7" else owned("Schedule", "nightly")

    assert owner_of(own, look).name == "nightly"
    assert owner_of(own, look, ("Schedule",)).name == "nightly-7"


def test_a_pod_that_waits_holds_nothing_yet() -> None:
    found = records_of(pod(phase="Pending", conditions=[]), owner_of(pod(), nothing), READING)
    assert [type(one) for one in found] == [Job, Attempt]
    assert isinstance(found[1], Attempt)
    assert (found[1].state, found[1].start_at) == (AttemptState.PENDING, None)


def test_a_running_pod_that_is_deleted_was_cancelled_and_one_that_had_ended_was_not() -> None:
    _, attempt, held = records(pod(), deleted_at=T0 + 70)
    assert (attempt.state, attempt.end_at, held.end_at) == (AttemptState.CANCELLED, T0 + 70, T0 + 70)
    _, attempt, _ = records(pod(phase="Succeeded", end=60.0), deleted_at=T0 + 70)
    assert (attempt.state, attempt.end_at) == (AttemptState.COMPLETED, T0 + 60)


def test_a_pod_without_gpus_is_not_told() -> None:
    assert records_of(pod(gpus=0), owner_of(pod(), nothing), READING) == []


def test_gpus_are_those_of_all_containers_or_of_one_that_runs_before() -> None:
    def limits(count: object) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": count, "cpu": "4"}}}

    spec = {"containers": [limits("1"), limits(2), {}], "initContainers": [limits("4"), limits("2")]}
    assert asked_for({"spec": spec}, ("nvidia.com/",)) == {"nvidia.com/gpu": 4.0}
    bad = {"spec": {"containers": [limits("nonsense"), limits("1")]}}
    assert asked_for(bad, ("nvidia.com/",)) == {"nvidia.com/gpu": 1.0}


@pytest.mark.parametrize(
    ("chain", "name"),
    [
        ([("ReplicaSet", "serve-7f", "apps/v1"), ("Deployment", "serve", "apps/v1")], "serve"),
        ([("Job", "sweep-3", "batch/v1"), ("JobSet", "sweep", "jobset.x-k8s.io/v1alpha2")], "sweep"),
        ([("Job", "nightly-29", "batch/v1"), ("CronJob", "nightly", "batch/v1")], "nightly-29"),
        ([("PyTorchJob", "bert", "kubeflow.org/v1")], "bert"),
        ([("MPIJob", "allreduce", "kubeflow.org/v2beta1")], "allreduce"),
        ([("Node", "n1", "v1")], "train-0"),
    ],
)
def test_the_job_is_the_highest_owner_that_is_one_piece_of_work(chain: list[tuple[str, str, str]], name: str) -> None:
    references = [reference(kind, one, version) for kind, one, version in chain]
    there = {
        one: owned(kind, one, *references[place + 1 : place + 2], team="vision", owner="alice")
        for place, (kind, one, _) in enumerate(chain)
    }
    own = pod(metadata={"ownerReferences": references[:1]})
    owner = owner_of(own, lambda _version, _kind, _namespace, one: there[one])
    assert (owner.name, owner.uid) == (name, f"uid-{name}")
    job = records_of(own, owner, READING)[0]
    assert isinstance(job, Job)
    assert (job.job_key, job.requested_gpu_count) == (f"c/uid-{name}#0", 1.0 if name == "train-0" else None)
    assert (job.user, job.account) == ((None, "ml") if name == "train-0" else ("alice", "vision"))


def test_an_owner_that_may_not_be_seen_or_was_made_anew_is_named_by_the_reference() -> None:
    own = pod(metadata={"ownerReferences": [reference("Job", "secret")]})
    assert owner_of(own, nothing).uid == "uid-secret"
    another = owned("Job", "secret") | {"metadata": {"uid": "other", "name": "secret"}}
    assert owner_of(own, lambda *_asked: another).uid == "uid-secret"


def test_owners_in_a_circle_end() -> None:
    circle = owned("Job", "a", reference("Job", "a"))
    own = pod(metadata={"ownerReferences": [reference("Job", "a")]})
    assert owner_of(own, lambda *_asked: circle).name == "a"
