"""What the agent makes of published memory: what is hostile is refused, what several processes tell is united."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.tracer import layout
from collector.tracer.book import Book, Process
from collector.tracer.find import Refused, find_memory
from collector.tracer.process import Busy, TracedProcess, TracedSecond
from collector.tracer.union import independent_seconds, united_seconds

OWN = Path("/proc/self")
FULL = layout.SLOT_FULL


def memory(size: int, seals: int) -> int:
    descriptor = os.memfd_create(layout.NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


@pytest.fixture
def published() -> Iterator[int]:
    descriptor = memory(layout.TOTAL_BYTES, fcntl.F_SEAL_SHRINK)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    ("size", "seals", "why"),
    [
        (layout.TOTAL_BYTES, 0, "is not sealed"),
        (layout.TOTAL_BYTES, fcntl.F_SEAL_GROW, "is not sealed"),
        (layout.TOTAL_BYTES - 1, fcntl.F_SEAL_SHRINK, "has the wrong size"),
    ],
)
def test_memory_that_could_kill_its_reader_is_refused(size: int, seals: int, why: str) -> None:
    descriptor = memory(size, seals)
    try:
        with pytest.raises(Refused, match=why):
            find_memory(OWN)
    finally:
        os.close(descriptor)


def test_reading_makes_no_pages_where_the_owner_left_holes(published: int) -> None:
    """Pages that a reader makes count as its own: 128 empty files of one user would cost the agent 400 MB."""
    found = find_memory(OWN)
    assert found is not None
    assert found[0 : layout.TOTAL_BYTES] == bytes(layout.TOTAL_BYTES)
    assert os.fstat(published).st_blocks == 0


def test_reasons_for_a_refusal_are_few_whatever_the_memory_says(published: int) -> None:
    """They are counted and logged by what they say."""
    found = set()
    for version in (2, 77, 2**32 - 1):
        try:
            look(published, layout.MAGIC.to_bytes(8, "little") + version.to_bytes(4, "little"))
        except Refused as refused:
            found.add(str(refused))
    assert found == {"has another layout version"}


def test_a_process_without_memory_or_without_existence_has_none() -> None:
    assert find_memory(OWN) is None
    assert find_memory(Path("/proc/4194305")) is None


def look(published: int, content: bytes, at: int = 0) -> list[TracedSecond]:
    os.pwrite(published, content, at)
    found = find_memory(OWN)
    assert found is not None
    return TracedProcess(1, "k", found).look(own_pid=1, start_ticks=1, since_second=0, now_second=10)


def test_memory_with_nonsense_in_it_is_refused(published: int) -> None:
    with pytest.raises(Refused, match="is not ours"):
        look(published, os.urandom(20), at=0)


def test_memory_that_is_written_without_end_costs_milliseconds(published: int) -> None:
    with pytest.raises(Refused, match="written without end"):
        look(published, (1).to_bytes(8, "little"), at=24)


def even(share: float) -> list[int]:
    return [round(share * FULL)] * layout.SLOTS_MAX


def test_contexts_in_turn_add_up_and_contexts_at_once_overlap() -> None:
    assert united_seconds([0.3, 0.5], [even(0.3), even(0.5)], overlapping=False) == pytest.approx(0.8, abs=1e-4)
    assert united_seconds([0.3, 0.5], [even(0.3), even(0.5)], overlapping=True) == pytest.approx(0.65, abs=1e-4)
    assert united_seconds([0.7, 0.5], [even(0.7), even(0.5)], overlapping=False) == 1.0
    assert independent_seconds([0.5, 0.5]) == 0.75


@settings(max_examples=20)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.booleans())
def test_a_union_lies_between_the_longest_and_the_sum(shares: list[float], overlapping: bool) -> None:
    whole = united_seconds(shares, [even(share) for share in shares], overlapping=overlapping)
    assert max(shares) <= whole <= min(1.0, sum(shares)) + 1e-12


def second(at: int, bound: float | None, *, complete: bool = True) -> TracedSecond:
    busy = {} if bound is None else {"d": Busy(bound_seconds=bound, busy_seconds=bound, slots=tuple(even(bound)))}
    return TracedSecond(at, 1.0, lost=False, devices=busy, complete=complete)


def book(pids: set[int], bound: float | None, *, driver_busy: bool, complete: bool = True) -> Book:
    made = Book(10.0, 10.0, 75.0)
    for at in range(10):
        made.hear(at, 0.0, "d", pids, {None: driver_busy})
    made.add(Process("one", 1), [second(at, bound, complete=complete) for at in range(10)], 0.0)
    return made


def test_a_cell_tells_device_and_process_alike() -> None:
    ((told, stretches),) = book({1}, 0.06, driver_busy=True).close(11, 10)
    assert (stretches[0].start_at, stretches[0].seconds) == (0.0, 10)
    assert stretches[0].bound_seconds == pytest.approx(0.6)
    assert (told[0].covered_seconds, told[0].lost_seconds) == (10.0, 0.0)


def test_a_process_that_is_not_traced_leaves_the_device_unknown() -> None:
    ((told, stretches),) = book({1, 2}, 0.06, driver_busy=True).close(11, 10)
    assert stretches == []
    assert told[0].busy.bound_seconds == pytest.approx(0.6)


def test_a_process_that_holds_a_device_and_runs_nothing_is_known_to_be_idle() -> None:
    ((told, stretches),) = book({1}, None, driver_busy=False).close(11, 10)
    assert (stretches[0].bound_seconds, stretches[0].seconds) == (0.0, 10)
    assert (told[0].covered_seconds, told[0].busy.bound_seconds) == (10.0, 0.0)


def test_a_process_that_used_a_device_of_unknown_name_is_not_taken_for_idle() -> None:
    ((told, stretches),) = book({1}, None, driver_busy=False, complete=False).close(11, 10)
    assert (told, stretches) == ([], [])


def test_a_process_that_claims_a_device_it_is_not_on_is_not_heard() -> None:
    ((told, stretches),) = book({2}, 0.9, driver_busy=True).close(11, 10)
    assert (told, stretches) == ([], [])


def test_a_process_that_ended_before_the_driver_was_asked_again_is_heard_all_the_same() -> None:
    made = Book(10.0, 10.0, 75.0)
    for at in range(20):
        made.hear(at, 0.0, "d", {1} if at < 10 else set(), {None: at < 10})
    made.add(Process("one", 1), [second(at, 0.5) for at in range(12)], 0.0)
    made.end("one", 11)
    told = [part for cell, _ in made.close(30, 20) for part in cell]
    assert [(one.start_at, one.busy.bound_seconds) for one in told] == [(0.0, 5.0), (10.0, 1.0)]


def test_busy_for_the_driver_and_silent_for_ten_seconds_is_unknown() -> None:
    ((told, stretches),) = book({1}, 0.0, driver_busy=True).close(11, 10)
    assert (stretches, told[0].covered_seconds, told[0].lost_seconds) == ([], 0.0, 10.0)
    ((told, stretches),) = book({1}, 0.0, driver_busy=False).close(11, 10)
    assert (stretches[0].bound_seconds, told[0].lost_seconds) == (0.0, 0.0)
