"""The prepared run for a real GPU, as far as it can be held to anything without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.tracer import layout
from collector.tracer.launch_costs import LaunchCost
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
    assert (window.launches_count, window.gaps_count, window.flags) == (100.0, 99.5, 0)
    shares = tracer_on_gpu.slots_between(application.memory, 0, base + SECOND // 2, base + 3 * SECOND // 2)
    assert (len(shares), sum(shares)) == (1000, 400)


def test_the_traced_time_is_corrected_and_held_against_the_untraced_one() -> None:
    cost = LaunchCost(5000, 6000, 1000, 0, 1, "", "", 1, 1)
    window = {
        "busy_seconds": 0.3,
        "overhead_idle_seconds": 0.1,
        "gaps_count": 100_000,
        "launches_count": 200_000,
    }
    case = {"plain_seconds": [10.0], "last_traced": {"tracer": window, "wall_seconds": 10.3}}
    told = tracer_on_gpu.corrected(case, cost)
    idle_share = 10.0 / 10.3
    assert told["corrected_seconds"] == pytest.approx([10.0, 10.2 - 0.2 * idle_share, 10.1])
    assert told["off_ratio"] == pytest.approx([0.0, 0.02 - 0.02 * idle_share, 0.01])


def test_agreement_is_by_step_and_says_when_there_is_nothing_to_compare() -> None:
    traced = {"steps": 100, "tracer": {"busy_seconds": 2.02}}
    assert tracer_on_gpu.agreement(traced, {"steps": 50, "profiler_busy_seconds": 1.0})["off_ratio"] == (
        pytest.approx(0.01)
    )
    assert "failed" in tracer_on_gpu.agreement({}, {})


def test_a_case_that_fails_says_so_and_costs_no_other() -> None:
    def fails() -> None:
        raise ValueError("no GPU")

    assert tracer_on_gpu._try(fails) == {"failed": "ValueError: no GPU"}


TORCH = """
import ctypes, json
ctypes.CDLL("libcuda.so.1").cuInit(0)

class Anything:
    def __call__(self, *_arguments, **_options): return self
    def __getattr__(self, _name): return self
    def __enter__(self): return self
    def __exit__(self, *_error): return None
    def __rmul__(self, number): return number

class Profile(Anything):
    def export_chrome_trace(self, path):
        kernels = [{"cat": "kernel", "ts": 1.5, "dur": 2.25}, {"cat": "cpu_op", "ts": 0, "dur": 9}]
        with open(path, "w") as file:
            json.dump({"traceEvents": kernels}, file)

class Profiler(Anything):
    profile = Profile()

profiler = Profiler()
def __getattr__(_name): return Anything()
"""
"""As much of torch as the script calls; nothing runs on the stand-in GPU."""


@pytest.mark.slow
def test_the_whole_script_runs_to_its_end(testbed: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    environment = testbed.environment("13.4", PYTHONPATH=str(tmp_path), SETTLE_SECONDS="0", CUDA_INJECTION64_PATH="")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "out.json"
    assert tracer_on_gpu.main(["--out", str(out), "--seconds", "0.05", "--repeats", "1"]) == 0
    told = json.loads(out.read_text())
    assert told["launch_cost"]["gpu_model"] == "Stand-in GPU"
    for workload in ("network", "tiny"):
        parts = told[workload]
        assert set(parts) == {"slow_down", "profiler_first", "profiler_later", "agreement", "corrected"}
        assert parts["slow_down"]["last_traced"]["tracer"]["header"]["mode"] == layout.MODE_SUBSCRIBER
        assert parts["slow_down"]["slow_down_ratio"] > -1
        assert parts["profiler_first"]["with_tracer"]["profiler_busy_seconds"] == pytest.approx(2.25e-6)
        assert len(parts["corrected"]["off_ratio"]) == 3
    assert told["steps"] == {"expected": 2 * 1020, "found": 1020}  # NVTX is torch's own; its stand-in tells nothing
    assert told["two_processes"]["each_ratio"] == [0, 0]
    assert told["graph"]["node_level"]["launches_per_replay"] == 0
    assert told["duty_cycle"]["tracer"]["header"]["state"] in {layout.STATE_ARMED, layout.STATE_PAUSED}
    assert "failed" not in json.dumps({**told, "network": None, "tiny": None})
