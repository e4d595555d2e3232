from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from collector.sources.gpm import GPM_IDS, SOURCE, TRAFFIC

BUSY, IDLE = "GPU-00000000-0000-0000-0000-00000000000a", "GPU-00000000-0000-0000-0000-00000000000b"


def once(bench: Any) -> dict[str, dict[str, float]]:
    """Read the node once; give the readings of this source by card."""
    ran = subprocess.run(
        bench.command("agent", "once", "--json"),
        cwd=bench.repository,
        env=bench.environment("http://127.0.0.1:9", None),
        capture_output=True,
        text=True,
        check=True,
    )
    return {card["device_uuid"]: card["readings"].get("gpm") for card in json.loads(ran.stdout)["devices"]}


def test_two_samples_give_the_exact_mean_between_them(bench: Any) -> None:
    found = once(bench)[BUSY]
    assert set(found) == {*GPM_IDS, *TRAFFIC} == set(SOURCE.metrics)
    wanted = {
        "engine_active_ratio": 0.5,
        "sm_active_ratio": 0.4,
        "sm_occupancy_ratio": 0.2,
        "tensor_active_ratio": 0.1,
        "dram_active_ratio": 0.3,
        **dict.fromkeys(("fp64_active_ratio", "fp32_active_ratio", "fp16_active_ratio", *TRAFFIC), 0.0),
    }
    assert found == pytest.approx(wanted, abs=1e-6)


def test_an_idle_card_is_zero_and_not_absent(bench: Any) -> None:
    assert once(bench)[IDLE] == dict.fromkeys((*GPM_IDS, *TRAFFIC), 0.0)


def test_a_card_before_hopper_has_no_readings_and_costs_nobody_theirs(bench: Any) -> None:
    bench.change(0, gpm=None)
    found = once(bench)
    assert found[BUSY] is None
    assert found[IDLE] is not None
