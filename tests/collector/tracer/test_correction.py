from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.tracer.correction import (
    Estimate,
    Phase,
    Stretch,
    corrected_ratio,
    corrected_wall_seconds,
    extrapolated,
    launch_cost,
    phases,
    raw_ratio,
    removed_seconds,
)

MICROSECOND = Estimate(1e-6, 1e-6, 1e-6)


def test_the_correction_worked_by_hand() -> None:
    # 10 s, of which 0.6 s kernels; 400,000 launches at 1 us, 100,000 of which ended a gap; 0.4 s of OVERHEAD.
    stretch = Stretch(10.0, 0.6, 0.4, 400_000, 100_000)
    removed = removed_seconds(stretch, MICROSECOND)
    assert removed == pytest.approx((0.5, 0.4 + 0.4 * 0.94, 0.8))
    assert corrected_wall_seconds(stretch, MICROSECOND) == pytest.approx((9.2, 9.224, 9.5))
    assert raw_ratio(stretch) == pytest.approx(0.06)
    assert corrected_ratio(stretch, MICROSECOND) == pytest.approx((0.6 / 9.5, 0.6 / 9.224, 0.6 / 9.2))


def test_a_device_that_is_never_idle_is_not_corrected() -> None:
    stretch = Stretch(10.0, 10.0, 3.0, 1e9, 1e9)
    assert corrected_ratio(stretch, MICROSECOND) == (1.0, 1.0, 1.0)
    assert corrected_wall_seconds(stretch, MICROSECOND) == (10.0, 10.0, 10.0)


def test_a_device_that_is_never_busy_stays_so() -> None:
    assert corrected_ratio(Stretch(10.0, 0.0, 20.0, 1e9, 0), MICROSECOND) == (0.0, 0.0, 0.0)


def test_no_time_has_no_ratio() -> None:
    assert raw_ratio(Stretch(0.0, 0.0, 0.0, 0, 0)) is None
    assert corrected_ratio(Stretch(0.0, 0.0, 0.0, 0, 0), MICROSECOND) is None


@pytest.mark.parametrize(
    ("added", "spread", "cost"),
    [(1000, 200, (0.8e-6, 1e-6, 1.2e-6)), (-50, 200, (0.0, 0.0, 0.2e-6)), (100, 200, (0.0, 0.1e-6, 0.3e-6))],
)
def test_a_cost_has_its_spread_and_is_never_negative(
    added: float, spread: float, cost: tuple[float, float, float]
) -> None:
    assert launch_cost(added, spread) == pytest.approx(cost)


seconds = st.floats(0, 1e6)
counts = st.floats(0, 1e9)
costs = st.tuples(st.floats(0, 1e-3), st.floats(0, 1e-3), st.floats(0, 1e-3)).map(
    lambda three: Estimate(*sorted(three))
)
stretches = st.builds(Stretch, seconds, seconds, seconds, counts, counts)


@settings(max_examples=300, deadline=None)
@given(stretch=stretches, cost=costs)
def test_ratios_are_ordered_and_lie_between_the_raw_one_and_one(stretch: Stretch, cost: Estimate) -> None:
    ratio, raw = corrected_ratio(stretch, cost), raw_ratio(stretch)
    if ratio is None or raw is None:
        assert stretch.wall_seconds == 0
        return
    assert 0 <= raw <= ratio.low <= ratio.likely <= ratio.high <= 1
    wall = corrected_wall_seconds(stretch, cost)
    assert stretch.busy_seconds <= wall.low <= wall.likely <= wall.high <= stretch.wall_seconds * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(stretch=stretches)
def test_without_cost_and_overhead_nothing_changes(stretch: Stretch) -> None:
    free = Stretch(stretch.wall_seconds, stretch.gpu_bound_seconds, 0.0, stretch.launches_count, stretch.gaps_count)
    raw = raw_ratio(free)
    assert corrected_ratio(free, Estimate(0.0, 0.0, 0.0)) == (None if raw is None else pytest.approx((raw, raw, raw)))


def test_an_untraced_run_is_found_again_where_the_cost_is_known() -> None:
    # Untraced: 50,000 kernels of 10 us, each launched 40 us after the last ended. Traced, each launch takes 5 us more.
    kernels, untraced = 50_000, 50_000 * 50e-6
    stretch = Stretch(untraced + kernels * 5e-6, kernels * 10e-6, 0.0, kernels, kernels)
    assert corrected_wall_seconds(stretch, Estimate(5e-6, 5e-6, 5e-6)) == pytest.approx((untraced,) * 3)


# ---- duty cycle


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
