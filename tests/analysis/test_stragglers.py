"""What ranks pay that wait for the slowest."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.stragglers import slowest, tax, waiting

STEPS = st.integers(1, 5).flatmap(
    lambda steps: st.lists(st.lists(st.floats(0.01, 100.0), min_size=steps, max_size=steps), min_size=1, max_size=6)
)


def test_one_rank_of_four_that_takes_twice_as_long_by_hand() -> None:
    # The pace is 2 a step; alone three ranks would take 1 and one 2: 2 x (3 x 1 + 0.5) / 4 = 1.75.
    times = [[1.0, 1.0], [1.0, 1.0], [2.0, 2.0], [1.0, 1.0]]
    assert tax(times) == pytest.approx(1.75)
    assert slowest(times) == 2
    # Three ranks wait 1 each step; had the slow one been usual, all four would have saved 1.
    assert waiting(times, 2).waited == (3.0, 3.0)
    assert waiting(times, 2).avoidable == (4.0, 4.0)


@pytest.mark.parametrize(("ranks", "harmonic"), [(2, 1.5), (4, 25 / 12), (8, 761 / 280)])
def test_exponential_steps_pay_the_harmonic_number(ranks: int, harmonic: float) -> None:
    random = Random(3)
    times = [[random.expovariate(1.0) for _ in range(40_000)] for _ in range(ranks)]
    assert tax(times) == pytest.approx(harmonic, rel=0.03)


def test_equal_ranks_pay_nothing_and_idle_ranks_are_no_answer() -> None:
    assert tax([[2.0, 3.0], [2.0, 3.0]]) == pytest.approx(1.0)
    assert tax([[0.0], [1.0]]) is None
    assert tax([]) is None


@given(STEPS)
def test_the_tax_is_at_least_one(times: list[list[float]]) -> None:
    found = tax(times)
    assert found is not None
    assert found >= 1 - 1e-9


@given(STEPS)
def test_no_more_is_avoidable_than_the_slowest_rank_took(times: list[list[float]]) -> None:
    found = waiting(times, slowest(times))
    for step, avoidable, waited in zip(zip(*times, strict=True), found.avoidable, found.waited, strict=True):
        assert 0 <= avoidable <= max(step) * len(step)
        assert waited >= 0
