"""Other clients of CUPTI: the user's own profiler always wins, and what we lose is told."""

from __future__ import annotations

import time

import pytest

from collector.tracer import layout
from tests.collector.tracer.testbed import SECOND, Application, Bench, Trace, Work

QUICK = {
    "TRUELOAD_TRACER_FLUSH_SECONDS": "0.02",
    "TRUELOAD_TRACER_LATENESS_SECONDS": "0.05",
    "TRUELOAD_TRACER_QUIET_SECONDS": "0.3",
}


def _application(testbed: Bench, release: str, **environment: str) -> Application:
    return Application(testbed, testbed.environment(release, **{**QUICK, **environment}))


def _run_kernel(application: Application, lane: int = 0) -> None:
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    application.do(Work(0, now, now + 1000, lane=lane).line(application.header().clock_offset_nanoseconds))


def _has_state(state: int) -> object:
    return lambda trace: trace.header.state == state


def _kernels(trace: Trace) -> int:
    return trace.devices[0].kernels_total if 0 in trace.devices else 0


def test_u30_a_profiler_that_takes_the_shared_callbacks_is_noticed_and_outlived(testbed: Bench) -> None:
    with _application(testbed, "12.9").start("load") as application:
        _run_kernel(application)
        application.wait_for(
            "the first kernel", lambda trace: trace.header.buffers_outstanding == 0 and _kernels(trace)
        )
        application.do("profiler start")
        deadline = time.monotonic() + 20
        while application.header().state != layout.STATE_LOST:
            _run_kernel(application)
            assert time.monotonic() < deadline
        lost = application.trace()
        assert [(range_.reason, range_.until_nanoseconds) for range_ in lost.header.lost] == [
            (layout.LOST_CLOCK_ONLY, 0)
        ]
        assert int(application.tell("profiler count")[0]) > 0  # it got what it asked for
        assert application.tell("dirty") == ["0"]  # in buffers that CUPTI zeroed
        assert _kernels(lost) == 1
        application.do("profiler stop")
        back = application.wait_for("the return", _has_state(layout.STATE_ARMED))
        _run_kernel(application)
        assert _kernels(application.end()) == 2
    (only,) = back.header.lost
    inside = range(only.from_nanoseconds // SECOND, only.until_nanoseconds // SECOND + 1)
    assert all(back.seconds[second].flags & layout.SECOND_LOST for second in inside if second in back.seconds)


def test_u30_a_profiler_that_was_there_before_cuda_keeps_the_shared_callbacks(testbed: Bench) -> None:
    with _application(testbed, "12.9").start("load", "profiler start") as application:
        held = application.header()
        assert (held.state, held.mode) == (layout.STATE_LOST, layout.MODE_NONE)
        assert [(range_.reason, range_.code) for range_ in held.lost] == [(layout.LOST_BUSY, 39)]
        _run_kernel(application)
        application.do("flush 0")
        assert application.tell("profiler count") == ["1"]
        application.do("profiler stop")
        application.wait_for("its turn", _has_state(layout.STATE_ARMED))
        _run_kernel(application)
        assert _kernels(application.end()) == 1


def test_a_buffer_that_never_comes_back_is_a_loss_from_when_it_was_lent(testbed: Bench) -> None:
    with _application(testbed, "12.9", TRUELOAD_TRACER_HOLD_SECONDS="3").start("load") as application:
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        application.tell("launch 0 0")  # our buffer is out when the profiler comes, and goes to it
        application.do("profiler start")
        lost = application.wait_for("the loss", _has_state(layout.STATE_LOST))
        (range_,) = lost.header.lost
        assert range_.reason == layout.LOST_BUFFER_KEPT
        assert before < range_.from_nanoseconds < before + SECOND // 2
        application.do("profiler stop")
        application.wait_for("the return", _has_state(layout.STATE_ARMED))
        _run_kernel(application, lane=1)
        trace = application.end()
    assert _kernels(trace) == 1
    assert trace.header.buffers_outstanding == 0  # the other one is written off


def test_a_profiler_that_frees_a_buffer_of_ours_harms_nobody(testbed: Bench) -> None:
    with _application(testbed, "12.9", TRUELOAD_TRACER_HOLD_SECONDS="3").start("load") as application:
        number = application.tell("launch 0 0")[0]  # its record lies in a buffer of ours
        application.do("profiler start")
        now = time.clock_gettime_ns(time.CLOCK_REALTIME)
        application.do(f"finish {number} {now} {now}", "flush 0")
        assert application.tell("profiler count") == ["1"]  # it got that one and freed it
        application.wait_for("the loss", _has_state(layout.STATE_LOST))
        application.do("profiler stop")
        application.wait_for("the return", _has_state(layout.STATE_ARMED))
        for lane in range(31):  # every buffer that is left
            _run_kernel(application, lane)
        trace = application.end()
    assert (_kernels(trace), trace.header.dropped_total) == (31, 0)


def test_subscribers_each_get_everything(testbed: Bench) -> None:
    with _application(testbed, "13.4").start("load") as application:
        application.do("profiler start")
        for _ in range(10):
            _run_kernel(application)
        application.do("flush 0", "profiler stop")
        _run_kernel(application)
        trace = application.end()
        assert trace.header.mode == layout.MODE_SUBSCRIBER
        assert trace.header.lost == ()
    assert _kernels(trace) == 11


@pytest.mark.parametrize("release", ["13.0", "13.2", "13.4"])
def test_with_a_driver_that_knows_no_subscribers_the_callbacks_are_shared(testbed: Bench, release: str) -> None:
    with _application(testbed, release, FAKE_CUPTI_OLD_DRIVER="1").start() as application:
        _run_kernel(application)
        trace = application.end()
    assert (trace.header.mode, _kernels(trace)) == (layout.MODE_SHARED_CALLBACKS, 1)


def test_u30_who_holds_cupti_alone_is_left_alone_until_it_lets_go(testbed: Bench) -> None:
    with _application(testbed, "13.4", FAKE_CUPTI_BUSY="Nsight Systems").start() as application:
        header = application.header()
        assert (header.state, header.mode) == (layout.STATE_LOST, layout.MODE_NONE)
        assert [(range_.reason, range_.code) for range_ in header.lost] == [(layout.LOST_BUSY, 39)]
        application.do("busy")
        application.wait_for("its turn", _has_state(layout.STATE_ARMED))
        _run_kernel(application)
        assert _kernels(application.end()) == 1


def test_a_cupti_that_will_not_enable_now_is_asked_again_later(testbed: Bench) -> None:
    with _application(testbed, "12.9", FAKE_CUPTI_ENABLE_STATUS="14").start() as application:
        assert [(range_.reason, range_.code) for range_ in application.header().lost] == [(layout.LOST_REFUSED, 14)]
        application.do("enable_status 0")
        application.wait_for("its turn", _has_state(layout.STATE_ARMED))
        _run_kernel(application)
        assert _kernels(application.end()) == 1


def test_a_subscription_that_is_gone_is_made_anew(testbed: Bench) -> None:
    with _application(testbed, "13.4").start("load") as application:
        _run_kernel(application)
        application.do("flush 0", "finalize")
        lost = application.wait_for("the loss", lambda trace: trace.header.lost_total == 1)
        assert lost.header.lost[0].reason == layout.LOST_DETACHED
        application.wait_for("the return", _has_state(layout.STATE_ARMED))
        _run_kernel(application)
        assert _kernels(application.end()) == 2


def test_when_nothing_has_stirred_for_long_the_callbacks_are_registered_anew(testbed: Bench) -> None:
    with _application(testbed, "12.9", TRUELOAD_TRACER_QUIET_SECONDS="0.1").start("load") as application:
        application.do("profiler start", "profiler stop")  # unseen: no kernel ran meanwhile
        deadline = time.monotonic() + 20
        while not _kernels(application.trace()):
            time.sleep(0.6)
            _run_kernel(application)
            assert time.monotonic() < deadline
        application.end()


def test_the_libcupti_of_the_application_is_used_before_any_other(testbed: Bench) -> None:
    environment = testbed.environment("12.9", TRUELOAD_CUPTI_PATH=str(testbed.cupti("13.4")))
    with Application(testbed, environment).start("load") as application:
        assert application.header().cupti_version == 27
    with Application(testbed, environment).start() as application:
        assert application.header().cupti_version == 130401


@pytest.mark.parametrize(("driver", "version"), [("12080", 27), ("13000", 130401)])
def test_without_a_path_the_loader_is_asked_for_a_cupti_that_fits_the_driver(
    testbed: Bench, driver: str, version: int
) -> None:
    environment = testbed.environment("12.9", TRUELOAD_CUPTI_PATH="", FAKE_CUDA_DRIVER_VERSION=driver)
    folders = [str(testbed.folder), str(testbed.cupti("13.4").parent), str(testbed.cupti("12.9").parent)]
    with Application(testbed, environment | {"LD_LIBRARY_PATH": ":".join(folders)}).start() as application:
        assert application.header().cupti_version == version


def test_a_duty_cycle_pauses_our_records_and_accounts_for_it(testbed: Bench) -> None:
    with _application(testbed, "13.4", TRUELOAD_TRACER_DUTY_SECONDS="0.2/0.8").start() as application:
        started = application.header().started_at_nanoseconds
        done = application.wait_for(
            "three cycles", lambda trace: trace.header.updated_at_nanoseconds > started + 3 * SECOND
        )
        application.wait_for("a pause", _has_state(layout.STATE_PAUSED))
        _run_kernel(application)
        assert _kernels(application.trace()) == 0
    armed = sum(second.armed_nanoseconds for second in done.seconds.values())
    assert 0.1 < armed / (done.header.updated_at_nanoseconds - started) < 0.4
    assert any(second.flags & layout.SECOND_PAUSED for second in done.seconds.values())


def test_shared_callbacks_are_never_paused_for_they_may_be_anothers(testbed: Bench) -> None:
    with _application(testbed, "12.9", TRUELOAD_TRACER_DUTY_SECONDS="0.01/10").start() as application:
        started = application.header().started_at_nanoseconds
        trace = application.wait_for(
            "a while", lambda trace: trace.header.updated_at_nanoseconds > started + SECOND // 2
        )
    assert trace.header.state == layout.STATE_ARMED
