from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import time
from pathlib import Path

import pytest

from collector.tracer import layout
from tests.collector.tracer.testbed import SECOND, Application, Bench, Work, find_memory, read_trace

QUICK = {"TRUELOAD_TRACER_FLUSH_SECONDS": "0.02", "TRUELOAD_TRACER_LATENESS_SECONDS": "0.5"}
SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
SEAL_EXEC = 0x20  # from Linux 6.3 on


def _application(testbed: Bench, release: str = "13.4", **environment: str) -> Application:
    return Application(testbed, testbed.environment(release, **{**QUICK, **environment}))


def _linux() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def _kernel(application: Application, start: int, end: int, **more: object) -> str:
    return Work(0, start, end, **more).line(application.header().clock_offset_nanoseconds)  # type: ignore[arg-type]


# ---- what is published, and how


def test_the_memory_is_sealed_named_and_lost_by_a_new_program(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        descriptor = find_memory(application.process.pid)
        assert descriptor is not None
        assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & ~SEAL_EXEC == SEALS
        assert os.fstat(descriptor).st_mode & 0o111 == 0 or _linux() < (6, 3)
        assert os.fstat(descriptor).st_size == layout.TOTAL_BYTES
        os.close(descriptor)
        (entry,) = (
            entry
            for entry in Path(f"/proc/{application.process.pid}/fd").iterdir()
            if layout.NAME in str(entry.readlink())
        )
        flags = Path(f"/proc/{application.process.pid}/fdinfo/{entry.name}").read_text().split("flags:")[1].split()[0]
        assert int(flags, 8) & os.O_CLOEXEC


def test_the_header_tells_which_process_it_is(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        header, pid = application.header(), application.process.pid
        ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        assert (header.pid, header.process_start_ticks) == (pid, int(ticks))
        assert header.boot_id.decode() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        wall = header.started_at_nanoseconds + header.clock_offset_nanoseconds
        assert abs(wall - time.time_ns()) < 60 * SECOND
        assert header.cuda_driver_version == 13000


def test_its_thread_handles_no_signals_and_has_a_name(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        application.wait_for("its thread to run", lambda trace: trace.header.flushes_total)
        threads = [path.read_text() for path in Path(f"/proc/{application.process.pid}/task").glob("*/status")]
        (ours,) = (text for text in threads if "Name:\ttrueload-tracer" in text)
        (blocked,) = re.findall(r"SigBlk:\s*(\w+)", ours)
        unblockable = 1 << signal.SIGKILL - 1 | 1 << signal.SIGSTOP - 1
        glibcs_own = 0b11 << 31  # 32 and 33
        assert int(blocked, 16) | unblockable | glibcs_own == 2**64 - 1


def test_a_second_initialisation_changes_nothing(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        application.do("init", "init")
        assert application.end().header.state == layout.STATE_ENDED


# ---- not tracing, and saying why


def test_without_libcupti_the_application_runs_on_and_the_reason_is_published(testbed: Bench, tmp_path: Path) -> None:
    log = tmp_path / "log"
    missing = {"TRUELOAD_CUPTI_PATH": str(tmp_path / "none.so"), "TRUELOAD_TRACER_LOG": str(log)}
    with Application(testbed, testbed.environment("13.4", **missing) | {"FAKE_CUPTI": ""}).start() as application:
        header = application.header()
        trace = application.end()
    assert (header.state, header.failure_step) == (layout.STATE_FAILED, layout.STEP_LOAD)
    assert trace.header.state == layout.STATE_FAILED
    assert re.fullmatch(r"\d+ trueload-tracer\[\d+\]: not tracing: step 1, code 0\n", log.read_text())


def test_the_log_stays_where_it_was_named_whatever_the_program_writes_over_its_environment(
    testbed: Bench, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with _application(testbed, TRUELOAD_TRACER_LOG=str(log)).start("load") as application:
        application.do("title TRUELOAD_TRACER_LOG", "flush 0")
        application.tell("launch 0 0")  # from now on it flushes
        application.do("finalize")
        application.wait_for("a line in the log", lambda trace: trace.header.lost_total == 1 and log.exists())
    assert "lost since" in log.read_text()


def test_a_libcupti_that_lacks_calls_is_not_used(testbed: Bench) -> None:
    stranger = {"TRUELOAD_CUPTI_PATH": str(testbed.folder / "libcuda.so.1")}
    with _application(testbed, **stranger).start() as application:
        header = application.header()
    assert (header.state, header.failure_step) == (layout.STATE_FAILED, layout.STEP_SYMBOLS)


def test_a_cupti_that_does_not_initialise_leaves_the_application_alone(testbed: Bench) -> None:
    with _application(testbed, FAKE_CUPTI_ENABLE_STATUS="15").start() as application:
        header = application.header()
        assert application.end().header.records_total == 0
    assert (header.state, header.failure_step, header.failure_code) == (layout.STATE_FAILED, layout.STEP_ENABLE, 15)


# ---- records that are not as they should be


def test_unfinished_records_are_counted_and_harm_no_other(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        now = _now()
        application.do(_kernel(application, now, now + 5000, lane=1))
        application.tell("launch 0 0")
        application.do("flush 1")
        trace = application.end()
    assert trace.header.incomplete_total == 1
    assert trace.devices[0].kernel_busy_nanoseconds_total == 5000


def test_a_buffer_that_cannot_be_read_on_costs_only_its_rest(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        now = _now()
        application.do("unreadable 1", _kernel(application, now, now + 5000))
        application.tell("launch 0 0")
        application.do(_kernel(application, now, now + 9000), "flush 1")
        application.do(_kernel(application, now, now + 70))
        trace = application.end()
    assert trace.header.incomplete_total == 1
    assert trace.devices[0].kernel_sum_nanoseconds_total == 5070


@pytest.mark.parametrize("shift", [-3600 * SECOND, 3600 * SECOND, -(10**18)], ids=["too old", "ahead", "another clock"])
def test_times_that_cannot_be_are_rejected_and_counted(testbed: Bench, shift: int) -> None:
    with _application(testbed).start() as application:
        now = _now()
        application.do(_kernel(application, now + shift, now + shift + 9), _kernel(application, now + 9, now))
        trace = application.end()
    assert (trace.header.implausible_total, trace.devices) == (2, {})


def test_without_free_buffers_records_are_dropped_and_the_second_says_so(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        for lane in range(40):
            application.tell(f"launch {lane} 0")
        trace = application.wait_for("the drops", lambda trace: trace.header.dropped_total == 8)
        assert trace.header.buffers_refused_total == 8
        assert trace.header.buffers_outstanding == 32
        assert sum(second.dropped for second in trace.seconds.values()) == 8
        assert any(second.flags & layout.SECOND_DROPPED for second in trace.seconds.values())
        now = _now()
        application.do(*(f"finish {n} {now} {now}" for n in range(32)))
        application.do(_kernel(application, now, now + 9))
        application.end()


def test_buffers_are_given_back_empty(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        now = _now()
        for _ in range(5):
            application.do(*[_kernel(application, now, now + 1)] * 300, "flush 0")
        assert application.tell("dirty") == ["0"]


def test_kinds_that_another_client_asked_for_are_counted_as_unknown(testbed: Bench) -> None:
    with _application(testbed, "12.9").start("load") as application:
        application.do("enable 8", "other 0", "other 0")
        assert application.end().header.unknown_total == 2


def test_overheads_are_summed_by_kind_and_their_memory_is_freed(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        offset = application.header().clock_offset_nanoseconds
        now = _now() + offset
        kinds = [0, 1, 1 << 16, 6 << 16, 6 << 16, 8 << 16, 9 << 16]
        application.do(*(f"overhead 0 {kind} {now} {now + 10}" for kind in kinds))
        header = application.end().header
    assert header.overhead_count_total == (1, 1, 1, 0, 0, 0, 0, 2, 0, 2)
    assert header.overhead_nanoseconds_total == (10, 10, 10, 0, 0, 0, 0, 20, 0, 20)


# ---- kernels, launches, steps


def test_kernels_are_told_apart_by_name_and_launch_configuration(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        start = _now() + application.header().clock_offset_nanoseconds
        application.do(
            f"kernel 0 0 {start} {start + 10} 1 add 80 256 32 0 0",
            f"kernel 0 0 {start} {start + 30} 2 add 80 256 32 0 0",
            f"kernel 0 1 {start} {start + 5} 3 add 80 128 32 1000 24",
            f"kernel 0 0 {start} {start + 7} 4 - 1 1 16 0 0",
            f"kernel 0 0 {start} {start + 7} 5 {'n' * 1500} 1 1 16 0 0",
        )
        kernels = application.end().kernels
    told = [(k.name, k.grid, k.block, k.shared_memory_bytes, k.count_total, k.nanoseconds_total) for k in kernels]
    assert told[:2] == [(b"add", (80, 1, 1), (256, 1, 1), 0, 2, 40), (b"add", (80, 1, 1), (128, 1, 1), 1024, 1, 5)]
    assert [kernel.nanoseconds_max for kernel in kernels] == [30, 5, 7, 7]
    assert kernels[0].name_hash == kernels[1].name_hash
    assert (kernels[2].name, kernels[3].name) == (None, b"n" * 1024)
    assert kernels[3].registers_per_thread == 16


def test_beyond_the_table_kernels_are_counted_as_other(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        start = _now() + application.header().clock_offset_nanoseconds
        count = layout.KERNELS_MAX + 20
        lines = [f"kernel 0 0 {start} {start + n} 1 {'x' * 400}{n} 1 1 16 0 0" for n in range(count)]
        application.do(*lines, *lines)
        trace = application.end()
    assert trace.header.kernels_used == layout.KERNELS_MAX
    assert {kernel.count_total for kernel in trace.kernels} == {2}
    others = range(layout.KERNELS_MAX, count)
    assert trace.header.other_count_total == 40
    assert trace.header.other_nanoseconds_total == 2 * sum(others)
    assert trace.header.other_nanoseconds_max == others[-1]
    named = [kernel.name is not None for kernel in trace.kernels]
    assert 300 < sum(named) < 330  # 128 KiB of names of 400 bytes; the rest keep their hash
    assert named == sorted(named, reverse=True)


def test_a_graph_is_one_launch_however_many_kernels_it_holds(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        now = _now()
        lines = [_kernel(application, now + 10 * n, now + 10 * n + 5, correlation=1 + n // 50) for n in range(100)]
        application.do(*lines, _kernel(application, now, now + 1), _kernel(application, now, now + 1))
        trace = application.end()
    device = trace.devices[0]
    assert (device.kernels_total, device.launches_total) == (102, 4)  # two graphs, and two without an id
    assert sum(bucket.launches for bucket in trace.buckets.values()) == 4


def test_at_graph_level_a_graph_is_one_interval(testbed: Bench) -> None:
    with _application(testbed, TRUELOAD_TRACER_GRAPH_LEVEL="1").start() as application:
        start = _now() + application.header().clock_offset_nanoseconds
        application.do(f"graph 0 0 {start} {start + 500} 1", f"graph 0 0 {start + 700} {start + 800} 2")
        trace = application.end()
    device = trace.devices[0]
    assert trace.header.graph_level == 1
    assert (device.kernel_busy_nanoseconds_total, device.launches_total, trace.kernels) == (600, 2, [])


def test_lengths_of_kernels_and_gaps_are_counted_in_powers_of_two(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        now = _now()
        application.do(
            _kernel(application, now, now + 1000),
            _kernel(application, now + 1000 + 4096, now + 1000 + 4096 + 1024),
            _kernel(application, now + 6120 + 1, now + 6120 + 1),
        )
        device = application.end().devices[0]
    assert [n for n, count in enumerate(device.kernel_lengths_total) if count] == [0, 9, 10]
    assert [n for n, count in enumerate(device.gap_lengths_total) if count] == [12]


def test_steps_are_counted_by_the_application_itself(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        application.do("step 1", "step 41")
        assert application.header().steps_total == 42
        application.do("step 0")
        assert application.end().header.steps_total == 42


# ---- what is known when


def test_a_running_kernel_keeps_its_time_open_and_no_more(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        before = _now()
        application.tell("launch 0 0")
        application.wait_for("the flush", lambda trace: trace.header.updated_at_nanoseconds > before + SECOND // 2)
        assert application.header().closed_until_nanoseconds < before + SECOND // 10
        now = _now()
        offset = application.header().clock_offset_nanoseconds
        application.do(f"finish 0 {before + offset} {now + offset}")
        trace = application.wait_for("the end", lambda trace: trace.header.closed_until_nanoseconds > now)
        assert trace.devices[0].kernel_busy_nanoseconds_total == now - before
        assert trace.devices[0].late_count_total == 0


def test_an_idle_process_closes_its_time_without_any_record(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        application.wait_for("time to close", lambda trace: trace.header.closed_until_nanoseconds > _now() - SECOND)
        trace = application.trace()
    assert trace.header.buffers_requested_total == 0
    whole = [second for number, second in trace.seconds.items() if (number + 1) * SECOND < _now()]
    assert all(second.armed_nanoseconds <= SECOND for second in whole)


def test_armed_time_is_accounted_to_the_nanosecond(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        started = application.header().started_at_nanoseconds
        trace = application.wait_for("2 s", lambda trace: trace.header.updated_at_nanoseconds > started + 2 * SECOND)
    covered = sum(second.armed_nanoseconds for second in trace.seconds.values())
    assert 0 <= trace.header.updated_at_nanoseconds - started - covered < SECOND // 100


def test_after_hold_what_is_still_out_is_assumed_to_be_nothing_and_marked(testbed: Bench) -> None:
    with _application(testbed, TRUELOAD_TRACER_HOLD_SECONDS="0.3").start() as application:
        before = _now()
        application.tell("launch 0 0")
        trace = application.wait_for(
            "the hold to pass", lambda trace: trace.header.closed_until_nanoseconds > before + SECOND // 4
        )
        assert trace.seconds[before // SECOND].flags & layout.SECOND_ASSUMED


# ---- ends


@pytest.mark.parametrize("how", ["exit 0", "exit 3"])
def test_at_exit_everything_complete_is_delivered(testbed: Bench, how: str) -> None:
    with _application(testbed, TRUELOAD_TRACER_FLUSH_SECONDS="3600").start() as application:
        now = _now()
        application.do(_kernel(application, now, now + 123))
        trace = application.end(how)
    assert trace.devices[0].kernel_busy_nanoseconds_total == 123
    assert trace.header.state == layout.STATE_ENDED
    assert trace.header.closed_until_nanoseconds > now


def test_a_process_that_exits_without_handlers_loses_at_most_what_was_not_flushed(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        now = _now()
        application.do(_kernel(application, now, now + 123))
        application.wait_for("the flush", lambda trace: trace.header.records_total == 1)
        trace = application.end("_exit 0")
    assert trace.header.state == layout.STATE_ARMED
    assert trace.devices[0].kernels_total == 1


def test_a_killed_process_leaves_nothing_behind(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        pid = application.process.pid
        application.do("storm 2 2000")
        application.process.kill()
        application.process.wait()
        assert not Path(f"/proc/{pid}/fd").exists()
        assert [path for path in Path("/dev/shm").iterdir() if "trueload" in path.name] == []  # noqa: S108
        if layout.read_together(application.memory, [layout.HEADER_SPAN], attempts=1):  # else it died while it wrote
            read_trace(application.memory)


def test_a_cupti_that_never_returns_delays_the_exit_by_its_patience_only(testbed: Bench) -> None:
    with _application(testbed, FAKE_CUPTI_STUCK_FLUSH="1").start() as application:
        now = _now()
        application.do(_kernel(application, now, now + 1))
        began = time.monotonic()
        application.end()
        assert time.monotonic() - began < 8  # a second's patience; the machine may be busy


# ---- forks


def test_a_forked_child_shows_nothing_and_the_parents_account_goes_on(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        now = _now()
        application.do(_kernel(application, now, now + 100))
        for how in ("exit", "_exit", "storm"):
            (child,) = application.tell(f"fork {how}")
            assert find_memory(int(child)) is None
            maps = Path(f"/proc/{child}/maps").read_text()
            assert layout.NAME not in maps
            assert application.tell("") == ["0"]  # the child's wait status
        later = _now()  # the forks may have taken longer than times stay open
        application.do(_kernel(application, later, later + 100))
        trace = application.end()
    assert trace.devices[0].kernel_busy_nanoseconds_total == 200
    assert trace.header.records_total == 2
    assert trace.header.pid == application.process.pid


def test_a_program_that_a_child_becomes_has_not_got_the_memory(testbed: Bench) -> None:
    with _application(testbed).start() as application:
        (child,) = application.tell("fork exec")
        assert application.tell("") == ["running"]
        _wait_for_program(int(child), "sleep")
        assert find_memory(int(child)) is None
        application.tell("")
        application.end()


def _wait_for_program(pid: int, name: str) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/comm").read_text().strip() != name:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_forking_while_records_pour_in_never_hangs(testbed: Bench) -> None:
    with _application(testbed, TRUELOAD_TRACER_FLUSH_SECONDS="0.001").start() as application:
        for _ in range(20):
            application.do("storm 3 300")
            (child,) = application.tell("fork exit")
            assert int(child) > 0
            assert application.tell("") == ["0"]
        trace = application.end()
    assert trace.header.records_total + trace.header.dropped_total == 20 * 900


# ---- memory


def _resident_bytes(pid: int) -> int:
    """Sum what belongs to the tracer: code, zero-initialised memory that follows, what it publishes; and all heap."""
    resident, ours = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        mapping = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s*(.*)$", line)
        if mapping:
            named = mapping[1]
            is_ours = any(part in named for part in ("libtrueload_tracer", layout.NAME, "[heap]"))
            ours = is_ours or (ours and named == "")
        elif ours and line.startswith("Rss:"):
            resident += int(line.split()[1]) * 1024
    return resident


@pytest.mark.parametrize("devices", [1, 8])
def test_a_busy_process_stays_below_six_megabytes(testbed: Bench, devices: int) -> None:
    patient = {"TRUELOAD_TRACER_LATENESS_SECONDS": "1000", "TRUELOAD_TRACER_HOLD_SECONDS": "1000"}
    with _application(testbed, **patient).start() as application:
        header = application.header()
        base = header.started_at_nanoseconds - 59 * SECOND + header.clock_offset_nanoseconds
        lines = [
            f"kernel {n % 32} {n % devices} {base + n * 3_000_000} {base + n * 3_000_000 + 1000} {n} k{n} 1 1 1 0 0"
            for n in range(20_000)
        ]
        application.do(*lines, "drain", "flush 0")
        resident = _resident_bytes(application.process.pid)
    assert 300_000 < resident <= 6_000_000


def test_nothing_of_the_tracer_is_seen_by_the_applications_symbols(testbed: Bench) -> None:
    library = ctypes.CDLL(str(testbed.tracer))
    exported = ["InitializeInjection", "InitializeInjectionNvtx2", "trueload_step"]
    assert [name for name in [*exported, "account_close", "published"] if hasattr(library, name)] == exported
