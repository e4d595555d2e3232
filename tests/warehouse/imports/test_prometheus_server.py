"""History of a Prometheus server: saved answers, and a small server of the API that can be awkward.

The real Prometheus is in tests/real/test_prometheus.py.
"""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.client import Client
from warehouse.contract.errors import BadInputError
from warehouse.contract.settings import Settings
from warehouse.importer import ImportOptions
from warehouse.imports._prom_api import Server, open_server
from warehouse.imports._prom_remote import STALE, literals, read_response, unsnappy, varint
from warehouse.imports.prometheus_server import IMPORTER
from warehouse.loading import ImportReport, load_files

Make = Callable[[], Any]
T0 = 1_789_999_200
"""A whole hour."""


class Api:
    """The two routes that are asked, over values that a test lays down; ``most_seconds`` bounds one answer."""

    def __init__(self) -> None:
        self.series: list[tuple[dict[str, str], list[tuple[float, float]]]] = []
        self.most_seconds = 10**9
        self.failures: list[int] = []
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.headers: list[str | None] = []

    def answer(self, route: str, form: dict[str, list[str]]) -> tuple[int, object]:
        self.asked.append((route, form))
        if self.failures:
            return self.failures.pop(0), {"status": "error", "error": "as told"}
        if route == "series":
            wanted = re.compile("|".join(re.findall(r'__name__=~"([^"]*)"', form["match[]"][0])))
            return 200, {
                "status": "success",
                "data": [labels for labels, _ in self.series if wanted.fullmatch(labels["__name__"])],
            }
        match = re.fullmatch(r'\{__name__=~"(.*?)",instance=~(".*")\}\[(\d+)s\]', form["query"][0])
        assert match is not None, form["query"]
        end, seconds = float(form["time"][0]), int(match[3])
        if seconds > self.most_seconds:
            return 422, {"status": "error", "error": "would load too many samples"}
        result = []
        for labels, values in self.series:
            inside = [[at, f"{value:g}"] for at, value in values if end - seconds < at <= end]
            names, instances = re.fullmatch(match[1], labels["__name__"]), json.loads(match[2])
            if inside and names and re.fullmatch(instances, labels["instance"]):
                result.append({"metric": labels, "values": inside})
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}


@pytest.fixture
def api() -> Generator[tuple[Api, str]]:
    """Give a server and its address."""
    served = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            served.headers.append(self.headers["Authorization"])
            status, document = served.answer(self.path.rpartition("/")[2], form)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield served, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def series(uuid: str, values: list[tuple[float, float]], node: str = "n1") -> tuple[dict[str, str], Any]:
    labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": uuid, "gpu": "0", "instance": f"{node}:9400", "job": "dcgm"}
    return labels, values


def minutely(hours: float, value: float = 50) -> list[tuple[float, float]]:
    return [(T0 + 60.0 * minute, value) for minute in range(int(60 * hours))]


def load(client: Any, url: str, hours: float = 2, since: float = T0, **settings: object) -> ImportReport:
    named = {f"import.{name}": value for name, value in settings.items()}
    options = ImportOptions("c", "UTC", since_at=since, until_at=T0 + 3600 * hours, settings=Settings(named))
    return load_files(client, IMPORTER, [url], options)


def samples(client: Any) -> list[dict[str, Any]]:
    return sorted(client.table("device_sample"), key=lambda row: (row["device_uuid"], row["sampled_at"]))


def test_every_raw_value_becomes_a_reading_and_windows_join_without_a_seam(
    memory_client: Make, api: tuple[Api, str]
) -> None:
    served, url = api
    served.series = [series("GPU-a", minutely(2))]
    client = memory_client()
    load(client, url)
    rows = samples(client)
    assert [row["sampled_at"] for row in rows] == [T0 + 60.0 * minute for minute in range(120)]
    assert {row["cadence_seconds"] for row in rows} == {60.0}


