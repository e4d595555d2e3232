from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.contract import node_keys
from warehouse.contract.node_keys import (
    POD,
    POD_NAME,
    SLURM,
    START_SLACK_SECONDS,
    KnownAttempt,
    Match,
    NodeKey,
    match,
    parse_node_key,
)


def known(
    key: str, start_at: float | None, end_at: float | None, scheduler_id: str = "77", *, is_lost: bool = False
) -> KnownAttempt:
    return KnownAttempt(key, "c", frozenset({scheduler_id}), start_at, end_at, "sacct", is_lost)


def find_attempt(wanted: NodeKey, attempts: list[KnownAttempt]) -> str | None:
    """Give the one attempt that all rows of a key belong to."""
    (found,) = match(wanted, attempts)
    assert (found.since_at, found.until_at) == (None, None)
    return found.attempt_key


REQUEUED = [known("c/77#0:1000", 1000, 2000), known("c/77#0:2100", 2100, 3000), known("c/77#1:9000", 9000, None)]


@pytest.mark.parametrize(
    ("start_at", "key"),
    [
        (1000, "c/77#0:1000"),
        (1030, "c/77#0:1000"),
        (2100, "c/77#0:2100"),
        (2099, "c/77#0:2100"),
        (9004, "c/77#1:9000"),
        (5000, None),
        (100, None),
    ],
)
def test_a_nodes_key_finds_the_start_that_it_means(start_at: float, key: str | None) -> None:
    assert find_attempt(NodeKey("c", SLURM, "77", start_at), REQUEUED) == key


def test_an_attempt_keyed_by_its_database_index_is_found_by_its_start() -> None:
    assert find_attempt(NodeKey("c", SLURM, "77", 1003), [known("c/77#0:481516", 1000, None)]) == "c/77#0:481516"


def test_another_cluster_or_job_is_never_found() -> None:
    assert find_attempt(NodeKey("d", SLURM, "77", 1000), REQUEUED) is None
    assert find_attempt(NodeKey("c", SLURM, "7", 1000), REQUEUED) is None


def test_an_id_without_a_start_is_found_only_when_it_is_one_attempt() -> None:
    assert find_attempt(NodeKey("c", POD, "uid"), [known("p", 5, None, "uid")]) == "p"


def test_rows_of_a_number_without_a_start_belong_to_the_attempt_of_their_time() -> None:
    assert match(NodeKey("c", SLURM, "77"), REQUEUED) == [
        Match("c/77#0:1000", "by_time", "sacct", 880.0, 2000.0),
        Match("c/77#0:2100", "by_time", "sacct", 2000.0, 3120.0),
        Match("c/77#1:9000", "by_time", "sacct", 8880.0, None),
    ]


def test_a_number_alone_never_blames_the_only_job_that_is_known_for_another_time() -> None:
    (found,) = match(NodeKey("c", SLURM, "77"), [known("old", 1000, 2000)])
    assert (found.since_at, found.until_at) == (880.0, 2120.0)


def test_of_two_with_the_same_start_nobody_is_blamed_for_a_number_alone() -> None:
    assert match(NodeKey("c", SLURM, "77"), [known("a", 1000, 2000), known("b", 1000, 3000)]) == [
        Match(None, "ambiguous", None, 880.0, 3120.0)
    ]


def test_a_node_whose_clock_is_ahead_still_means_the_short_job_that_has_just_ended() -> None:
    (found,) = match(NodeKey("c", SLURM, "77", 1060), [known("short", 1000, 1030)])
    assert (found.attempt_key, found.certainty) == ("short", "near")


def test_a_start_that_was_lost_is_not_taken_for_the_one_that_follows_it() -> None:
    lost = known("first", 1000, 2000, is_lost=True)
    assert match(NodeKey("c", SLURM, "77", 2050), [lost]) == [Match(None, "unknown")]
    (found,) = match(NodeKey("c", SLURM, "77", 2050), [lost, known("second", 2040, None)])
    assert (found.attempt_key, found.certainty) == ("second", "by_start")


def test_a_job_that_is_started_again_within_a_minute_keeps_its_first_start() -> None:
    attempts = [known("first", 1000, 1010, is_lost=True), known("second", 1030, None)]
    assert find_attempt(NodeKey("c", SLURM, "77", 1001), attempts) == "first"
    assert find_attempt(NodeKey("c", SLURM, "77", 1031), attempts) == "second"
    assert find_attempt(NodeKey("c", SLURM, "77", 1028), attempts) == "second"  # a clock that is two seconds behind


TIMES = st.integers(0, 2000)
RUNS = st.lists(st.tuples(TIMES, st.none() | st.integers(0, 500)), max_size=6)


@given(RUNS, st.none() | TIMES)
def test_stretches_of_one_key_never_overlap_and_name_who_ran_then(
    runs: list[tuple[int, int | None]], start: int | None
) -> None:
    attempts = {
        str(at): known(str(at), begin, None if length is None else begin + length)
        for at, (begin, length) in enumerate(runs)
    }
    found = match(NodeKey("c", SLURM, "77", start), attempts.values())
    stretches = [(one.since_at, one.until_at or float("inf")) for one in found if one.since_at is not None]
    assert all(before[1] <= after[0] for before, after in pairwise(stretches))
    for one in found:
        if one.attempt_key is None:
            continue
        own = attempts[one.attempt_key]
        begin, end = own.start_at or 0.0, float("inf") if own.end_at is None else own.end_at
        since, until = (start, start) if one.since_at is None else (one.since_at, one.until_at or float("inf"))
        assert since is not None
        assert until is not None
        assert begin - START_SLACK_SECONDS <= since
        assert until <= end + START_SLACK_SECONDS


@pytest.mark.parametrize("kind", sorted(node_keys.GIVEN_ONCE))
def test_an_id_that_is_given_once_means_its_only_attempt_at_any_time(kind: str) -> None:
    assert match(NodeKey("c", kind, "x"), [known("p", 5, 6, "x")]) == [Match("p", "exact", "sacct")]


def test_two_attempts_that_fit_equally_are_none() -> None:
    assert find_attempt(NodeKey("c", SLURM, "77", 1000), [known("a", 1000, None), known("b", 1000, None)]) is None


def test_the_key_of_a_finished_record_is_no_nodes_key() -> None:
    assert parse_node_key("c/77#0:1000") is None


NAMES = st.text("abcXYZ019-_./", min_size=1, max_size=12)


@given(NAMES, st.sampled_from([SLURM, POD, POD_NAME]), NAMES, st.none() | st.integers(0, 4_000_000_000))
def test_a_key_that_is_written_is_read_again(cluster: str, kind: str, scheduler_id: str, start: int | None) -> None:
    key = NodeKey(cluster, kind, scheduler_id, None if start is None else float(start))
    assert parse_node_key(str(key)) == key
