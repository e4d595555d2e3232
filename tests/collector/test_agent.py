"""The agent as it runs: a process of its own over the NVML stand-in, read through the unmodified binding."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from collector.simulate.standin import NEVER_RETURNS, StandinFault, StandinProcess
from warehouse.contract import wire

BUSY, IDLE = "GPU-00000000-0000-0000-0000-00000000000a", "GPU-00000000-0000-0000-0000-00000000000b"
NOT_SUPPORTED = 3
UNKNOWN = 999
GRACE_SECONDS = 10
"""Within which it has to end, on a busy machine, too: a third of what Kubernetes gives by default."""

Wait = Callable[..., None]


@contextmanager
def running(bench: Any, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        bench.command("agent", "run"), cwd=bench.repository, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        sys.stderr.write(child.communicate()[1])  # for whoever reads why a test failed


def stop(child: subprocess.Popen[str]) -> str:
    """Ask the agent to end; give what it logged."""
    begin = time.monotonic()
    child.send_signal(signal.SIGTERM)
    _, log = child.communicate(timeout=30)
    assert child.returncode == 0, log
    assert time.monotonic() - begin < GRACE_SECONDS, log
    return log


def of(rows: list[dict[str, Any]], device: str, source: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["device_uuid"] == device and row["source"] == source]


def full(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["cadence_seconds"] == 1.0]


@pytest.fixture
def jobs(tmp_path: Path) -> dict[str, str]:
    """Give the settings of a scheduler that says: attempt a#0:1 holds the busy card, with process 71."""
    path = tmp_path / "jobs.json"
    held = {"attempt_key": "c/a#0:1", "device_uuid": BUSY, "start_at": 1.0, "end_at": None, "pids": [71]}
    path.write_text(json.dumps({"holdings": [held]}))
    return {"JOB_SOURCE": "scenario", "SCENARIO_JOBS_FILE": str(path)}


def test_what_the_cards_do_arrives_as_rows_of_the_cadence_with_their_owner(
    bench: Any, receiver: Any, token_file: Path, jobs: dict[str, str], wait_until: Wait
) -> None:
    with running(bench, bench.environment(receiver.url, token_file, **jobs)) as child:
        wait_until(lambda: len(full(of(receiver.rows("device_sample"), BUSY, "gpm"))) >= 3)
        log = stop(child)
    rows = receiver.rows("device_sample")
    nvml, gpm = full(of(rows, BUSY, "nvml"))[1], full(of(rows, BUSY, "gpm"))[1]
    assert nvml["driver_util_ratio"] == pytest.approx(0.9)
    assert nvml["memory_used_bytes"] == nvml["memory_used_bytes_max"] == 20 * 1024**3
    assert nvml["power_watts"] == 400.0
    assert nvml["energy_joules"] == pytest.approx(400.0, rel=0.15)
    assert nvml["process_count"] == 1
    assert gpm["engine_active_ratio"] == pytest.approx(0.5, abs=1e-3)
    assert gpm["sm_active_ratio"] == pytest.approx(0.4, abs=1e-3)
    assert gpm["dram_active_ratio"] == pytest.approx(0.3, abs=1e-3)
    assert "driver_util_ratio" not in {name for name, value in gpm.items() if value is not None}
    for row in (nvml, gpm):
        assert (row["attempt_key"], row["attribution"], row["share_ratio"]) == ("c/a#0:1", "scheduler", 1.0)
        assert row["sampled_at"] % 1 == 0
    process = full(receiver.rows("process_sample"))[-1]
    assert (process["pid"], process["source"], process["attempt_key"]) == (71, "nvml", "c/a#0:1")
    assert (process["memory_used_bytes"], process["driver_util_ratio"]) == (20 * 1024**3, None)
    idle = full(of(rows, IDLE, "nvml"))[1]
    assert (idle["attempt_key"], idle["attribution"]) == (None, None)
    assert (idle["driver_util_ratio"], idle["process_count"]) == (0.0, 0)
    assert "source nvml" in log


