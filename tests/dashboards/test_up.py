"""What `trueload up` starts, and what it says when it cannot."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dashboards import up
from tests.warehouse.serving import ServerProcess
from warehouse.client import find_server


def test_without_a_gpu_and_without_data_the_demo_plays(tmp_path: Path) -> None:
    assert up.choose(tmp_path / "new", demo_wanted=None, driver=False) == (True, False)


def test_with_a_gpu_its_own_agent_measures_instead(tmp_path: Path) -> None:
    assert up.choose(tmp_path / "new", demo_wanted=None, driver=True) == (False, True)


def test_data_of_a_real_site_get_no_demo_unasked(tmp_path: Path) -> None:
    (tmp_path / "hot.duckdb").touch()
    assert up.choose(tmp_path, demo_wanted=None, driver=False) == (False, False)


def test_a_directory_that_held_a_demo_goes_on_with_it(tmp_path: Path) -> None:
    (tmp_path / "hot.duckdb").touch()
    (tmp_path / "demo").mkdir()
    assert up.choose(tmp_path, demo_wanted=None, driver=True) == (True, False)


@pytest.mark.parametrize("driver", [True, False])
def test_what_the_person_says_counts(tmp_path: Path, driver: bool) -> None:
    assert up.choose(tmp_path, demo_wanted=True, driver=driver) == (True, False)
    assert up.choose(tmp_path, demo_wanted=False, driver=driver) == (False, driver)


def _run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trueload", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        env={**os.environ, **(environment or {})},
    )


def test_json_goes_with_once(tmp_path: Path) -> None:
    ran = _run("up", "--json", "--data", str(tmp_path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--once" in ran.stderr


@pytest.mark.parametrize(("option", "setting"), [("--port", "server.port"), ("--pages-port", "pages.port")])
def test_a_busy_port_is_one_line_that_names_option_and_setting(
    tmp_path: Path, free_port: int, option: str, setting: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        other = {"--port": "--pages-port", "--pages-port": "--port"}[option]
        busy = str(taken.getsockname()[1])
        ran = _run("up", "--no-demo", "--data", str(tmp_path), option, busy, other, str(free_port))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1
    assert f"port {busy}" in ran.stderr
    assert option in ran.stderr
    assert setting in ran.stderr


def test_a_server_that_cannot_start_is_told_with_its_log(tmp_path: Path, free_port: int) -> None:
    (tmp_path / "tokens").write_text("in the way", encoding="utf-8")
    ran = _run("up", "--once", "--no-demo", "--data", str(tmp_path), "--port", str(free_port))
    assert ran.returncode == 1
    assert "server ended with exit code" in ran.stderr
    assert str(tmp_path / "logs" / "server.log") in ran.stderr
    assert "tokens" in ran.stderr.split("the end of its log")[1]


@pytest.mark.slow
def test_once_prints_one_document_and_leaves_nothing_running(tmp_path: Path) -> None:
    ran = _run(
        "up", "--once", "--json", "--no-demo", "--data", str(tmp_path), environment={"TRUELOAD_UP__ONCE_SECONDS": "1"}
    )
    assert ran.returncode == 0, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    assert document["recommendations"] == []
    assert not (tmp_path / "server.json").exists()


@pytest.mark.slow
def test_where_a_server_owns_the_directory_it_is_asked_and_left_running(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    try:
        ran = _run("up", "--once", "--json", "--data", str(server.data))
        assert (ran.returncode, json.loads(ran.stdout)["recommendations"]) == (0, [])
        assert f"asking the server that owns {server.data}" in ran.stderr
        refused = _run("up", "--demo", "--data", str(server.data))
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "a server owns it already" in refused.stderr
        assert server.process.poll() is None
        assert find_server(server.data) is not None
    finally:
        server.stop()


@pytest.mark.slow
def test_beside_a_server_the_pages_come_and_go_alone(tmp_path: Path, free_port: int) -> None:
    server = ServerProcess(tmp_path / "data")
    arguments = ("up", "--data", str(server.data), "--pages-port", str(free_port))
    child = subprocess.Popen([sys.executable, "-m", "trueload", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        with child.stdout as lines:
            said = "".join(itertools.takewhile(lambda line: not line.startswith("Ctrl-C"), lines))
        assert f"http://127.0.0.1:{free_port}" in said
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0
        assert server.client().ask("recommend", {})["recommendations"] == []
    finally:
        child.kill()
        child.wait()
        server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_ends_everything_soon_and_well(tmp_path: Path, free_port: int, number: int) -> None:
    arguments = ("up", "--once", "--no-demo", "--data", str(tmp_path), "--port", str(free_port))
    child = subprocess.Popen(
        [sys.executable, "-m", "trueload", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TRUELOAD_UP__ONCE_SECONDS": "600"},
    )
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith("collecting"):
            break
    began = time.monotonic()
    child.send_signal(number)
    assert child.wait(30) == 0
    child.stderr.close()
    assert time.monotonic() - began < 10.0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", free_port))
