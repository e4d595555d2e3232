from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.aggregate import CLOCK_WENT_BACK, Aggregator, Moment, Row
from collector.source import Reading

START = 1_000_000.0  # a full multiple of ten


def aggregator(**changes: float) -> Aggregator:
    defaults = {"interval_seconds": 1.0, "cadence_seconds": 10.0, "gap_intervals": 2.5, "least_covered_ratio": 0.5}
    return Aggregator("nvml", **{**defaults, **changes})


def moment(offset: float, step: float = 0.0) -> Moment:
    return Moment(START + offset + step, 500.0 + offset)


def feed(into: Aggregator, offset: float, step: float = 0.0, **values: float) -> list[Row]:
    return into.add(moment(offset, step), [Reading("GPU-0", values)])


def test_ten_seconds_make_a_row_on_the_grid_with_the_mean() -> None:
    made = aggregator()
    rows = [row for second in range(11) for row in feed(made, second + 0.003, driver_util_ratio=second / 10)]
    assert [(row.start_at, row.end_at) for row in rows] == [(START, START + 10)]
    # The first reading only says where the time begins; 0.1 to 1.0 average to 0.55.
    assert rows[0].columns == {"driver_util_ratio": 0.55}


def test_memory_power_and_temperature_keep_their_highest() -> None:
    made = aggregator()
    rows = [row for second in range(11) for row in feed(made, second, power_watts=100 + second, sm_clock_hertz=1e9)]
    assert rows[0].columns == {"power_watts": 105.5, "power_watts_max": 110.0, "sm_clock_hertz": 1e9}


def test_energy_is_the_sum_and_absent_when_a_part_is_missing() -> None:
    made = aggregator()
    whole = [row for second in range(11) for row in feed(made, second, energy_joules=50.0)]
    assert whole[0].columns == {"energy_joules": 500.0}
    partly = [
        row
        for second in range(11, 21)
        for row in (feed(made, second, power_watts=5) if second == 15 else feed(made, second, energy_joules=50.0))
    ]
    assert "energy_joules" not in partly[0].columns


def test_a_start_in_the_middle_of_a_cell_gives_a_shorter_row() -> None:
    made = aggregator()
    rows = [row for second in range(4, 11) for row in feed(made, second, driver_util_ratio=1.0)]
    assert [(row.start_at - START, row.end_at - START) for row in rows] == [(4, 10)]


def test_an_end_in_the_middle_of_a_cell_gives_a_shorter_row() -> None:
    made = aggregator()
    for second in range(4):
        feed(made, second, driver_util_ratio=1.0)
    assert [(row.start_at - START, row.end_at - START) for row in made.flush()] == [(0, 3)]


def test_one_missed_reading_is_bridged_and_a_longer_silence_is_a_gap() -> None:
    made = aggregator()
    seconds = [0, 1, 2, 4, 5, 9, 10]  # 3 is missed; 6, 7 and 8 too
    rows = [row for second in seconds for row in feed(made, second, driver_util_ratio=1.0)]
    assert [(row.start_at - START, row.end_at - START) for row in rows] == [(0, 5), (9, 10)]


def test_a_longer_reading_weighs_more() -> None:
    made = aggregator()
    rows = [row for second in [0, 2, 3] for row in feed(made, second, driver_util_ratio=1.0 if second == 2 else 0.0)]
    rows += made.flush()
    assert rows[0].columns["driver_util_ratio"] == pytest.approx(2 / 3, abs=1e-4)


def test_a_device_that_falls_silent_closes_its_row_and_nobody_elses() -> None:
    made = aggregator()
    rows: list[Row] = []
    for second in range(11):
        devices = ["GPU-0", "GPU-1"] if second <= 4 else ["GPU-0"]
        rows += made.add(moment(second), [Reading(device, {"driver_util_ratio": 0.5}) for device in devices])
    assert [(row.device_uuid, row.start_at - START, row.end_at - START) for row in rows] == [
        ("GPU-1", 0, 4),
        ("GPU-0", 0, 10),
    ]


@pytest.mark.parametrize("value", [-0.01, 1.01, 42949672.95, float("nan"), float("inf")])
def test_an_impossible_value_is_left_out_and_counted(value: float) -> None:
    made = aggregator()
    for second in range(5):
        feed(made, second, driver_util_ratio=value if second == 3 else 0.5)
    assert made.flush()[0].columns == {"driver_util_ratio": 0.5}
    assert made.rejected == {"driver_util_ratio": 1}


def test_a_metric_that_is_known_for_less_than_half_of_the_row_is_absent() -> None:
    made = aggregator()
    for second in range(6):
        values = {"driver_util_ratio": 0.5}
        if second in {1, 2}:
            values["temperature_celsius"] = 50.0
        feed(made, second, **values)
    assert made.flush()[0].columns == {"driver_util_ratio": 0.5}


def test_a_step_of_the_wall_clock_ends_the_row_and_makes_no_spike() -> None:
    made = aggregator()
    rows: list[Row] = []
    for second in range(10):
        rows += feed(made, second, step=100.0 if second >= 5 else 0.0, energy_joules=10.0)
    rows += made.flush()
    assert [(row.start_at - START, row.end_at - START) for row in rows] == [(0, 4), (105, 109)]
    assert [row.columns["energy_joules"] for row in rows] == [40.0, 40.0]


def test_time_that_was_told_before_is_not_told_again_when_the_clock_goes_back() -> None:
    made = aggregator()
    for second in range(5):
        feed(made, second, driver_util_ratio=1.0)
    rows = [row for second in range(5, 9) for row in feed(made, second, step=-4.0, driver_util_ratio=1.0)]
    assert [(row.start_at - START, row.end_at - START) for row in rows] == [(0, 4)]
    assert made.flush() == []
    assert made.rejected == {CLOCK_WENT_BACK: 1}


def test_processes_seen_within_the_row_are_all_named() -> None:
    made = aggregator()
    for second, pids in enumerate([(), (1,), (1, 2), ()]):
        made.add(moment(second), [Reading("GPU-0", {"process_count": len(pids)}, pids)])
    assert made.flush()[0].pids == {1, 2}


@given(st.lists(st.floats(0.05, 8.0), min_size=1, max_size=60))
def test_rows_of_a_device_never_overlap_and_never_exceed_the_wall_time(steps: list[float]) -> None:
    made = aggregator()
    offset = 0.0
    rows = feed(made, 0.0, driver_util_ratio=1.0)
    for step in steps:
        offset += step
        rows += feed(made, offset, driver_util_ratio=1.0)
    rows += made.flush()
    assert all(first.end_at <= second.start_at + 1e-6 for first, second in pairwise(rows))
    assert sum(row.end_at - row.start_at for row in rows) <= offset + 0.5 + 1e-3  # edges are moved by half a second
    assert all(row.columns["driver_util_ratio"] == 1.0 for row in rows)
