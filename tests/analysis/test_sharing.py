"""Shared cards: what each used is what samples tell, the card counts once, and shares never exceed it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.sharing import Told, split
from tests.analysis.worlds import T0, World, allocation, attempt, job, sample
from warehouse.contract.model import Device

HOUR = 3600.0


def card(world: World, shares: dict[int, list[float | None]], busy: float = 0.71, **words: Any) -> World:
    """Fill a store with an hour of one card that several hold; ``shares`` are those of each third of the hour."""
    return world.fill(
        [
            Device("GPU-0", "c", "n0", T0, T0 + HOUR),
            *(record for number in shares for record in (job(number), attempt(number), allocation(number, **words))),
        ],
        [
            sample(at, "GPU-0", number, driver_util_ratio=busy, process_count=1.0, share_ratio=thirds[int(at // 1200)])
            for number, thirds in shares.items()
            for at in range(0, 3600, 60)
        ],
    )


def told(world: World) -> dict[str, Any]:
    """Give allocated and used GPU-seconds of each job."""
    rows = world.ask("waste", by="job")["rows"]
    return {row["key"]: (row["gpu_seconds"]["allocated"], row["gpu_seconds"]["used"]) for row in rows}


def test_u01_three_equal_sharers_of_a_card_that_is_71_percent_busy_are_71_percent_of_one_card(world: World) -> None:
    card(world, {number: [1 / 3] * 3 for number in (1, 2, 3)})
    assert told(world) == {f"c/{number}#0": (pytest.approx(1200.0), pytest.approx(1200 * 0.71)) for number in (1, 2, 3)}
    fleet = world.ask("fleet")
    assert fleet["used_ratio"] == pytest.approx(0.71)
    assert (fleet["gpu_seconds"]["capacity"], fleet["gpu_seconds"]["allocated"]) == (HOUR, pytest.approx(HOUR))


def test_a_card_is_split_by_what_each_used(world: World) -> None:
    card(world, {1: [0.75] * 3, 2: [0.25] * 3, 3: [0.0] * 3})
    assert told(world) == {
        "c/1#0": (pytest.approx(2700.0), pytest.approx(2700 * 0.71)),
        "c/2#0": (pytest.approx(900.0), pytest.approx(900 * 0.71)),
        "c/3#0": (0.0, 0.0),
    }


def test_shares_that_change_count_while_they_stand(world: World) -> None:
    card(world, {1: [1.0, 0.5, 0.0], 2: [0.0, 0.5, 1.0]}, busy=1.0)
    assert told(world) == {"c/1#0": (1800.0, 1800.0), "c/2#0": (1800.0, 1800.0)}


def test_what_nobody_tells_is_split_equally(world: World) -> None:
    card(world, {1: [None] * 3, 2: [None] * 3}, busy=0.5)
    assert told(world) == {"c/1#0": (1800.0, 900.0), "c/2#0": (1800.0, 900.0)}


def test_of_whom_nothing_is_told_shares_the_rest(world: World) -> None:
    card(world, {1: [0.6] * 3, 2: [None] * 3, 3: [None] * 3}, busy=1.0)
    assert {key: held for key, (held, _) in told(world).items()} == pytest.approx(
        {"c/1#0": 2160.0, "c/2#0": 720.0, "c/3#0": 720.0}
    )


def test_slices_that_fit_the_card_keep_their_size_whatever_was_used(world: World) -> None:
    card(world, {1: [0.9] * 3, 2: [0.1] * 3}, share_ratio=0.5)
    assert {key: held for key, (held, _) in told(world).items()} == {"c/1#0": 1800.0, "c/2#0": 1800.0}


def test_a_card_held_alone_is_whole_whatever_samples_say(world: World) -> None:
    card(world, {1: [0.4] * 3})
    assert {key: held for key, (held, _) in told(world).items()} == {"c/1#0": HOUR}


def test_two_holdings_of_one_owner_share_what_is_told_of_it() -> None:
    half = Told(np.array([0.0]), np.array([60.0]), np.array([0.6]))
    rest = Told(np.array([0.0]), np.array([60.0]), np.array([0.4]))
    zero, minute, whole = np.zeros(3), np.full(3, 60.0), np.ones(3)
    found = split(zero, minute, whole, np.array([7, 7, 8]), [half, half, rest])
    assert sorted(found) == [(0, 0.0, 60.0, 0.3), (1, 0.0, 60.0, 0.3), (2, 0.0, 60.0, 0.4)]


spans = st.tuples(st.integers(0, 20), st.integers(0, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))
steps = st.none() | st.lists(
    st.tuples(st.integers(0, 30), st.floats(0, 1)), min_size=1, max_size=4, unique_by=lambda s: s[0]
)
claims = st.lists(
    st.tuples(spans, st.sampled_from([0.25, 0.5, 1.0, 2.0]), st.integers(0, 2), steps), min_size=1, max_size=5
)


def as_told(given_steps: list[tuple[int, float]] | None) -> Told | None:
    if given_steps is None:
        return None
    ordered = sorted(given_steps)
    start = np.array([float(at) for at, _ in ordered])
    return Told(start, np.append(start[1:], start[-1] + 5.0), np.array([share for _, share in ordered]))


@given(claims)
def test_shares_of_one_instant_never_exceed_the_card_and_nobody_holds_it_outside_the_own_time(
    cases: list[tuple[tuple[int, int], float, int, list[tuple[int, float]] | None]],
) -> None:
    by_owner = {owner: as_told(given_steps) for _, _, owner, given_steps in cases}
    start, end = (np.array([float(span[side]) for span, _, _, _ in cases]) for side in (0, 1))
    weight, owner = np.array([one[1] for one in cases]), np.array([one[2] for one in cases])
    found = split(start, end, weight, owner, [by_owner[one] for one in owner.tolist()])
    for at in np.arange(0.5, 40.0).tolist():
        held = [(row, share) for row, since, until, share in found if since <= at < until]
        assert sum(share for _, share in held) <= 1 + 1e-9
        assert {row for row, _ in held} == {row for row in range(len(cases)) if start[row] <= at < end[row]}
    assert {row for row, *_ in found} == set(range(len(cases)))
    for row in range(len(cases)):
        own = sorted((since, until) for one, since, until, _ in found if one == row)
        assert all(before[1] == after[0] for before, after in pairwise(own))
