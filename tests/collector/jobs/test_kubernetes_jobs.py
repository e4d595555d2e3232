from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from collector.aside import Aside
from collector.cgroups import Place
from collector.device_ids import NodeDevice
from collector.job_source import Claim, Witness
from collector.jobs._pod_resources import KubeletError, PodResources
from collector.jobs._protobuf import fields
from collector.jobs._resource_slices import read_slices, slices_of
from collector.jobs.kubernetes import JOB_SOURCE, KEPT_SECONDS, SOCKET, KubernetesJobs, Pods
from collector.owners import Owner, Owners
from tests.collector.jobs.kubelet import Kubelet, field_bytes, pod, varint
from warehouse.contract.errors import BadInputError, TrueloadError, UnreachableError
from warehouse.contract.settings import Settings

UID = "2b801b7a-5266-4386-864e-45ed71136371"
LATER = "9c801b7a-5266-4386-864e-45ed71136371"
CARDS = [NodeDevice("GPU-aaa", minor=0), NodeDevice("GPU-bbb", minor=1)]


class Clock:
    """A clock that goes when it is told."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    served = Kubelet(tmp_path / "kubelet.sock")
    served.start()
    yield served
    served.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def jobs(kubelet: Kubelet, tmp_path: Path, clock: Clock) -> Iterator[KubernetesJobs]:
    (tmp_path / "logs").mkdir()
    (tmp_path / "cgroup").mkdir()
    client = PodResources(str(kubelet.socket), timeout_seconds=10.0)
    yield KubernetesJobs("c", client.read, Pods(tmp_path / "logs", tmp_path / "cgroup"), poll_seconds=0.0, clock=clock)
    client.close()


def log_of(tmp_path: Path, name: str, uid: str, made_at: float, namespace: str = "team") -> None:
    folder = tmp_path / "logs" / f"{namespace}_{name}_{uid}"
    folder.mkdir()
    os.utime(folder, (made_at, made_at))


def cgroup_of(tmp_path: Path, uid: str) -> Path:
    name = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
    folder = tmp_path / "cgroup/kubepods.slice/kubepods-burstable.slice" / name
    folder.mkdir(parents=True)
    return folder


def placed(jobs: KubernetesJobs) -> Owners:
    owners = Owners(jobs)
    owners.update(CARDS)
    return owners


def test_the_kubelet_says_which_pod_holds_which_device(kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock) -> None:
    kubelet.pods = [pod("a", ["GPU-aaa"]), pod("net", ["mlx5_0"], resource="rdma/hca")]
    (held,) = jobs.holdings()
    assert (held.attempt_key, held.device_uuid) == ("c/@podname:team/a:1700000000", "GPU-aaa")
    assert (held.start_at, held.end_at, held.source) == (clock.now, None, "kubelet")


def test_a_pod_is_known_by_its_uid_where_the_node_tells_it(
    kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock, tmp_path: Path
) -> None:
    log_of(tmp_path, "a", UID, clock.now)
    kubelet.pods = [pod("a", ["GPU-aaa"])]
    assert [held.attempt_key for held in jobs.holdings()] == [f"c/@pod:{UID}:"]


def test_u01_sharers_of_a_sliced_device_are_all_listed(kubelet: Kubelet, jobs: KubernetesJobs) -> None:
    kubelet.pods = [pod(name, [f"GPU-aaa::{number}"]) for number, name in enumerate("abc")]
    owners = placed(jobs).of_device("GPU-aaa", 1_700_000_000, 1_700_000_010, ())
    assert [owner.attribution for owner in owners] == ["equal_split"] * 3
    assert len({owner.attempt_key for owner in owners}) == 3
    assert sum(owner.share_ratio or 0 for owner in owners) == pytest.approx(1.0)


@pytest.mark.parametrize("spelled", ["GPU-bbb", "GPU-bbb::2", "nvidia1", "nvidia1/vgpu0", "1"])
def test_u02_a_pod_is_found_by_every_spelling(kubelet: Kubelet, jobs: KubernetesJobs, spelled: str) -> None:
    kubelet.pods = [pod("a", [spelled])]
    owners = placed(jobs)
    assert [held.device_uuid for held in owners.holdings] == ["GPU-bbb"]
    assert not owners.unknown_devices


def test_u02_a_spelling_that_nobody_knows_stays_held_by_an_unknown_workload(
    kubelet: Kubelet, jobs: KubernetesJobs
) -> None:
    kubelet.pods = [pod("a", ["weird:thing:7"]), pod("b", ["GPU-aaa"])]
    owners = placed(jobs)
    assert owners.unknown_devices == {"weird:thing:7": 1}
    assert [(held.device_uuid, held.said) for held in owners.holdings] == [
        (None, "weird:thing:7"),
        ("GPU-aaa", "GPU-aaa"),
    ]


def test_u05_a_claim_is_resolved_and_kept_when_it_cannot_be(
    kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock
) -> None:
    kubelet.pods = [pod("a", claims=[("train", "gpu.nvidia.com", "node1", "gpu-3")])]
    jobs.slices = lambda: {("gpu.nvidia.com", "node1", "gpu-3"): "GPU-bbb"}
    (held,) = jobs.holdings()
    assert (held.device_uuid, held.certainty) == ("GPU-bbb", "claim")

    def refuse() -> dict[tuple[str, str, str], str]:
        raise BadInputError("api", None, "answers 403")

    kubelet.pods.append(pod("b", claims=[("eval", "gpu.nvidia.com", "node1", "gpu-4")]))
    jobs.slices = refuse
    clock.now += 10
    known, unknown = jobs.holdings()
    assert (known.device_uuid, known.certainty) == ("GPU-bbb", "claim")
    assert (unknown.device_uuid, unknown.certainty) == (None, "claim unresolved")
    assert unknown.said == "team/eval/gpu-4"
    assert jobs.unresolved_claims == 1


def test_u05_slices_tell_uuids_in_both_shapes_of_the_interface() -> None:
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "node1"}}
    old = {"name": "gpu-0", "basic": {"attributes": {"uuid": {"string": "GPU-a"}}}}
    new = {"name": "gpu-1", "attributes": {"uuid": {"string": "GPU-b"}}}
    bare = {"name": "gpu-2"}
    assert slices_of({"items": [{"spec": {**spec, "devices": [old, new, bare]}}]}) == {
        ("gpu.nvidia.com", "node1", "gpu-0"): "GPU-a",
        ("gpu.nvidia.com", "node1", "gpu-1"): "GPU-b",
    }


@pytest.fixture
def api() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.headers['Authorization']} {self.path}")
            status = 404 if "/v1/" in self.path else 200 if "node1" in self.path else 403
            device = {"name": "gpu-0", "basic": {"attributes": {"uuid": {"string": "GPU-a"}}}}
            spec = {"driver": "d", "pool": {"name": "p"}, "devices": [device]}
            body = json.dumps({"items": [{"spec": spec}]}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_u05_slices_are_asked_for_with_the_service_account(api: tuple[str, list[str]], tmp_path: Path) -> None:
    url, asked = api
    (tmp_path / "token").write_text("secret\n")
    assert read_slices("node1", 10.0, url, tmp_path) == {("d", "p", "gpu-0"): "GPU-a"}
    assert [line.split("/resourceslices")[0] for line in asked] == [
        "Bearer secret /apis/resource.k8s.io/v1",
        "Bearer secret /apis/resource.k8s.io/v1beta2",
    ]
    with pytest.raises(BadInputError, match="answers 403"):
        read_slices("other", 10.0, url, tmp_path)


def test_a_pod_that_is_no_longer_listed_gave_its_device_back(
    kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock
) -> None:
    kubelet.pods = [pod("a", ["GPU-aaa"])]
    jobs.holdings()
    kubelet.pods = []
    clock.now += 50
    assert [(held.start_at, held.end_at) for held in jobs.holdings()] == [(clock.now - 50, clock.now)]
    clock.now += KEPT_SECONDS + 1
    assert jobs.holdings() == []


def test_a_finished_pod_that_is_still_listed_holds_nothing(
    kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock, tmp_path: Path
) -> None:
    log_of(tmp_path, "a", UID, clock.now - 3600)
    log_of(tmp_path, "b", LATER, clock.now - 3600)
    kubelet.pods = [pod("a", ["GPU-aaa"]), pod("b", ["GPU-bbb"])]
    group = cgroup_of(tmp_path, UID)
    cgroup_of(tmp_path, LATER)
    assert [held.end_at for held in jobs.holdings()] == [None, None]
    group.rmdir()
    clock.now += 10
    assert {held.device_uuid: held.end_at for held in jobs.holdings()} == {"GPU-aaa": clock.now, "GPU-bbb": None}


def test_a_pod_that_just_starts_holds_its_device_before_it_has_a_control_group(
    kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock, tmp_path: Path
) -> None:
    cgroup_of(tmp_path, LATER)
    log_of(tmp_path, "a", UID, clock.now)
    kubelet.pods = [pod("a", ["GPU-aaa"])]
    assert [held.end_at for held in jobs.holdings()] == [None]


def test_a_whole_device_that_is_given_on_ends_the_old_holding_though_both_are_listed(
    kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock
) -> None:
    kubelet.pods = [pod("old", ["GPU-aaa"])]
    jobs.holdings()
    kubelet.pods.append(pod("new", ["GPU-aaa"]))
    clock.now += 100
    for _ in range(3):
        placed(jobs)
        clock.now += 10
    owners = placed(jobs)
    (owner,) = owners.of_device("GPU-aaa", clock.now, clock.now + 10, ())
    assert owner == Owner("c/@podname:team/new:1700000100", 1.0, "scheduler")


def test_a_pod_of_a_name_that_came_again_is_the_newer_one(
    kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock, tmp_path: Path
) -> None:
    log_of(tmp_path, "a", LATER, clock.now)
    log_of(tmp_path, "a", UID, clock.now - 500)
    kubelet.pods = [pod("a", ["GPU-aaa"])]
    assert [held.attempt_key for held in jobs.holdings()] == [f"c/@pod:{LATER}:"]


def test_u04_a_process_in_a_pod_that_asked_for_nothing_is_that_pods(jobs: KubernetesJobs) -> None:
    jobs.holdings()
    assert jobs.claim(Witness(4242, Place(UID), {}, 0)) == Claim(f"c/@pod:{UID}:", "cgroup")
    assert jobs.claim(Witness(4242, Place(), {"HOSTNAME": "a"}, 0)) is None


def test_a_process_is_its_pods_by_uid_and_by_name_only_where_no_uid_is_known(
    kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock, tmp_path: Path
) -> None:
    log_of(tmp_path, "a", UID, clock.now)
    kubelet.pods = [pod("a", ["GPU-aaa"]), pod("b", ["GPU-bbb"])]
    jobs.holdings()
    assert jobs.claim(Witness(1, Place(UID), {"HOSTNAME": "b"}, 0)) == Claim(f"c/@pod:{UID}:", "cgroup")
    assert jobs.claim(Witness(1, Place(LATER), {"HOSTNAME": "b"}, 0)) == Claim("c/@podname:team/b:1700000000", "cgroup")
    assert jobs.claim(Witness(1, Place(LATER), {"HOSTNAME": "a"}, 0)) == Claim(f"c/@pod:{LATER}:", "cgroup")


def test_an_answer_above_four_mebibytes_is_read(kubelet: Kubelet, jobs: KubernetesJobs) -> None:
    kubelet.pods = [pod(f"p{number}", [f"GPU-aaa::{number}"] * 60) for number in range(5000)]
    assert sum(map(len, kubelet.pods)) > 4 * 1024**2
    assert len({held.attempt_key for held in jobs.holdings()}) == 5000


def test_a_socket_that_never_answers_costs_its_deadline_and_then_answers_again(kubelet: Kubelet) -> None:
    kubelet.silent.set()
    client = PodResources(str(kubelet.socket), timeout_seconds=0.2)
    with pytest.raises(KubeletError, match="DEADLINE_EXCEEDED"):
        client.read()
    kubelet.silent.clear()
    client = PodResources(str(kubelet.socket), timeout_seconds=10.0)
    assert client.read() == []
    client.close()


def test_a_socket_that_never_answers_keeps_no_row_waiting_and_a_late_answer_counts(kubelet: Kubelet) -> None:
    kubelet.pods = [pod("a", ["GPU-aaa"])]
    kubelet.silent.set()
    ask = Aside("the kubelet", PodResources(str(kubelet.socket), timeout_seconds=20.0).read, 0.05)
    threads = threading.active_count()
    for _ in range(3):
        begin = time.monotonic()
        with pytest.raises(TrueloadError, match=r"the kubelet does not answer within 0\.05 s"):
            ask()
        assert time.monotonic() - begin < 5.0
    assert kubelet.calls <= 1
    assert threading.active_count() <= threads + 5  # one that asks, and gRPC's own
    kubelet.over.set()
    deadline = time.monotonic() + 20.0
    while True:
        with suppress(UnreachableError):
            found = ask()
            break
        assert time.monotonic() < deadline
    assert [one.pod for one in found] == ["a"]


def test_control_groups_that_go_while_they_are_looked_at_cost_nothing(tmp_path: Path) -> None:
    pods = Pods(tmp_path / "logs", tmp_path / "cgroup")
    kept = cgroup_of(tmp_path, UID)
    over, errors = threading.Event(), []

    def come_and_go() -> None:
        while not over.is_set():
            folder = kept.parent.parent / "kubepods-besteffort.slice"
            for number in range(20):
                (folder / f"a-pod{number}.slice").mkdir(parents=True)
            shutil.rmtree(folder)

    coming = threading.Thread(target=come_and_go)
    coming.start()
    try:
        for _ in range(200):
            living = pods.living()
            if living is None or UID not in living:
                errors.append(living)
    finally:
        over.set()
        coming.join()
    assert errors == []


def test_no_socket_is_an_error_that_keeps_what_was_known(
    kubelet: Kubelet, jobs: KubernetesJobs, clock: Clock, tmp_path: Path
) -> None:
    kubelet.pods = [pod("a", ["GPU-aaa"])]
    owners = placed(jobs)
    missing = PodResources(str(tmp_path / "nothing.sock"), timeout_seconds=10.0)
    jobs.ask = missing.read
    clock.now += 10
    with pytest.raises(TrueloadError, match="UNAVAILABLE"):
        owners.update(CARDS)
    assert [held.device_uuid for held in owners.holdings] == ["GPU-aaa"]


def test_the_kubelet_is_not_asked_more_often_than_set(kubelet: Kubelet, tmp_path: Path) -> None:
    reader = JOB_SOURCE.open(Settings({SOCKET.name: str(kubelet.socket)}))
    for _ in range(5):
        reader.holdings()
    assert kubelet.calls == 1


@pytest.mark.parametrize("answer", [b"\xff", b"\x0a\x05ab", b"\x0b", b"\xff" * 20, field_bytes(1, b"\x0a\xff")])
def test_an_answer_that_is_none_is_an_error(kubelet: Kubelet, jobs: KubernetesJobs, answer: bytes) -> None:
    kubelet.pods = [answer]
    with pytest.raises(KubeletError, match="cannot be read"):
        jobs.holdings()


def test_fields_of_other_kinds_are_stepped_over() -> None:
    message = varint(1 << 3 | 1) + b"12345678" + varint(2 << 3 | 5) + b"1234" + varint(3 << 3) + varint(2**63)
    assert list(fields(message)) == [(1, b"12345678"), (2, b"1234"), (3, 2**63)]
