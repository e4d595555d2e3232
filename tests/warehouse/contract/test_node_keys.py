from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.contract.node_keys import POD, POD_NAME, SLURM, KnownAttempt, NodeKey, find_attempt, parse_node_key


def known(key: str, start_at: float | None, end_at: float | None, scheduler_id: str = "77") -> KnownAttempt:
    return KnownAttempt(key, "c", frozenset({scheduler_id}), start_at, end_at)


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
    assert find_attempt(NodeKey("c", SLURM, "77"), REQUEUED) is None


def test_two_attempts_that_fit_equally_are_none() -> None:
    assert find_attempt(NodeKey("c", SLURM, "77", 1000), [known("a", 1000, None), known("b", 1000, None)]) is None


def test_the_key_of_a_finished_record_is_no_nodes_key() -> None:
    assert parse_node_key("c/77#0:1000") is None


NAMES = st.text("abcXYZ019-_./", min_size=1, max_size=12)


@given(NAMES, st.sampled_from([SLURM, POD, POD_NAME]), NAMES, st.none() | st.integers(0, 4_000_000_000))
def test_a_key_that_is_written_is_read_again(cluster: str, kind: str, scheduler_id: str, start: int | None) -> None:
    key = NodeKey(cluster, kind, scheduler_id, None if start is None else float(start))
    assert parse_node_key(str(key)) == key