def test_the_node_and_the_job_on_it_are_told_from_the_hosts_side(
    bench: Any, receiver: Any, token_file: Path, wait_until: Wait
) -> None:
    bench.change(0, processes=(StandinProcess(os.getpid(), 1024**3),))
    settings = {"JOB_SOURCE": "process", "SOURCES": "nvml,host"}
    with running(bench, bench.environment(receiver.url, token_file, **settings)) as child:
        wait_until(lambda: len([row for row in receiver.rows("host_sample") if row["scope"] != "node"]) >= 2)
        stop(child)
    rows = receiver.rows("host_sample")
    node = next(row for row in rows if row["scope"] == "node")
    assert node["cpu_seconds"] > 0
    assert node["memory_limit_bytes"] > node["memory_available_bytes"] > 0
    job = [row for row in rows if row["scope"] != "node"][-1]
    assert job["cpu_seconds"] >= 0
    assert job["memory_resident_bytes"] > 0
    assert job["sampled_at"] % 1 == 0


CALLS = (
    *("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetSamples", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"),
    *("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo"),
    *("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetFieldValues", "nvmlGpmSampleGet"),
    *("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlGpmMetricsGet"),
    *("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetTotalEccErrors"),
)
"""All that the sources ask of a device."""


def test_u13_a_container_that_lost_its_devices_tells_nothing_and_ends_if_it_may(
    bench: Any, receiver: Any, token_file: Path, wait_until: Wait
) -> None:
    settings = {"EXIT_WHEN_SILENT_SECONDS": "1.5", "SOURCES": "nvml,gpm"}
    with running(bench, bench.environment(receiver.url, token_file, **settings)) as child:
        wait_until(lambda: full(of(receiver.rows("device_sample"), BUSY, "nvml")))
        for place in (0, 1):
            bench.change(place, faults=tuple(StandinFault(call, UNKNOWN) for call in CALLS))
        silent_at = time.time()
        _, log = child.communicate(timeout=20)
    assert child.returncode == 1
    assert "no device has given a value" in log
    assert "Unknown Error" in log
    rows = receiver.rows("device_sample")
    assert max(row["sampled_at"] + row["cadence_seconds"] for row in rows) < silent_at + 1.0


def test_rows_of_a_card_never_overlap(bench: Any, receiver: Any, token_file: Path, wait_until: Wait) -> None:
    with running(bench, bench.environment(receiver.url, token_file)) as child:
        wait_until(lambda: len(of(receiver.rows("device_sample"), BUSY, "nvml")) >= 4)
        stop(child)
    rows = of(receiver.rows("device_sample"), BUSY, "nvml")
    for first, second in pairwise(sorted(rows, key=lambda row: row["sampled_at"])):
        assert first["sampled_at"] + first["cadence_seconds"] <= second["sampled_at"] + 1e-3


def test_the_node_and_its_cards_are_told_at_the_start(
    bench: Any, receiver: Any, token_file: Path, wait_until: Wait
) -> None:
    with running(bench, bench.environment(receiver.url, token_file)) as child:
        wait_until(lambda: receiver.rows("device"))
        stop(child)
    assert [(row["node"], row["gpu_count"], row["driver_version"]) for row in receiver.rows("node")] == [
        ("node-1", 2, "570.124.06")
    ]
    cards = receiver.rows("device")
    assert [(row["device_uuid"], row["state"], row["device_index"]) for row in cards] == [
        (BUSY, "up", 0),
        (IDLE, "up", 1),
    ]
    assert cards[0]["memory_bytes"] == 80 * 1024**3


def test_u11_a_lost_card_costs_its_own_rows_and_is_told_until_it_is_back(
    bench: Any, receiver: Any, token_file: Path, wait_until: Wait
) -> None:
    with running(bench, bench.environment(receiver.url, token_file)) as child:
        wait_until(lambda: full(of(receiver.rows("device_sample"), IDLE, "nvml")))
        bench.change(1, lost=True)
        wait_until(lambda: len(receiver.rows("event")) == 2)
        before = len(full(of(receiver.rows("device_sample"), BUSY, "gpm")))
        seen = len(of(receiver.rows("device_sample"), IDLE, "nvml"))
        wait_until(lambda: len(full(of(receiver.rows("device_sample"), BUSY, "gpm"))) >= before + 2)
        assert len(of(receiver.rows("device_sample"), IDLE, "nvml")) <= seen + 1
        bench.change(1, lost=False)
        wait_until(lambda: len(receiver.rows("event")) == 3)
        wait_until(lambda: len(of(receiver.rows("device_sample"), IDLE, "nvml")) >= seen + 2)
        stop(child)
    assert [(row["kind"], row["device_uuid"]) for row in receiver.rows("event")] == [
        ("inventory_begun", None),
        ("device_lost", IDLE),
        ("device_back", IDLE),
    ]
    states = [(row["state"], row["until_at"] is None) for row in receiver.rows("device") if row["device_uuid"] == IDLE]
    assert states == [("up", True), ("up", False), ("lost", True), ("lost", False), ("up", True)]


def test_a_call_that_one_card_does_not_support_is_asked_once_and_leaves_one_value_absent(
    bench: Any, receiver: Any, token_file: Path, wait_until: Wait
) -> None:
    calls = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetSamples")
    bench.change(1, faults=tuple(StandinFault(call, NOT_SUPPORTED) for call in calls), gpm=None)
    with running(bench, bench.environment(receiver.url, token_file)) as child:
        wait_until(lambda: len(full(of(receiver.rows("device_sample"), IDLE, "nvml"))) >= 2)
        log = stop(child)
    rows = receiver.rows("device_sample")
    assert {row["power_watts"] for row in of(rows, IDLE, "nvml")} == {None}
    assert {row["temperature_celsius"] for row in of(rows, IDLE, "nvml")} == {40.0}
    assert {row["power_watts"] for row in of(rows, BUSY, "nvml")} == {400.0}
    assert of(rows, IDLE, "gpm") == []
    assert "nvmlDeviceGetPowerUsage: 1 times Not Supported" in log


def test_u12_a_call_that_never_returns_costs_its_own_card_and_the_agent_still_ends(
    bench: Any, receiver: Any, token_file: Path, wait_until: Wait
) -> None:
    with running(bench, bench.environment(receiver.url, token_file, CALL_PATIENCE_SECONDS="0.1")) as child:
        wait_until(lambda: full(of(receiver.rows("device_sample"), IDLE, "nvml")))
        bench.change(1, faults=(StandinFault("nvmlDeviceGetTemperature", NEVER_RETURNS),))
        before = len(full(of(receiver.rows("device_sample"), BUSY, "nvml")))
        wait_until(lambda: len(full(of(receiver.rows("device_sample"), BUSY, "nvml"))) >= before + 3)
        told = len(of(receiver.rows("device_sample"), IDLE, "nvml"))
        log = stop(child)
    assert len(of(receiver.rows("device_sample"), IDLE, "nvml")) == told
    assert f"{IDLE}: nvmlDeviceGetTemperature does not return" in log
    assert "left without goodbye" in log


def test_a_value_that_cannot_be_true_is_absent(bench: Any, receiver: Any, token_file: Path, wait_until: Wait) -> None:
    bench.change(1, driver_util_ratio=42_949_672.95)
    with running(bench, bench.environment(receiver.url, token_file)) as child:
        wait_until(lambda: len(full(of(receiver.rows("device_sample"), IDLE, "nvml"))) >= 2)
        stop(child)
    assert {row.get("driver_util_ratio") for row in of(receiver.rows("device_sample"), IDLE, "nvml")} == {None}


def test_a_process_of_another_job_makes_the_row_ambiguous(
    bench: Any, receiver: Any, token_file: Path, jobs: dict[str, str], tmp_path: Path, wait_until: Wait
) -> None:
    held = {"attempt_key": "c/a#0:1", "device_uuid": BUSY, "start_at": 1.0, "end_at": None, "pids": [5]}
    other = {"attempt_key": "c/b#0:1", "device_uuid": IDLE, "start_at": 1.0, "end_at": None, "pids": [71]}
    (tmp_path / "jobs.json").write_text(json.dumps({"holdings": [held, other]}))
    with running(bench, bench.environment(receiver.url, token_file, **jobs)) as child:
        wait_until(lambda: full(of(receiver.rows("device_sample"), BUSY, "nvml")))
        stop(child)
    row = full(of(receiver.rows("device_sample"), BUSY, "nvml"))[0]
    assert (row["attempt_key"], row["attribution"]) == (None, "ambiguous")


def test_without_a_server_everything_waits_in_the_spool_and_arrives_later(
    bench: Any, receiver: Any, token_file: Path, free_port: int, wait_until: Wait
) -> None:
    spool = bench.folder / "spool"
    away = bench.environment(f"http://127.0.0.1:{free_port}", token_file)
    with running(bench, away) as child:
        wait_until(lambda: len(list(spool.glob("*.batch"))) >= 3)
        child.kill()
        child.wait()
    waiting = len(list(spool.glob("*.batch")))
    with running(bench, bench.environment(receiver.url, token_file)) as child:
        wait_until(lambda: len(receiver.batches) > waiting)
        stop(child)
    sequences = sorted(batch.sequence for batch in receiver.batches)  # several are under way at once
    assert sequences == list(range(1, len(sequences) + 1))
    assert len({batch.boot_id for batch in receiver.batches}) == 1
    assert len([row for row in receiver.rows("device") if row["state"] == "up"]) == 2  # told once, not at each start


def test_u11_a_card_that_was_lost_while_the_agent_was_off_is_told_by_its_uuid(
    bench: Any, receiver: Any, token_file: Path, wait_until: Wait
) -> None:
    environment = bench.environment(receiver.url, token_file)
    with running(bench, environment) as child:
        wait_until(lambda: receiver.rows("device"))
        stop(child)
    bench.change(1, lost=True)
    with running(bench, environment) as child:
        wait_until(lambda: len(receiver.rows("event")) >= 3)
        stop(child)
    told = {(row["kind"], row["device_uuid"]) for row in receiver.rows("event")}
    assert told == {("inventory_begun", None), ("device_lost", IDLE), ("device_unreadable", None)}


def test_u12_without_a_driver_the_agent_waits_and_still_ends_at_once(
    bench: Any, receiver: Any, token_file: Path
) -> None:
    environment = {**bench.environment(receiver.url, token_file), "TRUELOAD_STANDIN_STATE": "/nowhere"}
    with running(bench, environment) as child:
        assert child.stderr is not None
        line = next(text for text in child.stderr if "does not answer" in text)
        assert "next try in 1 s" in line
        stop(child)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("SOURCES", "nvml,sundial", r"agent.sources: no source 'sundial'; there are "),
        (
            "JOB_SOURCE",
            "oracle",
            r"agent.job_source: no job source 'oracle'; there are kubernetes, process, scenario, slurm",
        ),
        ("JOB_SOURCE", "scenario", r"set agent.scenario_jobs_file"),
        (
            "NVML_LIBRARY",
            "/nowhere/libnvidia-ml.so.1",
            r"/nowhere/libnvidia-ml.so.1 cannot be loaded",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_ends_the_agent_with_one_line(
    bench: Any, receiver: Any, token_file: Path, setting: str, value: str, message: str
) -> None:
    environment = bench.environment(receiver.url, token_file, **{setting: value})
    ran = subprocess.run(
        bench.command("agent", "run"),
        cwd=bench.repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_interrupt_ends_it_like_a_request_and_leaves_no_half_file(bench: Any, wait_until: Wait) -> None:
    spool = bench.folder / "spool"
    with running(bench, bench.environment("http://127.0.0.1:9", None)) as child:
        wait_until(lambda: len(list(spool.glob("*.batch"))) >= 2)
        os.kill(child.pid, signal.SIGINT)
        _, log = child.communicate(timeout=20)
    assert child.returncode == 0
    assert "agent.token_file is not set" in log
    batches = [wire.decode(path.read_bytes()) for path in sorted(spool.glob("*.batch"))]
    assert [batch.sequence for batch in batches] == list(range(1, len(batches) + 1))
