"""The user's own steps: by NVTX ranges of a name, and by ``trueload.step`` from Python."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import build_native
from collector.tracer import layout
from collector.tracer.published import published_memory, read_header
from tests.collector.tracer.testbed import Application, Bench

PUSHES = ("push", "push_ex", "domain_push", "registered_push_ex", "registered_domain_push")
STARTS = ("start", "start_ex", "domain_start", "registered_start_ex", "registered_domain_start")
NO_TRACKING = "-2"


def _application(testbed: Bench) -> Application:
    return Application(testbed, testbed.environment("13.4", NVTX_INJECTION64_PATH=str(testbed.tracer)))


@pytest.mark.parametrize("how", [*PUSHES, *STARTS])
def test_a_range_with_the_name_of_a_step_counts_one(testbed: Bench, how: str) -> None:
    with _application(testbed).start() as application:
        names = ["trueload.step", "ProfilerStep#7", "forward", "trueload.steps", "ProfilerStep", "t"]
        answers = application.tell(*(f"nvtx {how} {name}" for name in names))
        assert set(answers) == {NO_TRACKING if how in PUSHES else "0"}  # as when no tool is there
        assert application.header().steps_total == 2


def test_steps_that_come_before_cuda_are_kept(testbed: Bench) -> None:
    with _application(testbed) as application:
        application.tell("nvtx push trueload.step", "nvtx push trueload.step")
        application.start()
        application.do("step 3")
        assert application.header().steps_total == 5


CALLS = """
import ctypes, sys
import trueload
trueload.step()  # before CUDA: nobody counts
ctypes.CDLL("libcuda.so.1").cuInit(0)
trueload.step(40)
trueload.step()
trueload.step(0)
for wrong in (-1, 2**64):
    try:
        trueload.step(wrong)
    except ValueError as error:
        print(error)
print("click" in sys.modules)
sys.stdout.flush()
sys.stdin.read()
"""


def test_python_counts_steps_without_loading_the_command_line(testbed: Bench) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CALLS],
        env=testbed.environment("13.4"),
        cwd=build_native.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout
        said = [child.stdout.readline() for _ in range(3)]
        memory = published_memory(child.pid)
        child.communicate("")
    assert memory is not None
    assert read_header(memory).steps_total == 41
    assert read_header(memory).state == layout.STATE_ENDED
    assert said[:2] == ["steps: -1 is not in 0 to 2**64 - 1\n", f"steps: {2**64} is not in 0 to 2**64 - 1\n"]
    assert said[2] == "False\n"


def test_without_a_tracer_a_step_does_nothing() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_INJECTION64_PATH"}
    for path in ({}, {"CUDA_INJECTION64_PATH": ""}, {"CUDA_INJECTION64_PATH": "/nowhere.so"}):
        done = subprocess.run(
            [sys.executable, "-c", "import trueload; trueload.step(); trueload.step(7)"],
            env=environment | path,
            cwd=build_native.ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
