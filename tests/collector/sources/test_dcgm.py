from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from collector.driver import Driver, KnownDevice
from collector.sources.dcgm import DcgmReader

CARD = KnownDevice("GPU-a", 0, None, None, None, None)
INSTANCE = KnownDevice("MIG-b", 0, None, None, None, None, parent_uuid="GPU-a", gpu_instance_id=7)


class Exporter:
    """Says ``text`` to whoever asks, or fails."""

    def __init__(self) -> None:
        self.text = ""
        self.status_line = b""
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                if outer.status_line:
                    self.wfile.write(outer.status_line)
                    return
                self.send_response(200 if outer.text else 500)
                self.end_headers()
                self.wfile.write(outer.text.encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader(exporter: Exporter, clock: Clock) -> DcgmReader:
    driver = Driver()
    driver.devices = (CARD, INSTANCE)
    return DcgmReader(driver, f"http://127.0.0.1:{exporter.server.server_address[1]}/metrics", 10.0, clock)


def sample(field: str, value: str, instance: str = "") -> str:
    return f'{field}{{gpu="0",UUID="GPU-a",GPU_I_ID="{instance}",exported_pod="p"}} {value}\n'


def test_values_arrive_in_base_units_of_cards_and_instances(exporter: Exporter, reader: DcgmReader) -> None:
    exporter.text = (
        "# HELP DCGM_FI_DEV_GPU_UTIL utilization\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
        + sample("DCGM_FI_DEV_GPU_UTIL", "100")
        + sample("DCGM_FI_DEV_FB_USED", "2")
        + sample("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.25", "7")
        + sample("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.5", "9")
    )
    found = {reading.device_uuid: dict(reading.values) for reading in reader.read()}
    assert found == {
        "GPU-a": {"driver_util_ratio": 1.0, "memory_used_bytes": 2 * 1024**2},
        "MIG-b": {"engine_active_ratio": 0.25},
    }


@pytest.mark.parametrize(
    "value",
    ["9223372036854775794", "140737488355328.0", "2147483632", "NaN", "+Inf", "-1", "101", "<<<NULL>>>", "N/A", ""],
)
def test_u09_markers_and_impossible_values_are_absent_and_counted(
    exporter: Exporter, reader: DcgmReader, value: str
) -> None:
    exporter.text = sample("DCGM_FI_DEV_GPU_UTIL", value) + sample("DCGM_FI_DEV_GPU_TEMP", "40")
    assert [dict(reading.values) for reading in reader.read()] == [{"temperature_celsius": 40.0}]
    assert reader.rejected == {"DCGM_FI_DEV_GPU_UTIL": 1}


def test_a_value_stands_until_the_next_scrape_and_not_for_ever(
    exporter: Exporter, reader: DcgmReader, clock: Clock
) -> None:
    exporter.text = sample("DCGM_FI_DEV_GPU_TEMP", "40")
    assert len(reader.read()) == 1
    clock.now = 9.0
    assert len(reader.read()) == 1
    assert exporter.asked == 1
    exporter.text = ""
    clock.now = 10.0
    assert len(reader.read()) == 1
    clock.now = 30.0
    with pytest.raises(OSError, match="500"):
        reader.read()
    assert reader.read() == []


def test_who_speaks_no_http_any_more_leaves_no_value_standing(
    exporter: Exporter, reader: DcgmReader, clock: Clock
) -> None:
    exporter.text = sample("DCGM_FI_DEV_GPU_TEMP", "40")
    assert len(reader.read()) == 1
    exporter.status_line = b"SSH-2.0-OpenSSH_9.2\r\n\r\n"
    clock.now = 30.0
    with pytest.raises(HTTPException):
        reader.read()
    assert reader.read() == []


def test_the_proxy_of_the_environment_is_not_for_an_exporter_on_this_node(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    driver = Driver()
    driver.devices = (CARD,)
    exporter.text = sample("DCGM_FI_DEV_GPU_TEMP", "40")
    url = f"http://127.0.0.1:{exporter.server.server_address[1]}/metrics"
    assert [dict(reading.values) for reading in DcgmReader(driver, url, 10.0).read()] == [{"temperature_celsius": 40.0}]
