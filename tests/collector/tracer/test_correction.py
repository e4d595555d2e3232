from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.tracer.correction import (
    Stretch,
    corrected_ratio,
    corrected_wall_seconds,
    launch_cost,
    raw_ratio,
    removed_seconds,
)
from warehouse.contract.duty_cycle import Estimate

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
