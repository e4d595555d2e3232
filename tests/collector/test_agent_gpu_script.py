"""The prepared run of the agent for a real GPU, as far as it can be held to anything without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import agent_on_gpu

TORCH = """
import time

class Anything:
    def __matmul__(self, _other): return self
    def synchronize(self): time.sleep(0.01)

bfloat16, cuda = None, Anything()
def randn(*_sizes, **_options): return Anything()
"""
"""As much of torch as the load calls; nothing runs on the stand-in GPU."""


def test_costs_are_told_by_median_and_tail() -> None:
    costs = agent_on_gpu.Costs({"call": [n * 1e-6 for n in range(1, 101)]})
    assert costs.told() == {"call": {"count": 100, "median_us": 50.5, "p99_us": 100.0, "longest_us": 100.0}}


def test_a_case_that_fails_says_so_and_costs_no_other() -> None:
    def fails() -> None:
        raise ValueError("no GPU")

    assert agent_on_gpu._try(fails) == {"failed": "ValueError: no GPU"}


@pytest.mark.slow
@pytest.mark.timeout(170)
def test_the_whole_script_runs_to_its_end(bench: Any, tmp_path: Path, repository: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    out = tmp_path / "out.json"
    environment = {**bench.environment("http://127.0.0.1:9", None), "PYTHONPATH": str(tmp_path)}
    subprocess.run(
        [sys.executable, "tests/gpu/agent_on_gpu.py", "--out", str(out), "--seconds", "4"],
        cwd=repository,
        env=environment,
        check=True,
        timeout=160,
    )
    told = json.loads(out.read_text())
    assert not [part for part in told.values() if isinstance(part, dict) and "failed" in part]
    busy, idle = (card.uuid for card in bench.cards)
    for stretch in ("idle", "busy"):
        values = told[stretch]["values"]
        assert values[busy]["nvml"]["power_watts"]["most"] == 400.0
        assert values[busy]["gpm"]["sm_active_ratio"]["median"] == pytest.approx(0.4, abs=0.05)
        assert values[idle]["gpm"]["sm_active_ratio"]["most"] == 0.0
        assert told[stretch]["calls"]["nvmlDeviceGetTemperature 0"]["count"] >= 2 * 2
        assert told[stretch]["sweep_longest_us"] >= told[stretch]["sweep_median_us"] > 0
    assert told["gpm_numbers"][busy]["2"] == pytest.approx(40.0, abs=5)
    assert str(told["gpm_numbers"][busy]["37"]).startswith("return code")
    assert told["doctor"]["document"]["ok"] is True
    assert told["doctor"]["exit_code"] == 0
    assert told["doctor"]["text"][-1].startswith("The agent works")
    assert told["agent"]["first_batch_seconds"] is not None
    assert any(line.startswith("DCGM_FI_DEV_POWER_USAGE{") for line in told["agent"]["metrics"])
    assert told["agent"]["resident_most_bytes"] > 10**7
