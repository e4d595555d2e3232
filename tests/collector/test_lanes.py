"""Lanes: one thread does what is quick, others help with what is slow, and what never returns costs its lane alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from collector.lanes import Lanes


@pytest.fixture
def lanes() -> Iterator[Lanes]:
    made = Lanes()
    yield made
    made.close()


def test_a_lane_that_never_returns_keeps_no_other_waiting_and_takes_no_second_job(lanes: Lanes) -> None:
    over = threading.Event()
    try:
        jobs = {"stuck": lambda: over.wait(60), "a": lambda: 1, "b": lambda: 2}
        for _ in range(20):
            done = lanes.run(jobs, 0.1)
            assert {name: job.result() for name, job in done.items()} == {"a": 1, "b": 2}
            assert lanes.stuck == ["stuck"]
    finally:
        over.set()


def test_lanes_that_wait_for_each_other_are_all_at_work_at_once(lanes: Lanes) -> None:
    gate = threading.Barrier(6)
    done = lanes.run({f"lane {place}": lambda: gate.wait(60) for place in range(6)}, 60.0)
    assert sorted(job.result() for job in done.values()) == [0, 1, 2, 3, 4, 5]


def test_there_are_never_more_threads_than_lanes(lanes: Lanes) -> None:
    seen: set[int] = set()
    jobs = {f"lane {place}": lambda: seen.add(threading.get_ident()) for place in range(4)}
    for _ in range(500):
        assert len(lanes.run(jobs, 60.0)) == 4
    assert len(seen) <= 4


def test_without_patience_every_job_is_begun_nevertheless(lanes: Lanes) -> None:
    over = threading.Event()
    begun = threading.Semaphore(0)

    def job() -> None:
        begun.release()
        over.wait(60)

    try:
        lanes.run({"a": job, "b": job, "c": job}, 0.0)
        assert all(begun.acquire(timeout=60) for _ in range(3))
        assert lanes.stuck == ["a", "b", "c"]
    finally:
        over.set()


def test_what_a_job_raised_is_raised_to_whoever_asked(lanes: Lanes) -> None:
    done = lanes.run({"bad": lambda: 1 // 0, "good": lambda: 1}, 60.0)
    assert done["good"].result() == 1
    with pytest.raises(ZeroDivisionError):
        done["bad"].result()
