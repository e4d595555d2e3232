from __future__ import annotations

import threading
import time
from pathlib import Path

from collector.cgroups import Place
from collector.job_source import Claim, Witness
from collector.jobs.process import ASKED_MAX, JOB_SOURCE, Processes, UserNames
from collector.processes import ProcessTable
from collector.settings import CLUSTER, NODE, PROC_ROOT
from tests.collector.proctree import ProcTree
from warehouse.contract.model import Attempt, AttemptState, Job
from warehouse.contract.settings import Settings


def seen(pid: int, user_id: int | None = 0) -> Witness:
    return Witness(pid, Place(), {}, user_id)


def test_a_process_is_a_job_by_its_start_and_told_once(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc")
    tree.add(42, start_ticks=5000, name="train.py")
    jobs = Processes("c", "desk", ProcessTable(tree.root))
    key = "c/desk-42-1700000050#0:1700000050"
    assert jobs.claim(seen(42)) == Claim(key, "process")
    assert jobs.claim(seen(42)) == Claim(key, "process")
    job, attempt = jobs.records()
    assert isinstance(job, Job)
    assert (job.name, job.user, job.scheduler_job_id) == ("train.py", "root", "42")
    assert isinstance(attempt, Attempt)
    assert (attempt.attempt_key, attempt.state, attempt.start_at) == (key, AttemptState.RUNNING, 1_700_000_050.0)
    assert jobs.records() == []


def test_a_process_id_that_came_again_is_another_job(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc")
    tree.add(42, start_ticks=5000)
    jobs = Processes("c", "desk", ProcessTable(tree.root))
    first = jobs.claim(seen(42))
    tree.add(42, start_ticks=9000)
    assert jobs.claim(seen(42)) != first
    assert len(jobs.records()) == 4


def test_processes_that_have_ended_are_forgotten_and_those_that_live_are_told_once(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc")
    jobs = Processes("c", "desk", ProcessTable(tree.root), remembered=3)
    tree.add(41)
    jobs.claim(seen(41))
    for pid in range(42, 52):
        tree.add(pid)
        jobs.claim(seen(pid))
        tree.remove(pid)
        assert len(jobs.records()) == (4 if pid == 42 else 2)  # a job and its attempt; at first those of 41, too
        assert len(jobs._running) <= 4
    jobs.claim(seen(41))
    assert jobs.records() == []


def test_a_process_that_is_gone_is_nobodys(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc")
    reader = JOB_SOURCE.open(Settings({CLUSTER.name: "c", NODE.name: "desk", PROC_ROOT.name: str(tree.root)}))
    assert isinstance(reader, Processes)
    assert reader.claim(seen(42)) is None
    assert reader.holdings() == []


def test_u29_a_step_of_the_clock_makes_no_other_job_of_a_process(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc")
    tree.add(42, start_ticks=5000)
    jobs = Processes("c", "desk", ProcessTable(tree.root))
    first = jobs.claim(seen(42))
    (tree.root / "stat").write_text("cpu 1 2 3\nbtime 1700003600\n")
    assert jobs.claim(seen(42)) == first
    assert len(jobs.records()) == 2


def test_a_directory_that_does_not_answer_costs_names_and_no_time() -> None:
    answer, asked = threading.Event(), []

    def ask(user_id: int) -> str:
        asked.append(user_id)
        assert answer.wait(60.0)
        return f"user-{user_id}"

    names = UserNames(0.01, ask)
    begin = time.monotonic()
    assert [names(user_id) for user_id in range(20)] == [str(user_id) for user_id in range(20)]
    assert names(0) == "0"
    assert time.monotonic() - begin < 30.0
    assert sorted(asked) == list(range(ASKED_MAX))
    answer.set()
    deadline = time.monotonic() + 30.0
    while names(0) != "user-0":
        assert time.monotonic() < deadline
    assert (names(0), asked.count(0)) == ("user-0", 1)
