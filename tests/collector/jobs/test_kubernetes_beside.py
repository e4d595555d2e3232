"""What stands beside pods: Kueue, Volcano, resource claims and nodes, each costing only itself where it is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.jobs._kube_api import KubeApi
from collector.jobs._kube_facts import Book, node_facts
from collector.jobs._kube_reflect import KINDS
from collector.jobs._kube_watch import PodFollower
from tests.collector.jobs.kube_server import PODS, KubeServer
from tests.collector.jobs.kube_words import READING, T0, instant, owned, pod, reference
from warehouse.contract.model import Allocation, Attempt, Event, Job, Record

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/workloads"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
NODES = "/api/v1/nodes"
CARD = "GPU-3a000000-0000-0000-0000-000000000003"


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer().serving() as served:
        yield served


def look(server: KubeServer, folder: Path) -> list[Record]:
    """Look once at everything."""
    told: list[Record] = []
    follower(server, folder).look(told.extend)
    return told


def follower(server: KubeServer, folder: Path) -> PodFollower:
    return PodFollower("c", KubeApi(server.url, None, None, 5.0), READING, folder, watch_seconds=1.0, kinds=KINDS)


@pytest.fixture
def follow(server: KubeServer, tmp_path: Path) -> Iterator[Callable[[], list[Record]]]:
    """Follow in a thread; gives the list that what is told goes to."""
    stop, threads = threading.Event(), []

    def start() -> list[Record]:
        told: list[Record] = []
        one = follower(server, tmp_path)
        threads.append(threading.Thread(target=one.follow, args=(told.extend, stop)))
        threads[-1].start()
        return told

    yield start
    stop.set()
    for thread in threads:
        thread.join(30)


def wait(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def last(told: list[Record], kind: type[Record], /, **words: Any) -> Any:
    """Give the last record of a kind with some values; None while there is none."""
    fit = [one for one in list(told) if type(one) is kind and all(getattr(one, k) == v for k, v in words.items())]
    return fit[-1] if fit else None


def workload(name: str = "train", gpus: int = 4, count: int = 2, **status: Any) -> dict[str, Any]:
    """Make Kueue's Workload of the batch Job ``name``, put into its queue an hour before T0."""
    container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "metadata": {
            "name": f"job-{name}",
            "namespace": "ml",
            "uid": f"wl-{name}",
            "creationTimestamp": instant(-3600),
            "ownerReferences": [reference("Job", name)],
        },
        "spec": {
            "queueName": "research",
            "priorityClassName": "urgent",
            "podSets": [{"count": count, "template": {"spec": {"containers": [container]}}}],
        },
        "status": status,
    }


def of_job(name: str, gpus: int = 4, **metadata: Any) -> Any:
    return pod(f"{name}-0", gpus=gpus, metadata={"ownerReferences": [reference("Job", name)]} | metadata)


def test_a_job_of_kueue_has_its_queue_its_priority_and_the_time_that_it_waited(
    server: KubeServer, tmp_path: Path
) -> None:
    server.put(workload(), WORKLOADS)
    server.put(of_job("train"))
    told = look(server, tmp_path)
    job, attempt = last(told, Job), last(told, Attempt)
    assert (job.job_key, job.partition, job.qos, job.requested_gpu_count) == (
        "c/uid-train#0",
        "research",
        "urgent",
        8.0,
    )
    assert (attempt.submit_at, attempt.start_at) == (T0 - 3600, T0 + 10)


def test_work_that_was_evicted_waits_since_it_was_put_back() -> None:
    book = Book()
    back = {"type": "Requeued", "status": "True", "lastTransitionTime": instant(-60)}
    book.see_workload(workload(conditions=[back]))
    queued = book.queued("uid-train", None)
    assert queued is not None
    assert queued.since_at == T0 - 60


def test_work_that_waits_in_a_queue_is_told_before_it_has_pods(
    server: KubeServer, follow: Callable[[], list[Record]]
) -> None:
    told = follow()
    server.put(workload(), WORKLOADS)
    server.put(workload("cpu-only", gpus=0), WORKLOADS)
    wait(lambda: last(told, Job))
    job = last(told, Job)
    assert (job.name, job.partition, job.submit_at, job.requested_gpu_count) == ("train", "research", T0 - 3600, 8.0)
    server.put(of_job("train"))
    wait(lambda: last(told, Attempt))
    assert {one.job_key for one in told if isinstance(one, Job)} == {"c/uid-train#0"}


def test_a_queue_that_is_told_after_its_pods_is_told_with_them(
    server: KubeServer, follow: Callable[[], list[Record]]
) -> None:
    server.put(of_job("train"))
    server.kinds[WORKLOADS] = {}
    told = follow()
    wait(lambda: last(told, Job))
    server.put(workload(), WORKLOADS)
    wait(lambda: last(told, Job, partition="research"))


