"""Clocks that jump: gaps and never spikes, one word for each step, no time told twice."""

from __future__ import annotations

from itertools import pairwise

import pytest

from collector.aggregate import CLOCK_WENT_BACK, Aggregator, Moment, Row
from collector.clock import ClockWatch
from collector.source import Reading

START = 1_000_000.0


def rounds(
    walls: list[float], monotonics: list[float], watts: float = 100.0
) -> tuple[list[Row], Aggregator, ClockWatch]:
    """Read one device once per round: 100 W, and as many joules as passed by the monotonic clock."""
    made = Aggregator("nvml", interval_seconds=1.0, cadence_seconds=10.0, gap_intervals=2.5, least_covered_ratio=0.5)
    watch, rows, before = ClockWatch(2.5), [], monotonics[0]
    for wall, monotonic in zip(walls, monotonics, strict=True):
        values = {"power_watts": watts, "energy_joules": watts * (monotonic - before), "driver_util_ratio": 1.0}
        watch.look(Moment(wall, monotonic))
        rows += made.add(Moment(wall, monotonic), [Reading("GPU-0", values)])
        before = monotonic
    return rows + made.flush(), made, watch


def test_u29_steps_of_the_wall_clock_make_gaps_one_warning_each_and_no_time_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = [0.0] * 10 + [-90.0] * 10 + [3600.0] * 30
    walls = [START + second + step for second, step in enumerate(steps)]
    rows, made, watch = rounds(walls, [500.0 + second for second in range(50)])
    assert watch.steps_total == 2
    told = [record.message for record in caplog.records]
    assert [text.split(" s,")[0] for text in told] == [
        "the wall clock stepped by -90.0",
        "the wall clock stepped by +3690.0",
    ]
    assert all(one.end_at <= other.start_at for one, other in pairwise(rows))
    assert all(row.end_at > row.start_at for row in rows)
    assert {row.columns["power_watts"] for row in rows} == {100.0}
    # 49 intervals: the two with a step are no data, the nine of a time that was told before are left out and counted.
    assert made.rejected[CLOCK_WENT_BACK] >= 1
    covered = sum(row.end_at - row.start_at for row in rows)
    assert covered == pytest.approx(49 - 2 - 9, abs=1.0)


def test_u29_a_machine_that_slept_has_a_gap_and_the_energy_of_the_night_is_in_no_row() -> None:
    # The monotonic clock stands still while a machine sleeps, the wall clock goes on.
    walls = [START + second + (28_800.0 if second >= 15 else 0.0) for second in range(30)]
    rows, _, watch = rounds(walls, [500.0 + second for second in range(30)])
    assert watch.steps_total == 1
    assert sum(row.end_at - row.start_at for row in rows) == pytest.approx(28.0, abs=0.01)
    assert max(row.columns["energy_joules"] for row in rows) <= 1000.0
    assert not [row for row in rows if row.end_at > START + 14 and row.start_at < START + 28_815]


def test_a_tick_that_is_late_is_no_step() -> None:
    rows, _, watch = rounds([START, START + 1.0, START + 3.2, START + 4.0], [0.0, 1.0, 3.2, 4.0])
    assert watch.steps_total == 0
    assert sum(row.end_at - row.start_at for row in rows) == pytest.approx(4.0, abs=0.01)
