from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import build_native
from collector.tracer import wrap
from collector.tracer.library import INJECTION_VARIABLE, NVTX_VARIABLE, library_path
from collector.tracer.settings import DUTY_OFF_SECONDS
from tests.collector.tracer.testbed import build_tracer
from warehouse.contract.settings import Settings

LIBRARY = library_path()


def _wrap(*command: str, settings: Sequence[str] = (), **environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_INJECTION64_PATH")}
    return subprocess.Popen(
        [sys.executable, "-m", "trueload", *settings, "agent", "wrap", "--", *command],
        env={**inherited, "PYTHONPATH": str(build_native.ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    build_tracer()


# ---- the environment


def test_a_program_gets_the_tracer_for_cuda_and_for_nvtx() -> None:
    environment, notes = wrap.traced_environment({"HOME": "/root"}, Settings(), LIBRARY)
    assert environment == {"HOME": "/root", INJECTION_VARIABLE: str(LIBRARY), NVTX_VARIABLE: str(LIBRARY)}
    assert notes == []


def test_another_tool_keeps_its_place_and_the_loss_is_said() -> None:
    taken = {INJECTION_VARIABLE: "/opt/nsys/inject.so", NVTX_VARIABLE: "/opt/nsys/inject.so"}
    environment, notes = wrap.traced_environment(taken, Settings(), LIBRARY)
    assert environment == taken
    left = "is taken by /opt/nsys/inject.so; it is left alone, and the program"
    assert notes == [
        f"CUDA_INJECTION64_PATH {left} is not traced",
        f"NVTX_INJECTION64_PATH {left} has no NVTX ranges counted as steps",
    ]


def test_a_variable_that_is_empty_or_ours_already_is_not_taken(tmp_path: Path) -> None:
    link = tmp_path / "tracer.so"
    link.symlink_to(LIBRARY)
    for already in ("", str(LIBRARY), str(link)):
        environment, notes = wrap.traced_environment({INJECTION_VARIABLE: already}, Settings(), LIBRARY)
        assert (environment[INJECTION_VARIABLE], notes) == (already or str(LIBRARY), [])


def test_the_duty_cycle_of_the_settings_is_passed_on_unless_the_job_says_its_own() -> None:
    settings = Settings({DUTY_OFF_SECONDS.name: 50.0})
    assert wrap.traced_environment({}, settings, LIBRARY)[0][wrap.DUTY_VARIABLE] == "10/50"
    own, _ = wrap.traced_environment({wrap.DUTY_VARIABLE: "1/2"}, settings, LIBRARY)
    assert own[wrap.DUTY_VARIABLE] == "1/2"


def test_without_the_library_the_program_runs_untraced_and_it_is_said(tmp_path: Path) -> None:
    environment, notes = wrap.traced_environment({"A": "b"}, Settings(), tmp_path / "none.so")
    assert environment == {"A": "b"}
    assert notes == [f"{tmp_path / 'none.so'}: not compiled; the program runs untraced. Install trueload anew"]


# ---- the command


def test_options_output_and_exit_code_are_the_programs_own() -> None:
    said, errors = (
        child := _wrap("sh", "-c", 'echo "$1 $CUDA_INJECTION64_PATH"; exit 7', "sh", "--help")
    ).communicate()
    assert (child.returncode, said, errors) == (7, f"--help {LIBRARY}\n", "")


def test_signals_reach_the_program_itself() -> None:
    with _wrap(sys.executable, "-c", "import os, signal; print(os.getpid(), flush=True); signal.pause()") as child:
        assert child.stdout
        assert int(child.stdout.readline()) == child.pid  # the same process
        child.send_signal(signal.SIGTERM)
    assert child.returncode == -signal.SIGTERM


@pytest.mark.parametrize(("program", "code"), [("/nowhere/program", 127), ("/etc/passwd", 126)])
def test_a_program_that_cannot_be_run_is_named_with_the_code_of_a_shell(program: str, code: int) -> None:
    said, errors = (child := _wrap(program)).communicate()
    assert (child.returncode, said) == (code, "")
    assert errors.startswith(f"trueload: {program}: cannot be run (")
    assert errors.count("\n") == 1


def test_a_mistake_in_the_settings_costs_no_job() -> None:
    said, errors = (child := _wrap("echo", "runs", TRUELOAD_NO__SUCH="1")).communicate()
    assert (child.returncode, said) == (0, "runs\n")
    assert "TRUELOAD_NO__SUCH" in errors
    assert "the tracer runs with its defaults" in errors
