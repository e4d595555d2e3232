"""Whether a process is traced, and why not: each answer of real processes, before a CUDA that is a stand-in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector.tracer import layout
from collector.tracer.sight import Sight, Tracing, tracing_of
from tests.collector.tracer.testbed import Application, Bench

QUICK = {"TRUELOAD_TRACER_FLUSH_SECONDS": "0.02", "TRUELOAD_TRACER_LATENESS_SECONDS": "0.05"}


def sight_of(testbed: Bench, release: str = "13.4", *before: str, **environment: str) -> Tracing:
    """Look at an application that has initialised CUDA."""
    with Application(testbed, testbed.environment(release, **QUICK, **environment)) as application:
        application.do(*before, "init")
        return tracing_of(application.process.pid)


def untraced(testbed: Bench, named: str | None) -> Tracing:
    environment = testbed.environment("13.4")
    del environment["CUDA_INJECTION64_PATH"]
    with Application(testbed, environment | ({} if named is None else {"CUDA_INJECTION64_PATH": named})) as application:
        application.do("init")
        return tracing_of(application.process.pid)


def test_a_traced_process_is_traced(testbed: Bench) -> None:
    seen = sight_of(testbed)
    assert (seen.sight, seen.is_traced, seen.remedy) == (Sight.TRACED, True, "")
    assert "has run nothing yet" in seen.reason


def test_without_cupti_it_says_where_to_get_it(testbed: Bench, tmp_path: Path) -> None:
    seen = sight_of(testbed, TRUELOAD_CUPTI_PATH=str(tmp_path / "none.so"), FAKE_CUPTI="")
    assert (seen.sight, seen.is_traced) == (Sight.CUPTI_MISSING, False)
    assert "TRUELOAD_CUPTI_PATH" in seen.remedy


def test_a_cupti_that_does_not_initialise_is_told_with_its_status(testbed: Bench) -> None:
    seen = sight_of(testbed, FAKE_CUPTI_ENABLE_STATUS="15")
    assert (seen.sight, seen.reason) == (Sight.FAILED, "CUPTI does not initialise (code 15)")


def test_a_profiler_that_has_cupti_is_told(testbed: Bench) -> None:
    seen = sight_of(testbed, FAKE_CUPTI_BUSY="Nsight Systems")
    assert (seen.sight, seen.reason) == (Sight.LOST, "another profiler has CUPTI to itself")
    assert sight_of(testbed, "12.9", "load", "profiler start").sight is Sight.LOST


def test_a_duty_cycle_between_its_phases_is_traced_all_the_same(testbed: Bench) -> None:
    environment = testbed.environment("13.4", **QUICK, TRUELOAD_TRACER_DUTY_SECONDS="0.1/30")
    with Application(testbed, environment).start() as application:
        application.wait_for("the pause", lambda trace: trace.header.state == layout.STATE_PAUSED)
        seen = tracing_of(application.process.pid)
    assert (seen.sight, seen.is_traced) == (Sight.PAUSED, True)


def test_a_tracer_that_stopped_writing_is_stuck(testbed: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.tracer.sight.STALE_SECONDS", 0.3)
    with Application(testbed, testbed.environment("13.4", **QUICK)).start() as application:
        pid = application.process.pid
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while (seen := tracing_of(pid)).sight is Sight.TRACED:
            assert time.monotonic() < deadline
        os.kill(pid, signal.SIGCONT)
    assert seen.sight is Sight.STUCK


def test_a_variable_that_another_tool_holds_is_named_and_so_is_one_that_nobody_set(testbed: Bench) -> None:
    other = str(testbed.cupti("13.4"))  # any library that is not ours
    seen = untraced(testbed, other)
    assert (seen.sight, seen.reason) == (Sight.TAKEN, f"CUDA_INJECTION64_PATH is taken by {other}")
    assert untraced(testbed, None).sight is Sight.NOT_ASKED
    assert untraced(testbed, "").sight is Sight.NOT_ASKED


def test_a_library_that_is_not_mounted_into_the_container_is_told(testbed: Bench) -> None:
    assert untraced(testbed, "/nowhere/libtrueload_tracer.so").sight is Sight.LIBRARY_MISSING


def test_before_cuda_it_is_not_yet(testbed: Bench) -> None:
    with Application(testbed, testbed.environment("13.4")) as application:
        pid = application.process.pid
        application.do("load")
        assert tracing_of(pid).sight is Sight.NO_GPU
        assert tracing_of(pid, on_gpu=True).sight is Sight.NOT_YET


@contextmanager
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.communicate(b"\n")


def test_any_other_process_uses_no_gpu_and_one_that_has_ended_is_gone() -> None:
    with child() as process:
        assert tracing_of(process.pid).sight is Sight.NO_GPU
    assert tracing_of(process.pid).sight is Sight.GONE


NOBODY = 65534
ASK = """
import os, sys
from collector.tracer.sight import tracing_of
os.setgroups([]), os.setgid({nobody}), os.setuid({nobody})
print(tracing_of(int(sys.argv[1])).sight)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody who may not look")
def test_who_may_not_look_is_told_so(repository: Path) -> None:
    with child() as process:
        done = subprocess.run(
            [sys.executable, "-c", ASK.format(nobody=NOBODY), str(process.pid)],
            cwd=repository,
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout == "no_permission\n"


def test_memory_of_another_layout_is_refused_with_what_to_do() -> None:
    descriptor = os.memfd_create(layout.NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        seen = tracing_of(os.getpid())
    finally:
        os.close(descriptor)
    assert (seen.sight, seen.reason) == (Sight.REFUSED, "what it publishes is not sealed")