def test_a_window_that_is_over_is_not_asked_for_again(memory_client: Make, api: tuple[Api, str]) -> None:
    served, url = api
    served.series = [series("GPU-a", minutely(2))]
    client = memory_client()
    load(client, url, hours=1)
    asked = len(served.asked)
    report = load(client, url, hours=2)
    times = [form["time"][0] for route, form in served.asked[asked:] if route == "query"]
    assert times == [f"{T0 + 7200 + 120:.3f}"]
    assert (len(samples(client)), report.unchanged) == (120, 1)
    assert load(client, url, hours=2).exit_code == 0


def test_stretches_that_overlap_count_every_value_once(store_client: Client, api: tuple[Api, str]) -> None:
    served, url = api
    served.series = [series("GPU-a", minutely(2))]
    load(store_client, url, hours=1.5)
    load(store_client, url, hours=2, since=T0 + 1800)
    count = store_client._store.read("SELECT count(*) AS n, count(DISTINCT sampled_at) AS m FROM device_sample")  # type: ignore[attr-defined]
    assert count.to_pylist() == [{"n": 120, "m": 120}]


def test_what_is_too_much_at_once_is_asked_for_in_halves(memory_client: Make, api: tuple[Api, str]) -> None:
    served, url = api
    served.series, served.most_seconds = [series("GPU-a", minutely(1))], 600
    client = memory_client()
    report = load(client, url, hours=1)
    assert len(samples(client)) == 60
    assert (report.errors, report.read) == ([], 60 + 1)  # the values, and the mark of a window that is over


def test_a_server_that_answers_nothing_at_all_costs_what_is_left_of_the_time(
    memory_client: Make, api: tuple[Api, str]
) -> None:
    served, url = api
    served.series, served.most_seconds = [series("GPU-a", minutely(1))], 5
    (error,) = load(memory_client(), url, hours=1).errors
    assert "will not answer even half a minute (would load too many samples)" in str(error)


def test_targets_are_asked_for_a_few_at_a_time(memory_client: Make, api: tuple[Api, str]) -> None:
    served, url = api
    served.series = [series(f"GPU-{number}", minutely(1), f"n{number}") for number in range(5)]
    client = memory_client()
    load(client, url, hours=1, prometheus_page_series=2)
    assert len([route for route, _ in served.asked if route == "query"]) == 3
    assert len(samples(client)) == 300


def test_a_server_that_fails_for_a_moment_is_asked_again(api: tuple[Api, str]) -> None:
    served, url = api
    served.series, served.failures = [series("GPU-a", minutely(1))], [500, 502]
    waited: list[float] = []
    server = open_server(url, "", 5.0)
    patient = Server(server.address, server.headers, 5.0, server.pool, waited.append)
    assert len(patient.series(['{__name__=~"DCGM.*"}'], T0, T0 + 60)) == 1
    assert waited == [1.0, 2.0]


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_one_line_that_says_what_was_expected(
    memory_client: Make, api: tuple[Api, str], status: int
) -> None:
    served, url = api
    served.failures = [status]
    (error,) = load(memory_client(), url).errors
    assert f"answered {status} as told; expected a Prometheus server's HTTP API" in str(error)


def test_a_password_goes_to_the_server_and_into_no_message(memory_client: Make, api: tuple[Api, str]) -> None:
    served, url = api
    served.failures = [404]
    report = load(memory_client(), url.replace("http://", "http://site:secret@"))
    assert served.headers == ["Basic c2l0ZTpzZWNyZXQ="]
    assert "secret" not in report.text() + json.dumps(report.document())


def test_a_token_is_read_from_its_file(memory_client: Make, api: tuple[Api, str], tmp_path: Path) -> None:
    served, url = api
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    load(memory_client(), url, prometheus_token_file=str(token))
    assert set(served.headers) == {"Bearer t0ken"}
    (error,) = load(memory_client(), url, prometheus_token_file=str(tmp_path / "absent")).errors
    assert "import.prometheus_token_file" in str(error)


