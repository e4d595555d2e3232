"""The same code under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer, in the busiest cases."""

from __future__ import annotations

import time

import pytest

from collector.tracer import layout
from tests.collector.tracer.testbed import MEMCPY, SECOND, Application, Bench, Work, expect, found

QUICK = {
    "TRUELOAD_TRACER_FLUSH_SECONDS": "0.01",
    "TRUELOAD_TRACER_LATENESS_SECONDS": "1000",
    "TRUELOAD_TRACER_HOLD_SECONDS": "1000",
    # The fake and the tracer end with threads at work, as real ones do; memory that they reach is no leak.
    "TSAN_OPTIONS": "halt_on_error=1",
    "ASAN_OPTIONS": "detect_leaks=1",
}

pytestmark = pytest.mark.slow


@pytest.fixture(params=["address_testbed", "thread_testbed"])
def sanitized(request: pytest.FixtureRequest) -> Bench:
    """Give each sanitized test bed in turn."""
    bench: Bench = request.getfixturevalue(request.param)
    return bench


@pytest.mark.parametrize("release", ["12.1", "12.9", "13.2", "13.4"])
def test_work_of_every_kind_is_clean_and_exact(sanitized: Bench, release: str) -> None:
    steps = {"NVTX_INJECTION64_PATH": str(sanitized.tracer)}
    with Application(sanitized, sanitized.environment(release, **QUICK, **steps)).start("load") as application:
        header = application.header()
        base, offset = (header.started_at_nanoseconds // SECOND - 50) * SECOND, header.clock_offset_nanoseconds
        work = [
            Work(n % 3, base + n * 7_919_113 % (4 * SECOND), base + n * 7_919_113 % (4 * SECOND) + n * 31, None, n % 5)
            for n in range(2000)
        ]
        work += [Work(n % 2, base + n * 10_007, base + n * 10_507, MEMCPY, 5) for n in range(300)]
        overheads = [(base + n * 9_000_000, base + n * 9_000_000 + 4_000_000) for n in range(50)]
        application.do(*(piece.line(offset) for piece in work))
        application.do(*(f"overhead 1 {6 << 16} {start + offset} {end + offset}" for start, end in overheads))
        application.do("deliver 1", "drain", "flush 0", "step 3")
        application.tell("launch 9 0", "nvtx domain_push trueload.step", "nvtx start trueload.step")
        application.do("flush 1")
        trace = application.end()
    assert trace.header.steps_total == 5
    since = trace.header.started_at_nanoseconds - 60 * SECOND
    for device in range(3):
        for second in range(base // SECOND, base // SECOND + 5):
            assert found(trace, device, second) == expect(work, overheads, device, second, since)


def test_many_threads_and_a_reader_at_once_are_clean(sanitized: Bench) -> None:
    with Application(sanitized, sanitized.environment("13.4", **QUICK)).start("load") as application:
        assert application.process.stdin
        application.process.stdin.write("storm 8 4000\n")
        application.process.stdin.flush()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            application.header()
        assert application.process.stdout
        assert application.process.stdout.readline() == "ok\n"
        trace = application.end()
    assert trace.header.records_total + trace.header.dropped_total == 32_000


def test_forks_and_another_profiler_are_clean(sanitized: Bench) -> None:
    quiet = {"TRUELOAD_TRACER_QUIET_SECONDS": "0.1", "TRUELOAD_TRACER_HOLD_SECONDS": "0.2"}
    with Application(sanitized, sanitized.environment("12.9", **{**QUICK, **quiet})).start("load") as application:
        application.do("storm 2 500")
        (child,) = application.tell("fork _exit")
        assert int(child) > 0
        assert application.tell("") == ["0"]
        application.tell("launch 7 0")
        application.do("profiler start")
        application.wait_for("the loss", lambda trace: trace.header.lost_total == 1)
        application.do("profiler stop")
        application.wait_for("the return", lambda trace: trace.header.state == layout.STATE_ARMED)
        application.do("storm 2 500")
        assert application.process.stdin
        application.process.stdin.write("_exit 0\n")  # the profiler of the test keeps its buffers; not a leak of ours
        application.process.stdin.flush()
        _, errors = application.process.communicate(timeout=60)
        assert (application.process.returncode, errors) == (0, "")
