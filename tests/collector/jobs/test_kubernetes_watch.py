"""Pods that are followed over a real list and watch, through all that happens to such a connection."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.jobs import _kube_api
from collector.jobs._kube_api import KubeApi
from collector.jobs._kube_watch import PodFollower
from tests.collector.jobs.kube_server import PODS, KubeServer
from tests.collector.jobs.kube_words import READING, T0, owned, pod, reference
from warehouse.contract.errors import BadUseError, UnreachableError
from warehouse.contract.model import Allocation, Attempt, Job, Record


class Followed:
    """A follower at work in a thread, and what it told."""

    def __init__(self, server: KubeServer, folder: Path, now: Callable[[], float] = time.time, **words: Any) -> None:
        self.told: list[Record] = []
        self.errors: list[Exception] = []
        self.stop = threading.Event()
        self.api = KubeApi(server.url, None, None, 5.0, now)
        self.one = PodFollower("c", self.api, READING, folder, watch_seconds=1.0, clock=now, **words)
        self.begin()

    def begin(self) -> None:
        """Follow, or follow again after an outage, as the collector does."""
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
        server.now = words.get("now", server.now)  # the same clock, unless a test says otherwise
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


def test_a_connection_that_is_reset_goes_on_where_it_was_without_a_new_list(
    server: KubeServer, follow: Callable[..., Followed]
) -> None:
    server.put(pod("a"))
    one = follow()
    one.wait(one.states)
    server.resets = 1
    server.put(pod("b"))
    server.put(pod("a", phase="Succeeded", end=60.0))
    one.wait(lambda: one.states() == {"uid-a": ["running", "completed"], "uid-b": ["running"]})
    assert (server.resets, server.counts(PODS), one.errors) == (0, 1, [])


def test_a_connection_that_is_reset_again_and_again_is_an_outage(
    server: KubeServer, follow: Callable[..., Followed]
) -> None:
    server.resets = 1000
    one = follow()
    one.wait(lambda: one.errors)
    assert "the watch broke off" in str(one.errors[0])


def test_bookmarks_move_the_place_on_so_that_a_quiet_watch_never_gets_too_old(
    server: KubeServer, follow: Callable[..., Followed]
) -> None:
    server.put(pod("a"))
    one = follow()
    one.wait(one.states)
    path = "/api/v1/nodes"
    for number in range(20):  # changes of other kinds count versions on
        server.put({"metadata": {"name": f"n{number}"}}, path)
    place = str(server.version)
    one.wait(lambda: any(f"resourceVersion={place}" in asked for asked in server.asked))
    assert server.counts(PODS) == 1


def test_an_api_that_was_away_for_an_hour_is_caught_up_with(
    server: KubeServer, follow: Callable[..., Followed]
) -> None:
    clock = [T0 + 500]
    for name in ("ends", "goes", "stays"):
        server.put(pod(name))
    one = follow(now=lambda: clock[0])
    one.wait(lambda: len(one.states()) == 3)
    server.down.set()
    one.wait(lambda: one.errors)
    one.thread.join()
    clock[0] += 3600
    server.put(pod("ends", phase="Failed", end=2000.0, exit_code=1, reason="Error"))
    server.delete(pod("goes"))
    server.put(pod("new"))
    server.compact()
    server.down.clear()
    one.begin()
    one.wait(lambda: len(one.states()) == 4 and len(one.states()["uid-goes"]) == 2)
    assert one.states() == {
        "uid-ends": ["running", "failed"],
        "uid-goes": ["running", "unknown"],
        "uid-stays": ["running"],
        "uid-new": ["running"],
    }
    ends = {each.attempt_key[-4:]: each.end_at for each in one.told if isinstance(each, Attempt) and each.end_at}
    # What ended has the kubelet's own time; of what went nobody knows more than when it was last seen.
    assert ends == {"ends": T0 + 2000, "goes": T0 + 500}


@pytest.mark.parametrize("ahead", [-300.0, 300.0])
def test_u29_a_collector_whose_clock_is_five_minutes_off_tells_the_servers_times(
    server: KubeServer, follow: Callable[..., Followed], ahead: float
) -> None:
    server.put(pod("goes"))
    one = follow(now=lambda: T0 + 600 + ahead)
    server.now = lambda: T0 + 600
    one.wait(one.states)
    one.wait(lambda: abs(one.one.now() - (T0 + 600)) < 2)
    server.delete(pod("goes"))
    one.wait(lambda: one.states() == {"uid-goes": ["running", "cancelled"]})
    (end,) = [each.end_at for each in one.told if isinstance(each, Attempt) and each.end_at is not None]
    assert end == pytest.approx(T0 + 600, abs=2)


def test_five_thousand_pods_are_told_once_and_held_a_page_at_a_time(server: KubeServer, tmp_path: Path) -> None:
    padding = {"managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:{number}": {} for number in range(40)}}]}
    for number in range(5000):
        server.put(pod(f"p{number}", metadata=padding))
    api = KubeApi(server.url, None, None, 30.0)
    one = PodFollower("c", api, READING, tmp_path)
    batches: list[int] = []
    keys: set[str] = set()

    def tell(records: list[Record]) -> None:
        batches.append(len(records))
        keys.update(each.attempt_key for each in records if isinstance(each, Attempt))

    tracemalloc.start()
    try:
        one.look(tell)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(keys), server.counts(PODS)) == (5000, 10)
    assert max(batches) <= 3 * 500  # three records a pod, a page at a time
    # All of them at once, as Python's objects, are some 60 MB (the server in this process holds them before).
    assert kept < 5000 * 6000
    assert peak < 5000 * 10_000
    before = len(batches)
    one.look(tell)
    assert sum(batches[before:]) == 0


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
