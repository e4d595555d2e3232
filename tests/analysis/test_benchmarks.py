"""How benchmarks score."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.benchmark import at_least, at_most
from analysis.benchmarks._pairs import score


def test_pairs_are_scored_as_by_hand() -> None:
    # Found {a b c} {d}; true {a b} {c d}. Pairs found 3, of them right 1 (a b); true pairs 2.
    found = {"a": "1", "b": "1", "c": "1", "d": "2"}
    truth = {"a": "x", "b": "x", "c": "y", "d": "y"}
    assert score(found, truth).as_document() == {"pair_precision": 1 / 3, "pair_recall": 0.5, "pair_f1": 0.4}


def test_without_pairs_there_is_no_score() -> None:
    assert score({"a": "1"}, {"a": "x"}).as_document() == {
        "pair_precision": None,
        "pair_recall": None,
        "pair_f1": None,
    }


@given(st.lists(st.tuples(st.sampled_from("123"), st.sampled_from("xyz")), min_size=2, max_size=12))
def test_counted_pairs_equal_listed_pairs(items: list[tuple[str, str]]) -> None:
    found = {str(number): group for number, (group, _) in enumerate(items)}
    truth = {str(number): label for number, (_, label) in enumerate(items)}
    pairs = list(itertools.combinations(found, 2))
    together = [pair for pair in pairs if found[pair[0]] == found[pair[1]]]
    right = sum(1 for one, other in together if truth[one] == truth[other])
    expected = right / len(together) if together else None
    assert score(found, truth).precision == pytest.approx(expected)


def test_a_bar_without_a_value_does_not_hold() -> None:
    assert not at_least("f1", None, 0.5).holds
    assert not at_most("lost", None, 0.5).holds
    assert at_least("f1", 0.5, 0.5).holds
    assert at_most("lost", 0.5, 0.5).holds
