"""The way in without any deployment, with the real Prometheus of Debian: what it scraped and what it holds of old.

One server scrapes the agent's own exporter over the NVML stand-in, and a recorded page of dcgm-exporter with pods; the
other was given three hours of history by ``promtool``. ``trueload import prometheus-server`` reads both over HTTP.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3

import trueload
from collector.simulate.standin import STATE_VARIABLE, StandinDevice, StandinState, library_path
from warehouse.client import open_client
from warehouse.contract.errors import TrueloadError
from warehouse.contract.units import iso
from warehouse.importer import ImportOptions
from warehouse.loading import importers, load_files
from warehouse.store import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
if shutil.which("prometheus") is None:
    pytest.skip("needs Debian package prometheus", allow_module_level=True)

READY_SECONDS = 30.0
UUID = "GPU-00000000-0000-0000-0000-00000000000a"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(holds: Any, what: str, seconds: float = READY_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come in {seconds:g} s"
        time.sleep(0.05)


def answers(url: str) -> bool:
    try:
        return bool(urllib3.request("GET", url, timeout=2.0, retries=False).status == 200)
    except urllib3.exceptions.HTTPError:
        return False


@contextmanager
def process(command: list[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    with log.open("wb") as stream:
        started = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
    try:
        yield
    finally:
        started.terminate()
        started.wait(timeout=READY_SECONDS)


@contextmanager
def prometheus(folder: Path, scrape: list[dict[str, object]]) -> Iterator[str]:
    """Run the real server over a folder; gives its address."""
    folder.mkdir(exist_ok=True)
    settings = folder / "prometheus.yml"
    document = {"global": {"scrape_interval": "500ms", "scrape_timeout": "400ms"}, "scrape_configs": scrape}
    settings.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    url = f"http://127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={settings}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address={url.removeprefix('http://')}", "--storage.tsdb.retention.time=10y"]
    with process(command, folder / "prometheus.log"):
        wait_for(lambda: answers(f"{url}/-/ready"), "prometheus")
        yield url


def bring_in(url: str, data: Path, since: float, until: float) -> dict[str, Any]:
    options = ImportOptions("real", "UTC", since_at=since, until_at=until, settings=trueload.load_settings())
    client = open_client(data, trueload.answers(), trueload.load_settings(), create=True)
    try:
        return load_files(client, importers()["prometheus_server"], [url], options).document()
    finally:
        client.close()


def by_command(url: str, data: Path, since: float, until: float) -> dict[str, Any]:
    where = ["--data", str(data), "--cluster", "real", "--since", str(iso(since)), "--until", str(iso(until))]
    command = [sys.executable, "-m", "trueload", "import", "prometheus-server", url, *where, "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return dict(json.loads(ran.stdout))


def waste_by_job(data: Path) -> Any:
    with trueload.connect(data) as connection:
        return connection.ask("waste", by="job")


def rows(data: Path, columns: str, where: str) -> list[tuple[Any, ...]]:
    store = open_store(data)
    try:
        table = store.read(f"SELECT {columns} FROM device_sample WHERE {where}")
    finally:
        store.close()
    return [tuple(row.values()) for row in table.to_pylist()]


# ------------------------------------------------------------------------------------- what a server scrapes by itself


class Node:
    """A card of the stand-in whose state a thread writes: 400 W and 90 % busy, until ``calm`` is called."""

    def __init__(self, folder: Path) -> None:
        self.card = StandinDevice(
            uuid=UUID,
            name="NVIDIA A100-SXM4-40GB",
            pci_bus_id="00000000:1A:00.0",
            minor_number=0,
            memory_total_bytes=40 * 1024**3,
            memory_used_bytes=20 * 1024**3,
            driver_util_ratio=0.9,
            power_watts=400.0,
            energy_joules=0.0,
            temperature_celsius=60.0,
            sm_clock_hertz=1.41e9,
        )
        self.joules = 0.0
        self.path = folder / "node.nvml"
        self.state = StandinState.create(self.path, "570.124.06", [self.card])
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._write)
        self.thread.start()

    def calm(self) -> float:
        self.card = replace(self.card, driver_util_ratio=0.1, power_watts=100.0)
        return time.time()

    def close(self) -> None:
        self.stop.set()
        self.thread.join()
        self.state.close()

    def _write(self) -> None:
        last = time.monotonic()
        while not self.stop.wait(0.02):
            now = time.monotonic()
            self.joules += self.card.power_watts * (now - last)
            last = now
            self.state.write([replace(self.card, energy_joules=self.joules)])


@contextmanager
def agent(node: Node, folder: Path) -> Iterator[str]:
    """Run the agent over the card, with dcgm-exporter's names; gives where it listens."""
    address = f"127.0.0.1:{free_port()}"
    ours = {
        "NVML_LIBRARY": str(library_path()),
        "NODE": "node-1",
        "SOURCES": "nvml",
        "INTERVAL_SECONDS": "0.2",
        "CADENCE_SECONDS": "1",
        "TOKEN_FILE": "",
        "SPOOL_DIR": str(folder / "spool"),
        "EXPORTER_LISTEN": address,
        "EXPORTER_DCGM_NAMES": "yes",
    }
    environment = {**os.environ, **{f"TRUELOAD_AGENT__{key}": value for key, value in ours.items()}}
    environment[STATE_VARIABLE] = str(node.path)
    with process([sys.executable, "-m", "trueload", "agent", "run"], folder / "agent.log", environment):
        wait_for(lambda: answers(f"http://{address}/readyz"), "the agent's exporter")
        yield address


