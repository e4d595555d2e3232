"""Speeds on a shared card, and step times of fused members."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.fusing import Fill, fit_curve, most_beside, most_fused, stretch_from_fill
from analysis.interference import Demand, both_keep, shared_speed

RATIO = st.floats(0, 1)


def test_two_that_never_pause_run_at_half_when_they_take_turns() -> None:
    speed = shared_speed(Demand(1.0), [Demand(1.0)])
    assert speed.low == pytest.approx(0.5 * 0.92)
    assert speed.likely == pytest.approx(0.5**0.5)
    assert shared_speed(Demand(1.0), []).low == 1


def test_likely_is_no_faster_than_memory_traffic_allows() -> None:
    # Memory alone: 1 / (1 + .9 x .9) = .552.
    assert shared_speed(Demand(1.0, 0.9), [Demand(1.0, 0.9)]).likely == pytest.approx(1 / 1.81)


def test_a_pair_keeps_nine_tenths_while_it_meets_less_than_a_quarter_of_the_time() -> None:
    # (1 + u v) ** -1/2 >= .9 up to u v = .2346.
    assert both_keep(Demand(0.48), Demand(0.48), 0.9)
    assert not both_keep(Demand(0.49), Demand(0.49), 0.9)


@given(RATIO, RATIO, st.integers(1, 6), RATIO)
def test_speeds_fall_with_company_and_with_what_it_needs(busy: float, dram: float, count: int, other: float) -> None:
    own, company = Demand(busy, dram), Demand(other, dram)
    one, more = shared_speed(own, [company] * count), shared_speed(own, [company] * (count + 1))
    assert 0 < more.low <= one.low <= one.likely <= one.high <= 1
    assert more.likely <= one.likely + 1e-12
    heavier = shared_speed(own, [Demand(min(1.0, other + 0.1), dram)] * count)
    assert heavier.likely <= one.likely + 1e-12


def test_a_curve_gives_back_the_line_it_came_from() -> None:
    curve = fit_curve([(1, 3.0), (2, 4.0), (4, 6.0)])
    assert curve.seconds(10).likely == pytest.approx(12.0)
    assert curve.seconds(0.1).likely == 3.0
    assert curve.seconds(10).low < 12.0 < curve.seconds(10).high
    with pytest.raises(ValueError, match="at least two"):
        fit_curve([(2, 1.0), (2, 1.1)])


def test_counters_of_one_member_foretell_a_fused_step() -> None:
    # Ten members at SM activity .06, busy half of the time, warps .02: 1 + 9 x .06; at most 1 + 9 x .5; at least 1.
    found = stretch_from_fill(Fill(0.5, 0.06, 0.02, 0.01), 10)
    assert found is not None
    assert (found.low, found.likely, found.high) == pytest.approx((1.0, 1.54, 5.5))
    assert stretch_from_fill(Fill(0.5), 10) is None


@given(RATIO, RATIO, RATIO, RATIO, st.integers(1, 40))
def test_a_fused_step_takes_no_less_than_one_and_no_more_than_all(
    busy: float, active: float, warps: float, dram: float, copies: int
) -> None:
    found = stretch_from_fill(Fill(busy, active, warps, dram), copies)
    assert found is not None
    assert 1 <= found.low <= found.high <= copies


def test_fused_members_pay_the_framework_once() -> None:
    assert (most_fused(16, 1.5, 1.5), most_beside(16, 1.5, 1.5)) == (9, 5)
    assert (most_fused(40, 1.5, 1.5), most_beside(40, 1.5, 1.5)) == (25, 13)
