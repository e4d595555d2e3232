"""What traced processes told, as a job and a week show it; every figure worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.worlds import T0, World, allocation, attempt, job, sample
from warehouse.contract.model import KernelProfile, LengthProfile, ProcessSample

ATTEMPT = "c/1#0:1"
HOUR_AT = T0


def told(at: float, process: str = "p", **figures: Any) -> ProcessSample:
    """Make what one process told of ten seconds: 0.6 s of kernels in 100 launches, all of the time known."""
    known: dict[str, Any] = {"covered_seconds": 10.0, "source_lost_seconds": 0.0, "late_seconds": 0.0}
    busy: dict[str, Any] = {"gpu_bound_seconds": 0.6, "launch_count": 100, "kernel_count": 200, "kernel_seconds": 0.8}
    fields: dict[str, Any] = (
        {"device_uuid": "GPU-0", "attempt_key": ATTEMPT, "gap_count": 50, "steps_total": 0} | known | busy | figures
    )
    return ProcessSample(
        cluster="c", node="n0", pid=1, sampled_at=T0 + at, cadence_seconds=10.0, source="kernels", process_key=process,
        **fields,
    )  # fmt: skip


def unified(at: float) -> dict[str, Any]:
    """Make what the device's own row says of the same ten seconds."""
    row = sample(at, cadence=10.0, gpu_bound_seconds=0.6, copy_seconds=0.1, gpu_busy_seconds=0.65)
    return {**row, "source": "kernels"}


def driver(at: float) -> dict[str, Any]:
    return sample(at, cadence=10.0, driver_util_ratio=1.0, process_count=1)


def kernel(name: str, seconds: float, hour: int = 0) -> KernelProfile:
    return KernelProfile(
        attempt_key=ATTEMPT, profile="p", source="kernels", hour_at=HOUR_AT + 3600 * hour, kernel_name=name,
        launch_count=4, total_seconds=seconds, longest_seconds=seconds / 2, grid="1x1x1", block="32x1x1",
        registers_per_thread=16, shared_memory_bytes=0,
    )  # fmt: skip


def gap(shortest: float, count: int, kind: str = "gap", source: str = "kernels") -> LengthProfile:
    return LengthProfile(ATTEMPT, "p", source, HOUR_AT, "GPU-0", kind, shortest, 2 * shortest, count)


def traced(world: World, *records: Any, seconds: int = 100) -> dict[str, Any]:
    times = range(0, seconds, 10)
    one = [job(), attempt(end=float(seconds)), allocation(end=float(seconds)), *records]
    world.fill(one, [row for at in times for row in (unified(at), driver(at))])
    (found,) = world.ask("job", id="c/1#0")["attempts"]
    part: dict[str, Any] = found["tracer"]
    return part


def test_an_attempt_that_was_never_traced_has_no_part(world: World) -> None:
    assert traced(world) is None


def test_the_figures_of_a_traced_attempt_with_source_and_coverage(world: World) -> None:
    part = traced(world, *(told(at, steps_total=at + 5) for at in range(0, 100, 10)))
    assert (part["source"], part["covered_seconds"], part["coverage_ratio"]) == ("kernels", 100.0, 1.0)
    assert part["launches_per_second"] == pytest.approx(10.0)
    assert part["mean_kernel_seconds"] == pytest.approx(0.004)
    assert (part["gap_count"], part["kernel_count"], part["launch_count"]) == (500, 2000, 1000)
    assert (part["gpu_bound_seconds"], part["copy_seconds"]) == (pytest.approx(6.0), pytest.approx(1.0))
    assert (part["gpu_busy_seconds"], part["busy_covered_seconds"]) == (pytest.approx(6.5), 100.0)
    assert (part["steps_total"], part["steps_per_second"]) == (95, pytest.approx(1.0))
    assert part["gpu_bound_raw_ratio"] == pytest.approx(0.06)
    assert part["gpu_bound_corrected_ratio"] is None  # nobody has calibrated
    assert part["gpu_bound_extrapolated_ratio"] is None  # nothing is paused


def test_what_tracing_added_is_taken_off_where_it_was_calibrated(world: World) -> None:
    added: dict[str, Any] = {"tracing_low_seconds": 0.0, "tracing_seconds": 2.0, "tracing_high_seconds": 4.0}
    part = traced(world, *(told(at, **added) for at in range(0, 100, 10)))
    assert part["gpu_bound_corrected_ratio"] == pytest.approx({"low": 0.06, "likely": 0.075, "high": 0.1})


def test_processes_that_share_a_device_add_up_and_its_time_counts_once(world: World) -> None:
    part = traced(world, *(told(at, process, steps_total=at) for at in range(0, 100, 10) for process in ("p", "q")))
    assert part["covered_seconds"] == 100.0
    assert part["launches_per_second"] == pytest.approx(20.0)
    assert part["steps_total"] == 180
    assert part["gpu_bound_raw_ratio"] == pytest.approx(0.06)  # of each of them


def test_time_in_which_the_tracer_saw_nothing_is_told_as_lost_and_not_as_idle(world: World) -> None:
    nothing: dict[str, Any] = dict.fromkeys(("gpu_bound_seconds", "launch_count", "kernel_count", "kernel_seconds"))
    lost = [told(at, covered_seconds=0.0, source_lost_seconds=10.0, **nothing) for at in range(50, 100, 10)]
    part = traced(world, *(told(at) for at in range(0, 50, 10)), *lost)
    assert (part["source_lost_seconds"], part["coverage_ratio"]) == (50.0, 0.5)
    assert part["launches_per_second"] == pytest.approx(10.0)
    assert part["gpu_bound_raw_ratio"] == pytest.approx(0.06)
    assert part["gpu_bound_extrapolated_ratio"] is None  # lost is not paused


