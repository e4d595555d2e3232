"""From a traced process to the page of its job: the driver says busy throughout, kernels ran 6 % of the time."""

from __future__ import annotations

import json
import re
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
from streamlit.testing.v1 import AppTest

from collector.simulate.standin import StandinProcess
from dashboards import session
from tests.collector.tracer.testbed import Application, Bench
from tests.warehouse.serving import ServerProcess
from warehouse import access
from warehouse.contract import wire
from warehouse.contract.model import Allocation, Attempt, AttemptState, Job

DEVICE = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
"""What the stand-in for libcuda says of its first device."""

JOB, ATTEMPT = "c/1#0", "c/1#0:1"
PERIOD_SECONDS = 0.1
SHARE = 0.06
LANES = 4
PATIENCE_SECONDS = 120.0
"""Ten times what it takes on an idle machine."""


@contextmanager
def running_agent(bench: Any, environment: dict[str, str]) -> Iterator[None]:
    log = (bench.folder / "agent.log").open("wb")
    child = subprocess.Popen(bench.command("agent", "run"), cwd=bench.repository, env=environment, stderr=log)
    try:
        yield
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        child.wait(timeout=30)
        log.close()


def agent_settings(bench: Any, jobs: Path, url: str, token: Path) -> dict[str, str]:
    names = {"JOB_SOURCE": "scenario", "SCENARIO_JOBS_FILE": str(jobs)}
    quick = {"INTERVAL_SECONDS": "0.5", "CADENCE_SECONDS": "2"}
    return {**bench.environment(url, token, **names, **quick), "TRUELOAD_TRACER__PROFILE_SECONDS": "1"}


def hold(path: Path, pid: int) -> Path:
    held = {"attempt_key": ATTEMPT, "device_uuid": DEVICE, "start_at": time.time() - 1, "end_at": None, "pids": [pid]}
    path.write_text(json.dumps({"holdings": [held]}))
    return path


@contextmanager
def working(application: Application) -> Iterator[None]:
    """Run kernels through 6 % of the time, one about every 100 ms, whatever the pace of this machine.

    A kernel is launched, and when the next one has been launched the GPU is said to have run it, and others, evenly
    through 6 % of the time: a thread that is kept waiting changes nothing. Lanes take turns, so that some buffer is
    always complete; a kernel that is out keeps the time open for those that are told before it ends.
    """
    offset, stop = application.header().clock_offset_nanoseconds, threading.Event()

    def launch(number: int) -> str:
        return application.tell(f"launch {number % LANES} 0")[0]

    def work() -> None:
        running, begin = launch(0), time.monotonic_ns()
        for number in count(1):
            is_over = stop.wait(PERIOD_SECONDS)
            end = time.monotonic_ns()
            following = launch(number)
            pieces = max(1, round((end - begin) / 1e9 / PERIOD_SECONDS))
            length = (end - begin) / pieces
            first, *others = (
                f"{round(start) + offset} {round(start + SHARE * length) + offset}"
                for start in (begin + place * length for place in range(pieces))
            )
            more = [f"kernel {number % LANES} 0 {place} 0 launched 1 1 1 0 0" for place in others]
            application.do(*more, f"finish {running} {first}", f"step {pieces}")
            if is_over:
                application.do(f"finish {following} {end + offset} {end + offset}")
                return
            running, begin = following, end

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def tell_of_the_job(url: str, token: str, since: float) -> None:
    """Tell the server of a job that holds the device, as a scheduler's collector does."""
    records: list[Job | Attempt | Allocation] = [
        Job(job_key=JOB, cluster="c", scheduler_job_id="1", source="test", user="ada"),
        Attempt(ATTEMPT, JOB, AttemptState.RUNNING, "RUNNING", since, None, "test"),
        Allocation(f"{ATTEMPT}:{DEVICE}", ATTEMPT, 1.0, since, None, "test", device_uuid=DEVICE, node="node-1"),
    ]
    batch = wire.Batch("scheduler", "boot", 1, time.time(), wire.from_records(records))
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/v1/batches", wire.encode(batch), {"Authorization": f"Bearer {token}"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        assert json.load(answer)["acknowledged"]


