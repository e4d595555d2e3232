"""The prepared run for a real GPU, as far as it can be held to anything without one."""

from __future__ import annotations

from collector.tracer.calibrate import LaunchCost
from tests.collector.tracer.testbed import SECOND, Application, Bench, Work
from tests.gpu import tracer_on_gpu


def test_busy_time_in_a_window_is_read_from_the_slots(testbed: Bench) -> None:
    patient = {"TRUELOAD_TRACER_LATENESS_SECONDS": "1000", "TRUELOAD_TRACER_HOLD_SECONDS": "1000"}
    with Application(testbed, testbed.environment("13.4", **patient)).start() as application:
        header = application.header()
        base = (header.started_at_nanoseconds // SECOND - 50) * SECOND
        work = [Work(0, base + n * 10_000_000, base + n * 10_000_000 + 4_000_000) for n in range(200)]
        application.do(*(piece.line(header.clock_offset_nanoseconds) for piece in work))
        application.end()
    window = tracer_on_gpu.read_window(application.memory, 0, base + SECOND // 2, base + 3 * SECOND // 2)
    assert window.busy_seconds == 0.4
    assert (window.launches_count, window.gaps_count, window.flags) == (200, 199, 0)


def test_correction_takes_off_between_its_gaps_and_its_launches() -> None:
    cost = LaunchCost(5000, 6000, 1000, 10, 1, "", "", 1, 1)
    window = {"overhead_idle_seconds": 0.1, "gaps_count": 100_000, "launches_count": 200_000}
    case = {"plain_seconds": [10.0], "traced_seconds": [10.3], "last_traced": {"tracer": window}}
    told = tracer_on_gpu.corrected(case, cost)
    assert [round(seconds, 6) for seconds in told["corrected_seconds"]] == [10.0, 10.1]
    assert [round(ratio, 6) for ratio in told["off_ratio"]] == [0.0, 0.01]


def test_a_case_that_fails_says_so_and_costs_no_other() -> None:
    def fails() -> None:
        raise ValueError("no GPU")

    assert tracer_on_gpu._try(fails) == {"failed": "ValueError: no GPU"}
