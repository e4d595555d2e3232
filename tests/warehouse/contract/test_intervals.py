"""Laws of interval unions, and small cases worked by hand."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from warehouse.contract.intervals import clip, intersect, length, subtract, union

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def points(intervals: list[tuple[int, int]]) -> set[int]:
    """Give the integer cells that intervals cover: the slow way that cannot be wrong."""
    return {cell for start, end in intervals for cell in range(start, end)}


def test_overlapping_nested_and_touching_intervals_become_one() -> None:
    assert union([(5, 9), (0, 3), (1, 2), (3, 4)]) == [(0, 4), (5, 9)]


def test_what_is_left_of_ten_seconds_after_two_pieces_is_three_pieces() -> None:
    assert subtract([(0, 10)], [(2, 3), (5, 7)]) == [(0, 2), (3, 5), (7, 10)]


def test_clipping_keeps_the_inside() -> None:
    assert clip([(0, 4), (5, 9), (20, 30)], 3, 8) == [(3, 4), (5, 8)]


@given(INTERVALS)
def test_a_union_is_disjoint_sorted_and_covers_the_same_points(intervals: list[tuple[int, int]]) -> None:
    merged = union(intervals)
    assert points(merged) == points(intervals)
    assert all(one[1] < two[0] for one, two in itertools.pairwise(merged))
    assert length(merged) == len(points(intervals))


@given(INTERVALS, INTERVALS)
def test_difference_and_intersection_split_the_first_list(
    one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    left, right = union(one), union(two)
    assert points(subtract(left, right)) == points(left) - points(right)
    assert points(intersect(left, right)) == points(left) & points(right)
    assert length(subtract(left, right)) + length(intersect(left, right)) == length(left)