PAGE = """\
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-NODE-0",modelName="NVIDIA A100",Hostname="NODE",namespace="team",pod="NODE-0"} 50
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-NODE-1",modelName="NVIDIA A100",Hostname="NODE",namespace="",pod=""} 0
# TYPE DCGM_FI_DEV_MEMORY_TEMP gauge
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-NODE-0",modelName="NVIDIA A100",Hostname="NODE"} 9223372036854775794
"""


@contextmanager
def recorded_page(node: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(PAGE.replace("NODE", node).encode())

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_what_prometheus_scraped_of_exporters_is_what_the_cards_did(tmp_path: Path) -> None:
    try:
        library_path()
    except TrueloadError as error:
        pytest.skip(str(error))
    node = Node(tmp_path)
    try:
        with agent(node, tmp_path) as exporter, recorded_page("honors") as first, recorded_page("exports") as second:
            own = {"namespace": "gpu", "pod": "dcgm-exporter-x1"}
            scrape: list[dict[str, object]] = [
                {"job_name": "agent", "static_configs": [{"targets": [exporter]}]},
                {"job_name": "a", "honor_labels": True, "static_configs": [{"labels": own, "targets": [first]}]},
                {"job_name": "b", "honor_labels": False, "static_configs": [{"labels": own, "targets": [second]}]},
            ]
            with prometheus(tmp_path / "prometheus", scrape) as url:
                wait_for(lambda: _has_values(url, "DCGM_FI_DEV_POWER_USAGE"), "a first scrape")
                begun = time.time() + 0.5
                wait_for(lambda: time.time() > begun + 3.0, "the busy stretch")
                calmed = node.calm()
                wait_for(lambda: time.time() > calmed + 4.0, "the calm stretch")
                ended = time.time()
                joules = node.joules
                report = bring_in(url, tmp_path / "store", begun, ended)
                again = bring_in(url, tmp_path / "store", begun, ended)
    finally:
        node.close()
    assert report["rejected"] == []
    assert (again["kept"], again["unchanged"]) == (0, report["read"])
    data = tmp_path / "store"
    # The agent's newest reading is up to an interval old, a scrape half a second apart: one second is left out around
    # the change.
    for source in ("prometheus:dcgm", "prometheus:trueload"):
        found = rows(
            data,
            "epoch(sampled_at), driver_util_ratio, power_watts, node",
            f"source = '{source}' AND device_uuid = '{UUID}'",
        )
        busy = [row[1:] for row in found if row[0] < calmed - 0.1]
        calm = [row[1:] for row in found if row[0] > calmed + 1.5]
        assert busy == [(pytest.approx(0.9), 400.0, "node-1")] * max(len(busy), 4), source
        assert calm == [(pytest.approx(0.1), 100.0, "node-1")] * max(len(calm), 4), source
    energy = rows(data, "sum(energy_joules), sum(cadence_seconds)", "source = 'prometheus:trueload'")[0]
    assert 0 < energy[0] <= joules
    assert energy[0] == pytest.approx(400.0 * (calmed - begun) + 100.0 * (ended - calmed), abs=2 * 400.0)
    # The recorded pages: pods hold their cards, the exporter's own pod holds none, the blank is missing.
    waste = waste_by_job(data)
    assert sorted(row["key"] for row in waste["rows"]) == ["real/team/exports-0#0", "real/team/honors-0#0"]
    assert waste["used_ratio"] == pytest.approx(0.5)
    assert [row["gpu_seconds"]["allocated"] for row in waste["rows"]] == [pytest.approx(ended - begun, abs=1.5)] * 2
    assert rows(data, "count(memory_temperature_celsius)", "device_uuid = 'GPU-honors-0'") == [(0,)]


def _has_values(url: str, name: str) -> bool:
    found = urllib3.request("GET", f"{url}/api/v1/query?query={name}", timeout=5.0).json()
    return bool(found["data"]["result"])


# ------------------------------------------------------------------------------------------------- three hours of old

STEP = 30
HOURS = 3


def history(first: int) -> str:
    """Write two cards over three hours in OpenMetrics: each second pod of one, at work half of its time.

    ``GPU-a`` is held by ``train-0`` for the first two hours (busy, idle, busy, … by the half hour), then by nobody;
    ``GPU-b`` by ``serve-0`` all the time, at 10 %.
    """
    lines = ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    for number in range(HOURS * 3600 // STEP):
        at = first + number * STEP
        labels = 'gpu="0",UUID="GPU-a",Hostname="n1",instance="n1:9400",job="dcgm"'
        if number * STEP < 7200:
            labels += ',exported_namespace="team",exported_pod="train-0",pod="dcgm-exporter-1",namespace="gpu"'
        busy = 100 if number * STEP < 7200 and number * STEP // 1800 % 2 == 0 else 0
        lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {busy} {at}")
    for number in range(HOURS * 3600 // STEP):
        labels = 'gpu="0",UUID="GPU-b",Hostname="n2",instance="n2:9400",job="dcgm"'
        labels += ',exported_namespace="team",exported_pod="serve-0",pod="dcgm-exporter-2",namespace="gpu"'
        lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 10 {first + number * STEP}")
    return "\n".join([*lines, "# EOF\n"])


def test_hours_of_history_give_the_gpu_seconds_counted_by_hand(tmp_path: Path) -> None:
    first = int(time.time()) // 3600 * 3600 - 48 * 3600
    text = tmp_path / "history.om"
    text.write_text(history(first), encoding="utf-8")
    folder = tmp_path / "prometheus"
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    folder.mkdir()
    subprocess.run(command, check=True, capture_output=True)
    data = tmp_path / "store"
    with prometheus(folder, []) as url:
        report = by_command(url, data, first, first + 2 * 3600)
        rest = bring_in(url, data, first, first + HOURS * 3600)
        again = bring_in(url, data, first, first + HOURS * 3600)
        remote = bring_in(f"{url}/api/v1/read", tmp_path / "remote", first, first + HOURS * 3600)
    values = 2 * HOURS * 3600 // STEP
    assert report["rejected"] == rest["rejected"] == []
    assert report["kept"] + rest["kept"] == values + HOURS  # each value, and a mark for each window that is over
    assert again["kept"] == 0
    assert (remote["kept"], remote["rejected"]) == (values + HOURS, [])
    columns = "device_uuid, sampled_at, cadence_seconds, driver_util_ratio, attempt_key"
    assert sorted(rows(data, columns, "true")) == sorted(rows(tmp_path / "remote", columns, "true"))
    waste = waste_by_job(data)
    by_job = {row["key"]: row["gpu_seconds"] for row in waste["rows"]}
    assert by_job["real/team/train-0#0"]["allocated"] == pytest.approx(7200)
    assert by_job["real/team/train-0#0"]["used"] == pytest.approx(3600)
    assert by_job["real/team/serve-0#0"]["allocated"] == pytest.approx(3 * 3600)
    assert by_job["real/team/serve-0#0"]["used"] == pytest.approx(1080)
    assert waste["gpu_seconds"]["unallocated"] == pytest.approx(3600)
    assert waste["coverage_ratio"] == pytest.approx(1.0)
