"""Rows of single processes, worked by hand: means over the cadence, who is gone, and what nobody knows."""

from __future__ import annotations

from collector.aggregate import Aggregator, Moment
from collector.process_rows import PROCESSES_MAX, TOO_MANY, ProcessRows
from collector.source import ProcessReading, Reading
from warehouse.contract.model import ProcessSample

OWNERS = {71: "c/a#0:1"}


def rows_over(rounds: list[list[Reading]]) -> tuple[list[ProcessSample], ProcessRows]:
    """Give the rows of rounds a second apart, from the begin of a cadence of ten seconds."""
    aggregator = Aggregator(
        "nvml", interval_seconds=1.0, cadence_seconds=10.0, gap_intervals=2.5, least_covered_ratio=0.5
    )
    made = ProcessRows(aggregator, "nvml", ("c", "n"))
    rows = [
        row
        for second, readings in enumerate(rounds)
        for row in made.add(Moment(1000.0 + second, second), readings, OWNERS.get)
    ]
    return rows, made


def reading(*processes: tuple[int, dict[str, float]]) -> list[Reading]:
    return [Reading("GPU-a", {}, None, tuple(ProcessReading(pid, values) for pid, values in processes))]


def test_a_process_has_the_mean_of_its_share_and_its_memory_with_its_owner() -> None:
    rounds = [reading((71, {"driver_util_ratio": 0.1 * (k % 2), "memory_used_bytes": 100.0})) for k in range(11)]
    (row,), _ = rows_over(rounds)
    assert (row.device_uuid, row.pid, row.source, row.attempt_key) == ("GPU-a", 71, "nvml", "c/a#0:1")
    assert (row.sampled_at, row.cadence_seconds) == (1000.0, 10.0)
    assert (row.driver_util_ratio, row.memory_used_bytes) == (0.05, 100.0)
    assert (row.gpu_bound_seconds, row.launch_count, row.cpu_seconds) == (None, None, None)


def test_what_the_driver_does_not_tell_of_a_process_is_absent_and_never_zero() -> None:
    (row,), _ = rows_over([reading((72, {}))] * 11)
    assert (row.driver_util_ratio, row.memory_used_bytes, row.attempt_key) == (None, None, None)


def test_what_cannot_be_true_of_one_process_costs_no_other() -> None:
    both = reading((71, {"driver_util_ratio": 42.0}), (72, {"driver_util_ratio": 0.5}))
    rows, _ = rows_over([both] * 11)
    assert {row.pid: row.driver_util_ratio for row in rows} == {71: None, 72: 0.5}


def test_a_process_that_ends_has_a_row_of_its_time_and_is_forgotten() -> None:
    rounds = [reading((71, {"memory_used_bytes": 8.0}))] * 5 + [reading()] * 4
    rows, made = rows_over(rounds)
    assert [(row.sampled_at, row.cadence_seconds) for row in rows] == [(1000.0, 4.0)]
    assert made.flush(OWNERS.get) == []


def test_one_process_on_two_devices_has_two_rows() -> None:
    two = [Reading(name, {}, None, (ProcessReading(71, {"memory_used_bytes": 1.0}),)) for name in ("GPU-a", "GPU-b")]
    rows, _ = rows_over([two] * 11)
    assert [(row.device_uuid, row.pid) for row in rows] == [("GPU-a", 71), ("GPU-b", 71)]


def test_u07_what_is_left_out_is_counted() -> None:
    """A share above 1 cannot be true; of more processes than are followed the rest has no rows."""
    many = reading(*((pid, {"memory_used_bytes": 1.0}) for pid in range(PROCESSES_MAX + 3)))
    _, made = rows_over([many, [*reading((71, {"driver_util_ratio": 42.0}))]])
    assert made.rejected == {TOO_MANY: 3, "driver_util_ratio": 1}