def test_a_pod_of_volcano_has_the_queue_and_priority_of_its_group(server: KubeServer, tmp_path: Path) -> None:
    group = {
        "metadata": {"name": "gang", "namespace": "ml", "uid": "pg", "creationTimestamp": instant(-120)},
        "spec": {"queue": "gold", "priorityClassName": "high", "minResources": {"nvidia.com/gpu": "16"}},
    }
    server.put(group, GROUPS)
    server.put(pod(metadata={"annotations": {"scheduling.k8s.io/group-name": "gang"}}))
    told = look(server, tmp_path)
    job = last(told, Job)
    assert (job.partition, job.qos, job.requested_gpu_count) == ("gold", "high", 16.0)
    assert last(told, Attempt).submit_at == T0 - 120


def claiming(name: str = "dra") -> Any:
    """Make a pod that asks for a card by a claim and by nothing else."""
    own = pod(name, gpus=0)
    own["spec"]["resourceClaims"] = [{"name": "card", "resourceClaimTemplateName": "one"}]
    own["status"]["resourceClaimStatuses"] = [{"name": "card", "resourceClaimName": f"{name}-card"}]
    return own


def claim(name: str = "dra", driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    result = {"request": "gpu", "driver": driver, "pool": "n1", "device": "gpu-3"}
    return {
        "metadata": {"name": f"{name}-card", "namespace": "ml", "uid": f"claim-{name}"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def slices() -> dict[str, Any]:
    device = {"name": "gpu-3", "attributes": {"uuid": {"string": CARD}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": [device]}
    return {"metadata": {"name": "n1-gpus", "uid": "slice"}, "spec": spec}


def test_u05_a_claim_is_an_allocation_of_the_card_that_its_slice_names(
    server: KubeServer, follow: Callable[[], list[Record]]
) -> None:
    for path in (CLAIMS, SLICES):
        server.kinds[path] = {}
    server.put(claiming())
    told = follow()
    server.put(claiming("net"))
    server.put(claim("net", driver="nic.example"), CLAIMS)
    server.put(claim(), CLAIMS)
    wait(lambda: last(told, Allocation, certainty="claim unresolved"))
    server.put(slices(), SLICES)
    wait(lambda: last(told, Allocation, device_uuid=CARD, certainty="claim"))
    # A claim of something else makes no GPU job, and what was unresolved keeps its key.
    assert {one.other_id for one in told if isinstance(one, Attempt)} == {"ml/dra"}
    assert len({one.allocation_key for one in told if isinstance(one, Allocation)}) == 1


def test_a_nodes_labels_give_model_and_share_of_what_its_pods_hold(server: KubeServer, tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED", "nvidia.com/gpu.replicas": "4"}
    server.put({"metadata": {"name": "n1", "labels": labels}, "status": {}}, NODES)
    server.put(pod(gpus=2))
    held = last(look(server, tmp_path), Allocation)
    assert (held.gpu_model, held.gpu_count, held.share_ratio) == ("NVIDIA-A100-SXM4-40GB", 2.0, 0.25)


def test_a_node_that_counts_slices_as_cards_tells_their_share() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}
    facts = node_facts({"metadata": {"name": "n1", "labels": labels}})
    assert facts.gpu_model == "NVIDIA-A100-SXM4-40GB"
    assert facts.share_ratio == pytest.approx(1 / 7)


def test_a_node_that_stops_being_ready_is_an_event_and_so_is_its_return(
    server: KubeServer, follow: Callable[[], list[Record]]
) -> None:
    def node(status: str, at: float, reason: str) -> dict[str, Any]:
        ready = {"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": instant(at)}
        return {"metadata": {"name": "n1"}, "status": {"conditions": [ready]}}

    server.put(node("True", 0, "KubeletReady"), NODES)
    server.put(pod())
    told = follow()
    wait(lambda: last(told, Attempt))
    server.put(node("Unknown", 100, "NodeStatusUnknown"), NODES)
    wait(lambda: last(told, Event))
    server.put(node("True", 400, "KubeletReady"), NODES)
    wait(lambda: last(told, Event, kind="node_ready"))
    events = [(one.kind, one.happened_at, one.detail) for one in told if isinstance(one, Event)]
    assert events == [
        ("node_not_ready", T0 + 100, "NodeStatusUnknown"),
        ("node_ready", T0 + 400, "KubeletReady"),
    ]


@pytest.mark.parametrize("refused", [WORKLOADS, SLICES, NODES, GROUPS])
def test_a_kind_that_is_refused_costs_that_kind_alone(
    server: KubeServer, tmp_path: Path, refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.kinds[SLICES] = server.kinds[NODES] = {}
    server.put(workload(), WORKLOADS)
    server.put(claim(), CLAIMS)
    server.put(claiming())
    server.put(of_job("train"))
    server.denied.add(refused)
    with caplog.at_level("INFO"):
        told = look(server, tmp_path)
    assert {one.other_id for one in told if isinstance(one, Attempt)} == {"ml/train-0", "ml/dra"}
    assert last(told, Job, name="train").partition == (None if refused == WORKLOADS else "research")
    assert "allow the service account to get, list and watch it" in caplog.text


def test_a_cluster_without_such_kinds_is_followed_for_its_pods(server: KubeServer, tmp_path: Path) -> None:
    server.add("/apis/batch/v1/namespaces/ml/jobs/train", owned("Job", "train", owner="alice"))
    server.put(of_job("train"))
    told = look(server, tmp_path)
    assert (last(told, Job).user, server.counts(PODS)) == ("alice", 1)
