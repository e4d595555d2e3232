from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.contract.duty_cycle import Phase, extrapolated, phases


def test_seconds_make_up_phases() -> None:
    seconds = [(0.5, 0.1), (1.0, 0.2), (0.0, 0.0), (0.0, 0.0), (1.0, 0.0), (0.25, 0.25), (0.0, 0.0)]
    assert phases(seconds) == [(1.5, pytest.approx(0.3)), (1.25, 0.25)]
    assert phases([]) == []


def test_extrapolation_worked_by_hand() -> None:
    # Three phases of 10 s in 180 s with 1, 2 and 3 s busy: rate 0.2; deviations -1, 0, 1 from 2 s per phase.
    found = extrapolated([Phase(10, 1), Phase(10, 2), Phase(10, 3)], 180.0)
    error = math.sqrt((1 - 30 / 180) * 2 / (2 * 3)) / 10
    assert found == pytest.approx((max(6, 36 - 180 * 4.303 * error), 36.0, 36.0 + 180 * 4.303 * error))


def test_what_was_traced_throughout_is_exact() -> None:
    assert extrapolated([Phase(10, 1), Phase(20, 5)], 30.0) == (6, 6, 6)
    assert extrapolated([Phase(10, 1)], 10.0) == (1, 1, 1)


def test_one_phase_gives_only_what_must_be() -> None:
    assert extrapolated([Phase(10, 5)], 60.0) == (5, 30, 55)
    assert extrapolated([Phase(10, 5)], 60.0, math.inf) == (5, 30, math.inf)


def test_nothing_traced_gives_nothing() -> None:
    assert extrapolated([], 60.0) is None
    assert extrapolated([Phase(0, 0)], 60.0) is None


@settings(max_examples=200, deadline=None)
@given(
    on=st.lists(st.tuples(st.floats(0.001, 100), st.floats(0, 1)), min_size=1, max_size=20),
    unseen=st.floats(0, 1e5),
)
def test_estimates_of_busy_time_are_ordered_and_possible(on: list[tuple[float, float]], unseen: float) -> None:
    busy = [Phase(armed, armed * share) for armed, share in on]
    total = math.fsum(phase.armed_seconds for phase in busy) + unseen
    found = extrapolated(busy, total)
    assert found is not None
    slack = 1e-6 * (1 + total)
    assert math.fsum(phase.seen for phase in busy) - slack <= found.low <= found.likely + slack
    assert found.likely - slack <= found.high <= total + slack


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    chance, held, runs = random.Random(11), 0, 400
    for _ in range(runs):
        cycles = [[chance.betavariate(2, 5) * 10 for _ in range(6)] for _ in range(30)]  # six tenths of a minute each
        truth = math.fsum(map(math.fsum, cycles))
        found = extrapolated([Phase(10, chance.choice(cycle)) for cycle in cycles], 1800.0)
        assert found is not None
        held += found.low <= truth <= found.high
    assert 0.9 <= held / runs <= 1