def wait_until_known(is_known: Callable[[], bool]) -> None:
    """Ask now and then, for the answer costs the server work that the agent's batches wait behind."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_known():
        assert time.monotonic() < deadline, "the server was not told in time"
        time.sleep(0.3)


def draw_the_job() -> None:
    """Draw the page of the job: what the menu does for the address ``/job?id=...``."""
    from dashboards import page, session

    context = page.PageContext(session.ask, {}, lambda *_: None, session.ask_as, session._who, session.advice)
    next(one for one in page.pages() if one.name == "job").draw(context)


def page_of_the_job(data: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the words of the page as Streamlit draws it from the server of this directory."""
    monkeypatch.setenv("TRUELOAD_DATA", str(data))
    session.client.clear()
    session.forget()
    test = AppTest.from_function(draw_the_job)
    test.query_params["id"] = JOB
    try:
        test.run(timeout=60)
    finally:
        session.client.clear()
        session.forget()
    assert not test.exception, test.exception[0].stack_trace
    said = [str(one.value) for kind in (test.markdown, test.caption, test.warning) for one in kind]
    words = "\n".join([*said, *(one.label for one in test.expander)])
    return words.replace("\\", "").replace("\u202f", " ")


@pytest.mark.slow
def test_a_job_that_the_driver_calls_busy_and_whose_kernels_ran_six_percent_is_told_as_both(
    testbed: Bench, bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerProcess(tmp_path / "data")
    quick = {"TRUELOAD_TRACER_LATENESS_SECONDS": "0.2", "TRUELOAD_TRACER_FLUSH_SECONDS": "0.2"}
    try:
        with Application(testbed, testbed.environment("13.4", **quick)).start() as application:
            pid = application.process.pid
            bench.change(0, uuid=DEVICE, driver_util_ratio=1.0, processes=(StandinProcess(pid, 2**30),))
            token = access.token_file(server.data, access.Role.AGENT)
            jobs = hold(tmp_path / "jobs.json", pid)
            tell_of_the_job(server.url, token.read_text(), json.loads(jobs.read_text())["holdings"][0]["start_at"])
            client = server.client()

            def attempt() -> dict[str, Any]:
                return client.ask("job", {"id": JOB})["attempts"][0]  # type: ignore[no-any-return, index]

            def is_known() -> bool:
                tracer = attempt()["tracer"]
                return bool(tracer and tracer["covered_seconds"] >= 4 and tracer["gap_lengths"] and tracer["kernels"])

            with working(application), running_agent(bench, agent_settings(bench, jobs, server.url, token)):
                wait_until_known(is_known)
        told, page = attempt(), page_of_the_job(server.data, monkeypatch)
        words = subprocess.run(
            bench.command("job", JOB, "--data", str(server.data)), capture_output=True, text=True, check=True
        ).stdout
    finally:
        server.stop()
    ladder, tracer = told["ladder"], told["tracer"]
    assert ladder["driver_util_ratio"]["value"] == pytest.approx(1.0)
    assert (ladder["driver_util_ratio"]["source"], ladder["gpu_bound_ratio"]["source"]) == ("nvml", "kernels")
    assert ladder["gpu_bound_ratio"]["value"] == pytest.approx(SHARE, abs=0.004)
    assert told["inflation_ratio"] == pytest.approx(1 - SHARE, abs=0.004)
    assert tracer["gpu_bound_seconds"] == pytest.approx(SHARE * tracer["busy_covered_seconds"], rel=0.07)
    assert tracer["copy_seconds"] == 0
    assert tracer["mean_kernel_seconds"] * tracer["launches_per_second"] == pytest.approx(SHARE, rel=0.07)
    assert tracer["launches_per_second"] == pytest.approx(1 / PERIOD_SECONDS, rel=0.2)
    assert tracer["steps_per_second"] > 0
    assert {kernel["kernel"] for kernel in tracer["kernels"]} == {"launched"}
    assert sum(gap["count"] for gap in tracer["gap_lengths"] if gap["shortest_seconds"] > 0.05) > 0
    assert "**Driver utilization** 100.0 % · from nvml" in page
    assert re.search(r"\*\*GPU-bound time\*\* (5\.[6-9]|6\.[0-4]) % · from kernels", page)
    assert "The driver calls this attempt 100.0 % busy" in page
    assert re.search(r"\*\*launches per second\*\* .*\*\*steps\*\* [0-9]", page)
    assert "The kernels that took longest in all" in page
    assert "launches per second" in words
    assert "launched" in words
