"""Pods of a cluster: what they become, and how they are followed over a real list and watch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.jobs import _kube_api
from collector.jobs._kube_api import KubeApi
from collector.jobs._kube_pods import Reading, gpu_count, owner_of, records_of
from collector.jobs._kube_watch import PodFollower
from tests.collector.jobs.kube_server import PODS, KubeServer
from warehouse.contract.errors import BadUseError, UnreachableError
from warehouse.contract.model import Allocation, Attempt, AttemptState, Job, Record

READING = Reading("c", ("nvidia.com/",), ("owner",), ("team",))
T0 = 1_790_000_000.0
"""2026-09-21T14:13:20Z"""


def instant(after: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(T0 + after))


def pod(name: str = "train-0", gpus: int = 1, phase: str = "Running", end: float | None = None, **words: Any) -> Any:
    """Make a pod that was made at T0, scheduled 10 s later, and ended at ``end``."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "creationTimestamp": instant(0)}
    metadata |= words.pop("metadata", {})
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": instant(10)}],
    }
    if end is not None:
        ended = {
            "finishedAt": instant(end),
            "exitCode": words.pop("exit_code", 0),
            "reason": words.pop("reason", "Completed"),
        }
        status["containerStatuses"] = [{"state": {"terminated": ended}}]
    container: dict[str, Any] = {"name": "main", "image": "img:1", "command": ["python"], "args": ["train.py"]}
    container |= {"resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [container]}, "status": status | words}


def reference(kind: str, name: str, api_version: str = "batch/v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def owned(kind: str, name: str, *owners: dict[str, Any], **labels: str) -> dict[str, Any]:
    told = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": labels, "creationTimestamp": instant(-5)}
    return {"kind": kind, "metadata": told | {"ownerReferences": list(owners)}}


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


def test_restarts_of_containers_end_nothing() -> None:
    restarted = pod(containerStatuses=[{"restartCount": 3, "state": {"running": {}}, "lastState": {"terminated": {}}}])
    assert records(restarted)[1].end_at is None


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
    assert gpu_count({"spec": spec}, ("nvidia.com/",)) == 4.0
    assert gpu_count({"spec": {"containers": [limits("nonsense"), limits("1")]}}, ("nvidia.com/",)) == 1.0


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


# ------------------------------------------------------------------------------------------------------- watching


class Followed:
    """A follower at work in a thread, and what it told."""

    def __init__(self, server: KubeServer, folder: Path, now: Callable[[], float] = time.time) -> None:
        self.told: list[Record] = []
        self.errors: list[Exception] = []
        self.stop = threading.Event()
        self.api = KubeApi(server.url, None, None, 5.0)
        self.one = PodFollower("c", self.api, READING, folder, watch_seconds=1.0, clock=now)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.one.follow(self.told.extend, self.stop)
        except UnreachableError as error:
            self.errors.append(error)

    def end(self) -> None:
        self.stop.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
        self.api.close()

    def states(self) -> dict[str, list[str]]:
        """Give the states that each pod was told to be in, in order."""
        found: dict[str, list[str]] = {}
        for one in list(self.told):
            if isinstance(one, Attempt):
                found.setdefault(one.attempt_key.rpartition(":")[2], []).append(str(one.state))
        return found

    def wait(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, (self.states(), self.errors)
            time.sleep(0.01)


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer().serving() as served:
        yield served


@pytest.fixture
def follow(server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Followed]]:
    monkeypatch.setattr(_kube_api, "SILENT_SECONDS", 1.0)
    begun: list[Followed] = []

    def start(**words: Any) -> Followed:
        begun.append(Followed(server, tmp_path / "jobs", **words))
        return begun[-1]

    yield start
    for one in begun:
        one.end()


def test_what_is_there_is_told_and_then_each_change_once(server: KubeServer, follow: Callable[..., Followed]) -> None:
    server.put(pod("old"))
    one = follow()
    one.wait(lambda: one.states() == {"uid-old": ["running"]})
    server.put(pod("new", phase="Pending", conditions=[]))
    server.put(pod("new"))
    server.put(pod("new", metadata={"annotations": {"heartbeat": "2"}}))
    server.put(pod("new", phase="Succeeded", end=60.0))
    server.delete(pod("new", phase="Succeeded", end=60.0))
    one.wait(lambda: one.states().get("uid-new") == ["pending", "running", "completed"])


def test_lists_come_in_pages(
    server: KubeServer, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kube_api, "PAGE_ITEMS", 3)
    for number in range(8):
        server.put(pod(f"p{number}"))
    one = follow()
    one.wait(lambda: len(one.states()) == 8)
    assert server.counts(PODS) == 3


def test_a_watch_that_lost_its_place_lists_again_and_ends_what_went_meanwhile(
    server: KubeServer, follow: Callable[..., Followed]
) -> None:
    server.put(pod("goes"))
    server.put(pod("stays"))
    one = follow()
    one.wait(lambda: len(one.states()) == 2)
    server.silent.set()
    time.sleep(2 * server.bookmark_seconds)
    server.delete(pod("goes"))
    server.compact()
    server.silent.clear()
    # The watch that fell silent breaks off, as after a lost connection; who calls again begins anew.
    again = follow()
    again.wait(lambda: again.states().get("uid-goes") == ["unknown"])
    assert again.states()["uid-stays"] == ["running"]


def test_410_within_a_watch_lists_again(server: KubeServer, follow: Callable[..., Followed]) -> None:
    server.put(pod("a"))
    one = follow()
    one.wait(lambda: any("watch=1" in asked for asked in server.asked))
    server.compact()
    one.wait(lambda: server.counts(PODS) == 2)
    server.put(pod("b"))
    one.wait(lambda: "uid-b" in one.states())


def test_a_server_that_falls_silent_is_given_up_in_time(server: KubeServer, follow: Callable[..., Followed]) -> None:
    one = follow()
    one.wait(lambda: any("watch=1" in asked for asked in server.asked))
    server.silent.set()
    one.wait(lambda: one.errors)
    assert "the watch broke off" in str(one.errors[0])


def test_a_server_that_is_away_is_said(server: KubeServer, follow: Callable[..., Followed]) -> None:
    server.down.set()
    one = follow()
    one.wait(lambda: one.errors)
    assert str(one.errors[0]).startswith(f"{server.url}: no answer")


def test_pods_that_may_not_be_listed_are_said_with_what_to_allow(
    server: KubeServer, follow: Callable[..., Followed]
) -> None:
    server.denied.add(PODS)
    one = follow()
    one.wait(lambda: one.errors)
    assert "answered 403; allow the service account to get, list and watch it" in str(one.errors[0])


def test_owners_are_looked_up_once_and_one_that_is_denied_costs_only_its_own_name(
    server: KubeServer, follow: Callable[..., Followed]
) -> None:
    path = "/apis/batch/v1/namespaces/ml/jobs/"
    server.add(f"{path}fit", owned("Job", "fit", owner="alice"))
    server.denied.add(f"{path}secret")
    for number in range(3):
        server.put(pod(f"fit-{number}", metadata={"ownerReferences": [reference("Job", "fit")]}))
    server.put(pod("x", metadata={"ownerReferences": [reference("Job", "secret")]}))
    one = follow()
    one.wait(lambda: len(one.states()) == 4)
    jobs = {record.job_key: record.user for record in one.told if isinstance(record, Job)}
    assert jobs == {"c/uid-fit#0": "alice", "c/uid-secret#0": None}
    assert server.counts(f"{path}fit") == 1


def test_a_collector_that_was_away_ends_what_went_when_it_was_last_seen(
    server: KubeServer, follow: Callable[..., Followed]
) -> None:
    server.put(pod("goes"))
    first = follow(now=lambda: T0 + 500)
    first.wait(first.states)
    first.end()
    server.delete(pod("goes"))
    second = follow(now=lambda: T0 + 9000)
    second.wait(lambda: second.states() == {"uid-goes": ["unknown"]})
    ends = {type(one): one.end_at for one in second.told if isinstance(one, (Attempt, Allocation))}
    assert ends == {Attempt: T0 + 500, Allocation: T0 + 500}


def test_a_disk_that_takes_nothing_costs_the_memory_of_what_is_open_alone(
    server: KubeServer, follow: Callable[..., Followed], tmp_path: Path
) -> None:
    (tmp_path / "jobs").write_text("a file where the folder should be")
    server.put(pod("a"))
    one = follow()
    one.wait(lambda: "uid-a" in one.states())
    server.put(pod("b"))
    one.wait(lambda: "uid-b" in one.states())
    assert one.errors == []


def test_outside_a_cluster_the_address_must_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BadUseError, match=r"jobs\.kubernetes_url"):
        KubeApi.of_cluster("", 1.0)