def test_what_pauses_hide_is_extrapolated_with_an_interval(world: World) -> None:
    off: dict[str, Any] = {"covered_seconds": 0.0, "gpu_bound_seconds": None}
    cells = [told(at, **({} if at % 60 == 10 else off)) for at in range(0, 600, 10)]  # one cell in six is on
    estimate = traced(world, *cells, seconds=600)["gpu_bound_extrapolated_ratio"]
    assert estimate["low"] == pytest.approx(estimate["likely"])  # every phase was alike
    assert estimate["likely"] == pytest.approx(0.06)
    uneven = [told(at, **({"gpu_bound_seconds": at / 100} if at % 60 == 10 else off)) for at in range(0, 600, 10)]
    wide = traced(world, *uneven, seconds=600)["gpu_bound_extrapolated_ratio"]
    assert wide["likely"] == pytest.approx(0.28)  # the mean of 0.01, 0.07, ... 0.55
    assert 0 < wide["low"] < 0.2
    assert 0.36 < wide["high"] < 1


def test_gaps_by_length_are_those_of_the_tracer(world: World) -> None:
    rows = [gap(1e-6, 7), gap(2e-6, 3), gap(1e-6, 9, kind="kernel"), gap(1e-6, 1000, source="another")]
    part = traced(world, told(0), *rows[:3])
    assert part["gap_lengths"] == [
        {"shortest_seconds": 1e-6, "longest_seconds": 2e-6, "count": 7},
        {"shortest_seconds": 2e-6, "longest_seconds": 4e-6, "count": 3},
    ]
    assert [one["count"] for one in part["kernel_lengths"]] == [9]
    assert traced(world, told(0), rows[3])["gap_lengths"] == []


def test_kernels_are_named_with_the_longest_in_all_first(world: World) -> None:
    part = traced(world, told(0), kernel("_Z3addPf", 0.2), kernel("_Z3mulPf", 0.5), kernel("_Z3addPf", 0.4, hour=-1))
    assert [(one["kernel"], one["launch_count"]) for one in part["kernels"]] == [("mul", 4), ("add", 4)]
    assert part["kernels"][0]["mean_seconds"] == pytest.approx(0.125)  # the hour before the attempt is not its own


def test_a_week_shows_the_drivers_word_beside_what_kernels_did(world: World) -> None:
    times = range(0, 100, 10)
    untraced = [job(2, user="ada"), attempt(2, end=300.0), allocation(2, "GPU-1", end=300.0)]
    world.fill(
        [job(user="bob"), attempt(end=100.0), allocation(end=100.0), *map(told, times), gap(1e-6, 7), *untraced],
        [row for at in times for row in (unified(at), driver(at))],
    )
    week = world.ask("weekly", week="2026-W45", zone="UTC")["tracer"]
    assert (week["sources"], week["attempts"], week["jobs"]) == (["kernels"], 1, 1)
    assert (week["known_gpu_seconds"], week["coverage_ratio"]) == (pytest.approx(100.0), pytest.approx(0.25))
    assert (week["driver_util_ratio"], week["gpu_bound_ratio"]) == (pytest.approx(1.0), pytest.approx(0.06))
    assert week["inflation_ratio"] == pytest.approx(0.94)
    assert (week["copy_ratio"], week["gpu_busy_ratio"]) == (pytest.approx(0.01), pytest.approx(0.065))
    assert (week["launches_per_second"], week["mean_kernel_seconds"]) == (pytest.approx(10.0), pytest.approx(0.004))
    assert [one["count"] for one in week["gap_lengths"]] == [7]
    assert [(row["job_key"], row["user"], row["source"]) for row in week["rows"]] == [("c/1#0", "bob", "kernels")]


def test_the_means_of_a_week_compare_the_same_jobs(world: World) -> None:
    """Of the second job the driver's word is missing: it has no say in what is held against the driver's word."""
    times = range(0, 100, 10)
    world.fill(
        [
            *(job(), attempt(end=100.0), allocation(end=100.0)),
            *(job(2), attempt(2, end=100.0), allocation(2, "GPU-1", end=100.0)),
        ],
        [row for at in times for row in (unified(at), driver(at))]
        + [
            {**unified(at), "device_uuid": "GPU-1", "attempt_key": "c/2#0:1", "gpu_bound_seconds": 10.0} for at in times
        ],
    )
    week = world.ask("weekly", week="2026-W45", zone="UTC")["tracer"]
    assert (week["known_gpu_seconds"], week["compared_gpu_seconds"]) == (pytest.approx(200.0), pytest.approx(100.0))
    assert week["driver_util_ratio"] - week["gpu_bound_ratio"] == pytest.approx(week["inflation_ratio"])


def test_a_week_in_which_nobody_traced_says_so_without_zeros(world: World) -> None:
    world.fill([job(), attempt(), allocation()], [driver(at) for at in range(0, 3600, 10)])
    week = world.ask("weekly", week="2026-W45", zone="UTC")["tracer"]
    assert (week["attempts"], week["rows"], week["coverage_ratio"]) == (0, [], 0.0)
    figures = ("driver_util_ratio", "gpu_bound_ratio", "inflation_ratio", "launches_per_second", "copy_ratio")
    assert {week[name] for name in figures} == {None}