def test_a_pod_goes_on_over_windows_and_over_imports(memory_client: Make, api: tuple[Api, str]) -> None:
    served, url = api
    labels, values = series("GPU-a", minutely(3))
    served.series = [(labels | {"exported_pod": "train-0", "exported_namespace": "team", "pod": "x"}, values)]
    client = memory_client()
    load(client, url, hours=2)
    load(client, url, hours=3, since=T0 + 7200)
    (attempt,) = client.table("attempt")
    assert (attempt["start_at"], attempt["end_at"]) == (T0, T0 + 3 * 3600)
    assert client.gpu_seconds == 3 * 3600


def test_values_that_are_none_cost_only_themselves(memory_client: Make, tmp_path: Path) -> None:
    document = json.loads(IMPORTER.example)
    document["data"]["result"][0]["values"] += [["x", "1"], [1_790_000_090], [1e99, "1"], [1_790_000_090, "NaN"]]
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(document))
    report = load_files(memory_client(), IMPORTER, [path], ImportOptions("c", "UTC"))
    assert {reason: tally.count for reason, tally in report.rejected.items()} == {"bad value": 2, "bad time": 1}
    assert report.kept == 7


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"status": "success"}', '{"status": "success", "data": {"result": [1]}}', "[" * 100_000]
)
def test_a_file_that_is_no_answer_is_refused(memory_client: Make, tmp_path: Path, text: str) -> None:
    path = tmp_path / "answer.json"
    path.write_text(text)
    report = load_files(memory_client(), IMPORTER, [path], ImportOptions("c", "UTC"))
    assert (report.exit_code, len(report.errors)) == (1, 1)


# ------------------------------------------------------------------------------------------------------- remote read

SNAPPY = [
    (b"\x00", b""),
    (b"\x05\x10hello", b"hello"),
    (b"\x0a\x00a\x15\x01\x00", None),  # eight bytes where ten are told
    (b"\x09\x04ab\x0d\x02", b"ababababa"),  # a copy that overlaps itself
    (b"\x06\x08abc\x0a\x03\x00", b"abcabc"),  # a copy with two bytes of offset
    (b"\x06\x08abc\x0b\x03\x00\x00\x00", b"abcabc"),  # with four
    (b"\x04\x00a\x05\x05", None),  # from before the begin
    (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
    (b"\xff\xff\xff\xff\x0f\x00a", None),  # four gigabytes
]


@pytest.mark.parametrize(("block", "plain"), SNAPPY)
def test_a_snappy_block_is_unpacked_or_refused(block: bytes, plain: bytes | None) -> None:
    if plain is not None:
        assert unsnappy(block) == plain
        return
    with pytest.raises((ValueError, IndexError, struct.error)):
        unsnappy(block)


@given(st.binary(max_size=200_000))
def test_what_is_framed_as_literals_comes_back(plain: bytes) -> None:
    assert unsnappy(literals(plain)) == plain


@given(st.binary(max_size=200))
def test_no_bytes_whatever_are_more_than_no_remote_read(body: bytes) -> None:
    with suppress(BadInputError):
        list(read_response(body, "server"))


def message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def answer_of(labels: dict[str, str], values: list[tuple[float, float]], bits: list[int] | None = None) -> bytes:
    series = b"".join(message(1, message(1, key.encode()) + message(2, text.encode())) for key, text in labels.items())
    packed = [struct.pack("<d", value) for _, value in values] + [struct.pack("<Q", one) for one in bits or []]
    times = [at for at, _ in values] + [0.0] * len(bits or [])
    for at, eight in zip(times, packed, strict=True):
        series += message(2, b"\x09" + eight + b"\x10" + varint(int(at * 1000)))
    return literals(message(1, message(1, series)))


def test_a_remote_read_is_labels_and_values_without_the_marks_of_an_end() -> None:
    body = answer_of({"__name__": "m", "a": "é"}, [(1.5, 0.25), (2.5, 7.0)], bits=[STALE])
    assert list(read_response(body, "s")) == [({"__name__": "m", "a": "é"}, [[1.5, 0.25], [2.5, 7.0]])]
