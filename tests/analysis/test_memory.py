"""Remembering results while they hold."""

from __future__ import annotations

import itertools
import threading

import pytest

from analysis.memory import Memory


def test_a_result_is_worked_out_once() -> None:
    memory: Memory[int] = Memory(2)
    numbers = itertools.count(7)
    assert [memory.get("a", lambda: next(numbers)) for _ in range(3)] == [7, 7, 7]
    assert next(numbers) == 8


def test_the_one_asked_for_longest_ago_is_forgotten_first() -> None:
    memory: Memory[str] = Memory(2)
    for key in ("a", "b", "a", "c"):
        memory.get(key, lambda: "old")
    assert memory.get("a", lambda: "new") == "old"
    assert memory.get("b", lambda: "new") == "new"


def test_a_failure_is_raised_and_not_remembered() -> None:
    memory: Memory[int] = Memory(2)

    def fail() -> int:
        raise KeyError("no")

    with pytest.raises(KeyError):
        memory.get("a", fail)
    assert memory.get("a", lambda: 1) == 1


def test_those_who_ask_together_wait_for_one_result() -> None:
    memory: Memory[object] = Memory(2)
    go, results = threading.Event(), []

    def work() -> object:
        go.wait(10)
        return object()

    threads = [threading.Thread(target=lambda: results.append(memory.get("a", work))) for _ in range(4)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(results) == 4
    assert len(set(map(id, results))) == 1


def test_at_hand_is_what_is_known_and_nothing_is_waited_for() -> None:
    memory: Memory[int] = Memory(2)
    assert memory.at_hand("a") is None

    def work() -> int:
        assert memory.at_hand("a") is None
        return 7

    assert memory.get("a", work) == 7
    assert memory.at_hand("a") == 7
