"""The command as a person runs it, over stand-in devices: golden texts, exit codes, and nothing that hangs."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from collector.doctor.check import Finding
from collector.doctor.examine import Answer, Line
from collector.doctor.text import render
from collector.simulate.standin import NEVER_RETURNS, GpmCounters, StandinFault, StandinProcess
from tests.collector.doctor.conftest import Node, Server
from tests.collector.jobs.kubelet import Kubelet, pod
from tests.warehouse.serving import ServerProcess
from warehouse import access

Run = Callable[..., tuple[int, dict[str, Any]]]
PATIENT_SECONDS = 60


@pytest.fixture
def run(bench: Any, node: Node, repository: Path, free_port: int) -> Run:
    """Give a function that runs ``trueload doctor --json`` on the node; gives exit code and document."""
    node.proc.add(71, name="python3")
    (node.proc.root / "71/fd").mkdir()

    def start(**settings: str) -> tuple[int, dict[str, Any]]:
        names = {key.partition(".")[2].upper(): str(value) for key, value in node.values.items()}
        common = {"SOURCES": "nvml,gpm,kernels", "SERVER_URL": f"http://127.0.0.1:{free_port}"}
        environment = bench.environment("", None, **{**names, **common, **settings})
        environment["TRUELOAD_DOCTOR__DRIVER_LIMIT_SECONDS"] = "2"
        environment.pop("CUDA_INJECTION64_PATH", None)
        ran = subprocess.run(
            bench.command("doctor", "--json"),
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENT_SECONDS,
            check=False,
        )
        assert "Traceback" not in ran.stderr
        return ran.returncode, json.loads(ran.stdout)

    return start


def told(document: dict[str, Any], folder: Path, repository: Path) -> str:
    """Give the answer as a person sees it, without what differs from machine to machine."""
    lines = []
    for one in document["checks"]:
        if one["name"] == "tracer_library":
            continue  # where the tree lies, and whether this machine has CUPTI
        texts = [one[key] for key in ("found", "device", "reason", "fix")]
        found, device, reason, fix = (None if text is None else clean(text, folder, repository) for text in texts)
        lines.append(Line(one["name"], Finding(found or "", device, one["ok"], reason or "", fix or "", one["needed"])))
    console = Console(width=120, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(render(Answer(document["node"], "0", lines)))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def clean(text: str, folder: Path, repository: Path) -> str:
    text = text.replace(str(folder), "NODE").replace(str(repository), "TREE")
    text = re.sub(r"without \w+_\w+, .*", "without some", re.sub(r"\d+ of \d+ values", "some values", text))
    return re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", re.sub(r"nvidia-ml-py [\d.]+", "nvidia-ml-py VERSION", text))


def by_name(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [one for one in document["checks"] if one["name"] == name]


def golden(repository: Path, name: str) -> str:
    return (repository / "tests" / "golden" / f"doctor_{name}.txt").read_text(encoding="utf-8")


def test_a_node_with_everything(run: Run, node: Node, server: Server, tmp_path: Path, repository: Path) -> None:
    node.token()
    (tmp_path / "pods/team_train-0_2b801b7a-5266-4386-864e-45ed71136371").mkdir(parents=True)
    kubelet = Kubelet(tmp_path / "kubelet.sock", [pod("train-0", ["GPU-a"])])
    kubelet.start()
    try:
        code, document = run(JOB_SOURCE="kubernetes", SERVER_URL=server.url)
    finally:
        kubelet.stop()
    assert told(document, tmp_path, repository) == golden(repository, "everything")
    assert (code, document["ok"], document["missing"]) == (0, True, 0)


def test_a_node_on_which_much_is_wrong_and_the_agent_works(
    run: Run, bench: Any, node: Node, tmp_path: Path, repository: Path
) -> None:
    bench.cards += [
        replace(bench.cards[0], uuid="GPU-lost", lost=True),
        replace(
            bench.cards[0],
            uuid="GPU-forbidden",
            gpm=None,
            faults=tuple(StandinFault(call, 4) for call in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetSamples")),
        ),
        replace(bench.cards[0], uuid="GPU-stuck", faults=(StandinFault("nvmlDeviceGetTemperature", NEVER_RETURNS),)),
        replace(bench.cards[0], uuid="GPU-named", name="\x1b[31mred[/bold]\r", gpm=GpmCounters(0, 0, 0, 0, 0, 0)),
    ]
    bench.change(1, processes=(StandinProcess(72, None),))
    node.status("00000000a80425fb")
    node.mounts("overlay")
    node.proc.add(900, name="slurmd")
    (node.proc.root / "driver/nvidia/params").write_text("RmProfilingAdminOnly: 1\n")
    code, document = run()
    assert told(document, tmp_path, repository) == golden(repository, "much_is_wrong")
    assert (code, document["ok"]) == (0, True)


def test_a_driver_that_is_not_loaded(run: Run, bench: Any, node: Node, tmp_path: Path, repository: Path) -> None:
    bench.close()
    bench.state = type(bench.state).create(bench.path, "570.124.06", [], init_return_code=9)
    code, document = run()
    assert told(document, tmp_path, repository) == golden(repository, "no_driver")
    assert (code, document["ok"]) == (1, False)


@pytest.mark.parametrize(
    ("return_code", "fix"), [(12, "libnvidia-ml1"), (18, "upgraded while loaded"), (4, "/dev/nvidia*"), (999, "dmesg")]
)
def test_each_way_in_which_a_driver_does_not_open_has_its_fix(run: Run, bench: Any, return_code: int, fix: str) -> None:
    bench.close()
    bench.state = type(bench.state).create(bench.path, "570.124.06", [], init_return_code=return_code)
    code, document = run()
    (driver,) = by_name(document, "driver")
    assert (code, driver["ok"], driver["needed"]) == (1, False, True)
    assert fix in driver["fix"]


def test_a_library_that_cannot_be_loaded_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    code, document = run(NVML_LIBRARY=str(tmp_path / "libnvidia-ml.so.1"))
    (driver,) = by_name(document, "driver")
    assert (code, driver["found"]) == (1, "cannot be loaded")
    assert str(tmp_path) in driver["reason"]


def test_a_driver_that_never_returns_for_any_device_does_not_hang_the_doctor(run: Run, bench: Any) -> None:
    for card in range(2):
        bench.change(card, faults=(StandinFault("nvmlDeviceGetHandleByIndex_v2", NEVER_RETURNS),))
    begin = time.monotonic()
    code, document = run()
    assert time.monotonic() - begin < 20
    assert code == 1
    assert [one["found"] for one in by_name(document, "devices")] == ["0 of 2 answer"] + ["cannot be opened"] * 2
    assert by_name(document, "devices")[1]["reason"] == "its calls do not return"


def test_a_setting_that_names_nothing_is_told_and_the_rest_is_looked_at(run: Run) -> None:
    code, document = run(SOURCES="nvml,nothing", JOB_SOURCE="nothing")
    assert code == 1
    assert [one["ok"] for one in by_name(document, "settings")] == [False, False]
    assert by_name(document, "spool")[0]["ok"]


@pytest.mark.slow
def test_a_real_server_knows_the_token_of_its_folder_and_its_clock_is_ours(run: Run, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    try:
        token_file = access.token_file(server.data, access.Role.AGENT)
        _, document = run(SERVER_URL=server.url, TOKEN_FILE=str(token_file))
        _, refused = run(SERVER_URL=server.url, TOKEN_FILE=str(access.token_file(server.data, access.Role.OPERATOR)))
        wrong = tmp_path / "wrong.token"
        wrong.write_text("x")
        wrong.chmod(0o600)
        code, unknown = run(SERVER_URL=server.url, TOKEN_FILE=str(wrong))
    finally:
        server.stop()
    assert [one["ok"] for one in by_name(document, "server")] == [True, True]
    assert [one["ok"] for one in by_name(document, "clock")] == [True]
    assert by_name(document, "clock")[0]["found"].startswith("this node's clock is within")
    assert by_name(refused, "server")[1]["ok"] is True  # an operator may deliver, too
    assert (code, by_name(unknown, "server")[1]["found"]) == (1, "it does not know the token")
