from __future__ import annotations

import ctypes.util
from pathlib import Path

import pytest

from collector.tracer import calibrate
from tests.collector.tracer.testbed import Bench
from warehouse.contract.errors import TrueloadError


def test_launches_are_timed_with_and_without_the_tracer(testbed: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in testbed.environment("13.4").items():
        monkeypatch.setenv(name, value)
    cost = calibrate.measure_launch_cost(device=2, rounds=2, batches=5)
    assert cost.launches_count == 2 * 5 * 200
    assert cost.added_nanoseconds == pytest.approx(cost.traced_nanoseconds - cost.untraced_nanoseconds, abs=0.2)
    assert cost.untraced_nanoseconds > 0
    assert cost.spread_nanoseconds >= 0
    assert cost.gpu_model == "Stand-in GPU"
    assert cost.device_uuid == bytes(range(32, 48)).hex()
    assert (cost.cupti_version, cost.cuda_driver_version) == (130401, 13000)


def test_processes_that_are_not_traced_are_no_measurement(testbed: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in testbed.environment("13.4", TRUELOAD_CUPTI_PATH="/nowhere/libcupti.so").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TrueloadError, match=r"not traced \(state 4, step 1, code 0\)"):
        calibrate.measure_launch_cost(rounds=1, batches=1)


def test_a_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if ctypes.util.find_library("cuda"):
        pytest.skip("there is a driver here")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(TrueloadError, match="no CUDA driver"):
        calibrate.measure_launch_cost(rounds=1, batches=1)
