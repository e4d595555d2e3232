"""Unions of half-open intervals ``[start, end)``, exact for integers.

Used for kernel intervals in nanoseconds and for stretches of time in seconds alike. A list of intervals is
*disjoint* when it is sorted by start and no two of its members overlap or touch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Number = TypeVar("Number", int, float)


def union(intervals: Iterable[tuple[Number, Number]]) -> list[tuple[Number, Number]]:
    """Merge intervals into a disjoint list. Empty ones (``end <= start``) vanish. O(n log n)."""
    merged: list[tuple[Number, Number]] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(disjoint: Iterable[tuple[Number, Number]]) -> Number | int:
    """Sum the lengths of disjoint intervals, in their own unit."""
    return sum((end - start for start, end in disjoint), 0)


def clip(intervals: Iterable[tuple[Number, Number]], start: Number, end: Number) -> list[tuple[Number, Number]]:
    """Keep what lies inside ``[start, end)``, in the given order."""
    cut = ((max(first, start), min(last, end)) for first, last in intervals)
    return [(first, last) for first, last in cut if last > first]


def subtract(
    minuend: Sequence[tuple[Number, Number]], subtrahend: Sequence[tuple[Number, Number]]
) -> list[tuple[Number, Number]]:
    """Give the parts of one disjoint list that another disjoint list does not cover. O(n + m)."""
    rest: list[tuple[Number, Number]] = []
    at = 0
    for start, end in minuend:
        while at < len(subtrahend) and subtrahend[at][1] <= start:
            at += 1
        cursor, ahead = start, at
        while ahead < len(subtrahend) and subtrahend[ahead][0] < end:
            if subtrahend[ahead][0] > cursor:
                rest.append((cursor, subtrahend[ahead][0]))
            cursor = max(cursor, subtrahend[ahead][1])
            ahead += 1
        if cursor < end:
            rest.append((cursor, end))
    return rest


def intersect(
    one: Sequence[tuple[Number, Number]], other: Sequence[tuple[Number, Number]]
) -> list[tuple[Number, Number]]:
    """Give what two disjoint lists both cover. O(n + m)."""
    both: list[tuple[Number, Number]] = []
    left = right = 0
    while left < len(one) and right < len(other):
        start, end = max(one[left][0], other[right][0]), min(one[left][1], other[right][1])
        if end > start:
            both.append((start, end))
        if one[left][1] < other[right][1]:
            left += 1
        else:
            right += 1
    return both
