from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.aggregate import Moment
from collector.recent import Recent
from collector.source import Reading


def fed(watts: list[float | None], capacity: int = 5) -> Recent:
    recent = Recent(interval_seconds=1.0, history_seconds=float(capacity))
    for second, value in enumerate(watts):
        values = {"driver_util_ratio": 0.5} if value is None else {"power_watts": value}
        recent.add(Moment(1000.0 + second, float(second)), {"nvml": [Reading("GPU-a", values)]})
    return recent


def test_the_last_of_it_stays_oldest_first() -> None:
    (series,) = fed([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], capacity=4).series("GPU-a")
    assert series.at == [1003.0, 1004.0, 1005.0, 1006.0]
    assert series.columns == {"power_watts": [4.0, 5.0, 6.0, 7.0]}


def test_only_what_is_newer_is_given_when_the_rest_is_known() -> None:
    (series,) = fed([1.0, 2.0, 3.0]).series("GPU-a", since_at=1001.0)
    assert (series.at, series.columns) == ([1002.0], {"power_watts": [3.0]})
    assert fed([1.0]).series("GPU-a", since_at=1000.0) == []
    assert fed([1.0]).series("GPU-b") == []


def test_a_missing_value_is_absent_and_not_zero() -> None:
    (series,) = fed([1.0, None, 3.0]).series("GPU-a")
    assert series.columns == {"power_watts": [1.0, None, 3.0], "driver_util_ratio": [None, 0.5, None]}


def test_a_clock_that_went_back_begins_anew() -> None:
    recent = fed([1.0, 2.0])
    recent.add(Moment(900.0, 2.0), {"nvml": [Reading("GPU-a", {"power_watts": 9.0})]})
    (series,) = recent.series("GPU-a")
    assert series.at == [900.0]


def test_no_history_is_kept_where_none_is_wanted() -> None:
    recent = Recent(interval_seconds=1.0, history_seconds=0.0)
    recent.add(Moment(1000.0, 0.0), {"nvml": [Reading("GPU-a", {"power_watts": 9.0})]})
    assert recent.series("GPU-a") == []
    assert recent.latest()["GPU-a", "nvml"].gauges == {"power_watts": 9.0}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.none() | st.integers(0, 4000).map(float), max_size=25), st.integers(1, 8))
def test_a_ring_tells_what_a_list_would(watts: list[float | None], capacity: int) -> None:
    found = fed(watts, capacity).series("GPU-a")
    expected = watts[-capacity:]
    if not expected:
        assert found == []
        return
    assert found[0].at == [1000.0 + second for second in range(len(watts) - len(expected), len(watts))]
    assert found[0].columns.get("power_watts", [None] * len(expected)) == pytest.approx(expected)
