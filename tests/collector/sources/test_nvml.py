from __future__ import annotations

import json
import subprocess
from typing import Any

from collector.simulate.standin import StandinCounters
from collector.sources.nvml import METRICS, SOURCE

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
    return {card["device_uuid"]: card["readings"].get("nvml", {}) for card in json.loads(ran.stdout)["devices"]}


def test_a_card_tells_all_that_the_source_promises(bench: Any) -> None:
    bench.change(
        0, counters=StandinCounters(), nvlink_bytes=(0, 0), memory_clock_hertz=2.6e9, memory_temperature_celsius=71
    )
    found = once(bench)
    assert set(found[BUSY]) == set(METRICS) == set(SOURCE.metrics)
    assert (found[BUSY]["memory_clock_hertz"], found[BUSY]["memory_temperature_celsius"]) == (2.6e9, 71)
    assert found[BUSY]["driver_util_ratio"] == 0.9
    assert found[BUSY]["memory_used_bytes"] == 20 * 1024**3
    assert found[BUSY]["temperature_celsius"] == 60
    assert found[BUSY]["sm_clock_hertz"] == 1.98e9
    assert found[BUSY]["process_count"] == 1
    # 400 W over one interval of 0.2 s, and what the reading itself takes on a busy machine
    assert 40 < found[BUSY]["energy_joules"] < 4000


def test_nothing_running_is_zero_and_not_absent(bench: Any) -> None:
    found = once(bench)
    assert found[IDLE]["driver_util_ratio"] == 0.0
    assert found[IDLE]["process_count"] == 0
    assert found[IDLE]["memory_used_bytes"] == 0


def test_more_memory_in_use_than_there_is_cannot_be_true(bench: Any) -> None:
    bench.change(0, memory_used_bytes=81 * 1024**3)
    found = once(bench)
    assert "memory_used_bytes" not in found[BUSY]
    assert "memory_used_bytes" in found[IDLE]


def test_the_readings_of_a_card_fit_a_terminal_of_80_columns(bench: Any) -> None:
    ran = subprocess.run(
        bench.command("agent", "once"),
        cwd=bench.repository,
        env={**bench.environment("http://127.0.0.1:9", None), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = ran.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("    nvml ") for line in lines)
    assert "driver_util_ratio=0.9" in ran.stdout
