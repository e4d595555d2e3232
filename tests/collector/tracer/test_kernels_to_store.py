"""From a traced process to the page of its job: the driver says busy throughout, kernels ran 6 % of the time."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from collector.simulate.standin import StandinProcess
from tests.collector.tracer.testbed import Application, Bench
from tests.warehouse.serving import ServerProcess
from warehouse import access
from warehouse.contract import wire
from warehouse.contract.model import Allocation, Attempt, AttemptState, Job

DEVICE = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
"""What the stand-in for libcuda says of its first device."""

ATTEMPT = "c/1#0:1"
MILLISECOND = 10**6
SHARE = 0.06


@contextmanager
def running_agent(bench: Any, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    log = (bench.folder / "agent.log").open("wb")
    child = subprocess.Popen(bench.command("agent", "run"), cwd=bench.repository, env=environment, stderr=log)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        child.wait(timeout=30)
        log.close()


def settings(bench: Any, jobs: Path, url: str, token: Path) -> dict[str, str]:
    names = {"JOB_SOURCE": "scenario", "SCENARIO_JOBS_FILE": str(jobs)}
    quick = {"INTERVAL_SECONDS": "0.5", "CADENCE_SECONDS": "2"}
    return {**bench.environment(url, token, **names, **quick), "TRUELOAD_TRACER__PROFILE_SECONDS": "1"}


def hold(path: Path, pid: int) -> Path:
    held = {"attempt_key": ATTEMPT, "device_uuid": DEVICE, "start_at": time.time() - 1, "end_at": None, "pids": [pid]}
    path.write_text(json.dumps({"holdings": [held]}))
    return path


@contextmanager
def working(application: Application) -> Iterator[None]:
    """Run a kernel of 6 ms in every 100 ms, told when it is over."""
    offset, stop = application.header().clock_offset_nanoseconds, threading.Event()

    def work() -> None:
        begin = time.monotonic_ns()
        for number in count():
            start = begin + number * 100 * MILLISECOND
            if stop.wait(max(0.0, (start + 10 * MILLISECOND - time.monotonic_ns()) / 1e9)):
                return
            place = f"{start + offset} {start + offset + 6 * MILLISECOND}"
            application.do(f"kernel 0 0 {place} {number + 1} _Z6kernelPf 80 256 32 0 0", "step 1")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def tell_of_the_job(url: str, token: str, held: dict[str, Any]) -> None:
    """Tell the server of a job that holds the device, as a scheduler's collector does."""
    since = held["start_at"]
    records: list[Job | Attempt | Allocation] = [
        Job(job_key="c/1#0", cluster="c", scheduler_job_id="1", source="test", user="ada"),
        Attempt(ATTEMPT, "c/1#0", AttemptState.RUNNING, "RUNNING", since, None, "test"),
        Allocation(f"{ATTEMPT}:{DEVICE}", ATTEMPT, 1.0, since, None, "test", device_uuid=DEVICE, node="node-1"),
    ]
    batch = wire.Batch("scheduler", "boot", 1, time.time(), wire.from_records(records))
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/v1/batches", wire.encode(batch), {"Authorization": f"Bearer {token}"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        assert json.load(answer)["acknowledged"]


@pytest.mark.slow
def test_a_job_that_the_driver_calls_busy_and_whose_kernels_ran_six_percent_is_told_as_both(
    testbed: Bench, bench: Any, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    server = ServerProcess(tmp_path / "data")
    quick = {"TRUELOAD_TRACER_LATENESS_SECONDS": "1", "TRUELOAD_TRACER_FLUSH_SECONDS": "0.2"}
    try:
        with Application(testbed, testbed.environment("13.4", **quick)).start() as application:
            pid = application.process.pid
            bench.change(0, uuid=DEVICE, driver_util_ratio=1.0, processes=(StandinProcess(pid, 2**30),))
            token = access.token_file(server.data, access.Role.AGENT)
            jobs = hold(tmp_path / "jobs.json", pid)
            tell_of_the_job(server.url, token.read_text(), json.loads(jobs.read_text())["holdings"][0])
            client = server.client()

            def attempt() -> dict[str, Any]:
                return client.ask("job", {"id": ATTEMPT.rpartition(":")[0]})["attempts"][0]  # type: ignore[no-any-return, index]

            def covered() -> bool:
                tracer = attempt()["tracer"]
                return bool(tracer and tracer["covered_seconds"] >= 4 and tracer["gap_lengths"])

            agent = settings(bench, jobs, server.url, token)
            with working(application), running_agent(bench, agent):
                wait_until(covered, 40.0)
        told = attempt()
        words = subprocess.run(
            bench.command("job", "c/1#0", "--data", str(server.data)), capture_output=True, text=True, check=True
        ).stdout
    finally:
        server.stop()
    assert told["ladder"]["driver_util_ratio"]["value"] == pytest.approx(1.0)
    assert told["ladder"]["gpu_bound_ratio"]["source"] == "kernels"
    assert told["ladder"]["gpu_bound_ratio"]["value"] == pytest.approx(SHARE, abs=0.005)
    assert told["inflation_ratio"] == pytest.approx(1 - SHARE, abs=0.005)
    tracer = told["tracer"]
    assert tracer["mean_kernel_seconds"] == pytest.approx(0.006)
    assert tracer["launches_per_second"] == pytest.approx(10, abs=0.5)
    assert tracer["steps_per_second"] == pytest.approx(10, abs=2)
    assert [(round(gap["shortest_seconds"], 3), gap["longest_seconds"]) for gap in tracer["gap_lengths"]][-1] == (
        0.067,
        pytest.approx(0.134, abs=0.001),
    )
    assert "launches per second" in words
