from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from collector.job_source import Holding
from collector.owners import Owner, Owners

ALICE = Holding("a", "GPU-0", 0.0, 100.0, pids=frozenset({1, 2}))
BOB = Holding("b", "GPU-0", 100.0, None, pids=frozenset({3}))
OTHER = Holding("c", "GPU-1", 0.0, None, pids=frozenset({9}))
ALL = [ALICE, BOB, OTHER]


def owner_of(holdings: list[Holding], device: str, start_at: float, end_at: float, pids: Iterable[int]) -> Owner:
    owners = Owners(None)
    owners.holdings = tuple(holdings)
    (owner,) = owners.of_device(device, start_at, end_at, pids)
    return owner


def test_who_holds_the_device_at_that_time_owns_it() -> None:
    assert owner_of(ALL, "GPU-0", 10, 20, ()) == Owner("a", 1.0, "scheduler")
    assert owner_of(ALL, "GPU-0", 110, 120, {3}) == Owner("b", 1.0, "scheduler")


def test_an_end_is_half_open() -> None:
    assert owner_of(ALL, "GPU-0", 90, 100, ()).attempt_key == "a"
    assert owner_of(ALL, "GPU-0", 100, 110, ()).attempt_key == "b"


def test_a_device_that_nobody_holds_has_no_owner() -> None:
    assert owner_of(ALL, "GPU-2", 10, 20, ()) == Owner(None, None, None)


def test_processes_name_the_owner_where_the_scheduler_is_silent() -> None:
    assert owner_of(ALL, "GPU-2", 10, 20, {9}) == Owner("c", 1.0, "process")


def test_a_process_of_somebody_else_makes_it_ambiguous() -> None:
    assert owner_of(ALL, "GPU-0", 10, 20, {1, 9}) == Owner(None, None, "ambiguous")


def test_a_process_that_nobody_knows_changes_nothing() -> None:
    assert owner_of(ALL, "GPU-0", 10, 20, {4711}).attempt_key == "a"


def test_two_holders_at_once_are_ambiguous() -> None:
    shared = [ALICE, Holding("b", "GPU-0", 0.0, 50.0)]
    assert owner_of(shared, "GPU-0", 10, 20, {1}) == Owner(None, None, "ambiguous")


def test_processes_of_two_attempts_on_a_free_device_are_ambiguous() -> None:
    assert owner_of(ALL, "GPU-2", 10, 20, {1, 9}) == Owner(None, None, "ambiguous")


@given(st.sets(st.sampled_from([1, 2, 3, 9, 77])), st.floats(0, 200), st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]))
def test_nobody_is_named_who_neither_holds_nor_runs(pids: set[int], at: float, device: str) -> None:
    owner = owner_of(ALL, device, at, at + 10, pids)
    if owner.attempt_key is not None:
        named = next(held for held in ALL if held.attempt_key == owner.attempt_key)
        holds = named.device_uuid == device and named.start_at <= at + 5 < (named.end_at or 1e9)
        assert holds or (named.pids or frozenset()) & pids
