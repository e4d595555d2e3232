from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.tracer import layout
from tests.collector.tracer.testbed import (
    MEMCPY,
    MEMSET,
    PEER,
    RELEASES,
    SECOND,
    Application,
    Bench,
    Trace,
    Work,
    expect,
    found,
)
from warehouse.contract.intervals import length, union

PATIENT = {"TRUELOAD_TRACER_LATENESS_SECONDS": "1000", "TRUELOAD_TRACER_HOLD_SECONDS": "1000"}
"""Nothing is closed before the end, so that records may come as late as they like."""


def _started(testbed: Bench, release: str = "13.4", **environment: str) -> Application:
    return Application(testbed, testbed.environment(release, **{**PATIENT, **environment}))


def _base(application: Application) -> int:
    """A whole second, 50 s before the tracer was loaded: time that can have been, and that is over."""
    return (application.header().started_at_nanoseconds // SECOND - 50) * SECOND


def _account(trace: Trace, device: int, second: int) -> tuple[int, int, int]:
    bucket = trace.bucket(device, second)
    return bucket.kernel_busy_nanoseconds, bucket.copy_busy_nanoseconds, bucket.any_busy_nanoseconds


@pytest.mark.parametrize("release", RELEASES)
def test_overlapping_nested_and_straddling_work_is_united_to_the_nanosecond(testbed: Bench, release: str) -> None:
    with _started(testbed, release).start() as application:
        header = application.header()
        base, offset = _base(application), header.clock_offset_nanoseconds
        work = [
            Work(0, base + 100, base + 300),
            Work(0, base + 150, base + 250),  # nested
            Work(0, base + 200, base + 400),  # overlapping
            Work(0, base + 400, base + 401),  # touching
            Work(0, base + SECOND - 7, base + SECOND + 11),  # straddling
            Work(0, base + 390, base + 500, MEMCPY),
            Work(3, base + 2 * SECOND, base + 5 * SECOND, MEMSET),
        ]
        application.do(*(piece.line(offset) for piece in work))
        trace = application.end()
    second = base // SECOND
    assert _account(trace, 0, second) == (301 + 7, 110, 400 + 7)
    assert _account(trace, 0, second + 1) == (11, 0, 11)
    assert [_account(trace, 3, second + n) for n in range(2, 5)] == [(0, SECOND, SECOND)] * 3
    assert trace.devices[0].gaps_total == 1
    assert trace.header.cupti_version in {18, 27, 130000, 130202, 130401}
    subscribes = release in {"13.2", "13.4"}
    assert trace.header.mode == (layout.MODE_SUBSCRIBER if subscribes else layout.MODE_SHARED_CALLBACKS)


TIMES = st.integers(0, 5 * SECOND) | st.sampled_from([0, SECOND, 2 * SECOND - 1, 10**6, SECOND + 10**6])
LENGTHS = st.integers(0, 3 * SECOND) | st.integers(0, 5_000) | st.sampled_from([0, 1, 10**6, SECOND])


@st.composite
def _scenarios(draw: st.DrawFn) -> list[str | Work | tuple[int, int]]:
    piece = st.builds(
        lambda device, start, span, kind, lane: Work(device, start, start + span, kind, lane),
        st.sampled_from([0, 0, 0, 1, 15]),
        TIMES,
        LENGTHS,
        st.sampled_from([None, None, MEMCPY, MEMSET, PEER]),
        st.integers(0, 3),
    )
    overhead = st.builds(lambda start, span: (start, start + span), TIMES, LENGTHS)
    happening = st.sampled_from(["flush 0", "flush 1", "drain", *(f"deliver {lane}" for lane in range(4))])
    return draw(st.lists(piece | piece | piece | overhead | happening, max_size=120))


def _carry_out(
    application: Application, scenario: list[str | Work | tuple[int, int]]
) -> tuple[list[Work], list[tuple[int, int]]]:
    base, offset = _base(application), application.header().clock_offset_nanoseconds
    work, overheads, lines = [], [], []
    for step in scenario:
        if isinstance(step, Work):
            moved = Work(step.device, base + step.start, base + step.end, step.kind, step.lane)
            work.append(moved)
            lines.append(moved.line(offset))
        elif isinstance(step, tuple):
            start, end = base + step[0], base + step[1]
            overheads.append((start, end))
            lines.append(f"overhead 0 {6 << 16} {start + offset} {end + offset}")
        else:
            lines.append(step)
    application.do(*lines)
    return work, overheads


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scenario=_scenarios())
def test_any_work_in_any_order_gives_the_exact_union(
    testbed: Bench, scenario: list[str | Work | tuple[int, int]]
) -> None:
    with _started(testbed).start() as application:
        work, overheads = _carry_out(application, scenario)
        begin = _base(application)
        trace = application.end()
    since = trace.header.started_at_nanoseconds - 60 * SECOND
    for device in {piece.device for piece in work}:
        for second in range(begin // SECOND, begin // SECOND + 9):
            assert found(trace, device, second) == expect(work, overheads, device, second, since), (device, second)
        mine = [piece for piece in work if piece.device == device]
        busy = union([(piece.start, piece.end) for piece in mine])
        assert trace.devices[device].any_busy_nanoseconds_total == length(busy)
    assert trace.header.records_total == len(work) + len(overheads)
    assert trace.header.incomplete_total == trace.header.implausible_total == 0
    assert not any(second.flags for second in trace.seconds.values())


def test_what_is_closed_while_it_runs_is_exact_too(testbed: Bench) -> None:
    # Lateness far above what a busy machine delays a record by: none may come after its time was closed.
    hasty = {"TRUELOAD_TRACER_FLUSH_SECONDS": "0.05", "TRUELOAD_TRACER_LATENESS_SECONDS": "1.5"}
    chance, work = random.Random(7), []
    with Application(testbed, testbed.environment("12.9", **hasty)).start() as application:
        offset = application.header().clock_offset_nanoseconds
        until = time.monotonic() + 4.5
        while time.monotonic() < until:
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            for _ in range(40):
                start = now + chance.randrange(2_000_000)
                device, lane = chance.randrange(2), chance.randrange(4)
                kind = chance.choice([None, None, MEMCPY])
                work.append(Work(device, start, start + chance.randrange(300_000), kind, lane))
            application.do(*(piece.line(offset) for piece in work[-40:]))
            time.sleep(0.003)
        closed = application.header().closed_until_nanoseconds
        trace = application.end()
    assert closed > trace.header.started_at_nanoseconds + SECOND  # it did close meanwhile
    since = trace.header.started_at_nanoseconds - 60 * SECOND
    for device in (0, 1):
        assert trace.devices[device].late_count_total == 0
        for second in range(work[0].start // SECOND, work[-1].end // SECOND + 2):
            assert found(trace, device, second) == expect(work, [], device, second, since)


def test_a_record_that_comes_after_its_time_is_closed_is_late_and_in_no_union(testbed: Bench) -> None:
    hasty = {"TRUELOAD_TRACER_FLUSH_SECONDS": "0.05", "TRUELOAD_TRACER_LATENESS_SECONDS": "0.1"}
    with Application(testbed, testbed.environment("13.4", **hasty)).start() as application:
        offset = application.header().clock_offset_nanoseconds
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        application.do(Work(0, now, now + 1000).line(offset))
        closed = now + 10**6
        application.wait_for("its time to be closed", lambda trace: trace.header.closed_until_nanoseconds > closed)
        application.do(Work(0, now + 500, now + 2500).line(offset))
        trace = application.end()
    device, bucket = trace.devices[0], trace.bucket(0, now // SECOND)
    assert (device.kernel_busy_nanoseconds_total, device.kernel_sum_nanoseconds_total) == (1000, 3000)
    assert (device.late_count_total, device.late_nanoseconds_total) == (1, 2000)
    assert bucket.late_count == 1
    assert trace.header.out_of_reach_total == 0


def _many(path: Path, base: int, offset: int, streams: int, count: int) -> list[tuple[int, int]]:
    """Kernels of 2 to 8 us with a quarter of the time between them, a million together, in streams of their own."""
    chance, pieces = random.Random(2102), []
    clocks = [base + chance.randrange(5_000) for _ in range(streams)]
    with path.open("wb") as file:
        for number in range(count):
            lane = number % streams
            start = clocks[lane]
            end = start + chance.randrange(2_000, 8_000)
            clocks[lane] = end + (end - start) // 3
            pieces.append((start, end))
            file.write(struct.pack("<IIIIQQ", lane, 0, number + 1, number % 700, start + offset, end + offset))
    return pieces


@pytest.mark.slow
@pytest.mark.parametrize("streams", [4, 1])
def test_a_million_kernels_are_united_to_the_nanosecond_in_fixed_memory(
    testbed: Bench, tmp_path: Path, streams: int
) -> None:
    with _started(testbed).start() as application:
        base, offset = _base(application), application.header().clock_offset_nanoseconds
        pieces = _many(tmp_path / "bulk", base, offset, streams, 1_000_000)
        application.do(f"bulk {tmp_path / 'bulk'}", "drain", "flush 0")
        trace = application.end()
    device = trace.devices[0]
    assert device.kernels_total == device.launches_total == trace.header.records_total == 1_000_000
    assert trace.header.dropped_total == trace.header.buffers_refused_total == device.late_count_total == 0
    assert device.kernel_busy_nanoseconds_total == length(union(pieces))
    assert device.kernel_sum_nanoseconds_total == length(pieces)
    per_second = [bucket.kernel_busy_nanoseconds for (_, _), bucket in sorted(trace.buckets.items())]
    assert sum(per_second) == length(union(pieces))
    assert trace.header.kernels_used == layout.KERNELS_MAX
    assert sum(kernel.count_total for kernel in trace.kernels) + trace.header.other_count_total == 1_000_000


def test_sixteen_devices_keep_separate_accounts(testbed: Bench) -> None:
    with _started(testbed).start() as application:
        base, offset = _base(application), application.header().clock_offset_nanoseconds
        work = [Work(n, base + n, base + 10 * n + 5, lane=n) for n in range(16)] + [Work(16, base, base + 9)]
        application.do(*(piece.line(offset) for piece in work))
        trace = application.end()
    assert {n: device.kernel_busy_nanoseconds_total for n, device in trace.devices.items()} == {
        n: 9 * n + 5 for n in range(16)
    }
    assert trace.header.implausible_total == 1  # a seventeenth has no place


def test_a_device_is_known_by_its_uuid(testbed: Bench) -> None:
    with _started(testbed, TRUELOAD_TRACER_FLUSH_SECONDS="0.02").start() as application:
        base, offset = _base(application), application.header().clock_offset_nanoseconds
        application.do(Work(3, base, base + 1).line(offset))
        known = layout.DEVICE_USED | layout.DEVICE_HAS_UUID
        trace = application.wait_for("the UUID", lambda trace: 3 in trace.devices and trace.devices[3].flags == known)
    assert trace.devices[3].uuid == bytes(range(48, 64))
