"""Foreign text that comes in over HTTP as it is: read whole or refused, and the place in time of who sends it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from tests.warehouse.test_server import Running
from warehouse import text_imports
from warehouse.access import Role
from warehouse.imports.sacct import IMPORTER

TEXT = IMPORTER.example.encode()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(tmp_path_factory.mktemp("data"))
    yield server
    server.stop()


def post(running: Running, path: str, body: bytes, role: Role = Role.AGENT) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {running.tokens.by_role[role]}"}
    answer = urllib3.request("POST", running.url + path, headers=headers, body=body, retries=False)
    return answer.status, json.loads(answer.data)


def test_a_text_is_read_and_a_second_time_changes_nothing(running: Running) -> None:
    status, told = post(running, "/v1/imports/sacct/text?cluster=c", gzip.compress(TEXT))
    assert (status, told["kept"], told["rejected"]) == (200, 6, [])
    _, again = post(running, "/v1/imports/sacct/text?cluster=c", gzip.compress(TEXT))
    assert (again["kept"], again["unchanged"], again["files"]) == (0, 6, [])
    assert list(running.store.data.glob("text-*")) == []


def test_texts_that_come_at_once_are_read_one_after_the_other(running: Running) -> None:
    found: list[dict[str, Any]] = []
    body = gzip.compress(TEXT.replace(b"|example|", b"|other|"))
    threads = [
        threading.Thread(target=lambda: found.append(post(running, "/v1/imports/sacct/text", body)[1]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one["kept"] for one in found) == 6
    assert sum(one["unchanged"] for one in found) == 18


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/imports/sacct/text", b"plain", "not gzip"),
        ("/v1/imports/sacct/text", gzip.compress(b"no header"), "expected sacct's header line"),
        ("/v1/imports/sacct/text", gzip.compress(b""), "is empty"),
        ("/v1/imports/sacct/text?zone=Mars", gzip.compress(TEXT), "Mars"),
        ("/v1/imports/sacct/text?cluster=%00", gzip.compress(TEXT), "expected a printable name"),
        ("/v1/imports/sacct/cursor", b"{}", "expected a cluster and until_at"),
        ("/v1/imports/sacct/cursor", b'{"cluster": "c", "until_at": 1e300}', "is no instant"),
        ("/v1/imports/sacct/cursor", b'{"cluster": "", "until_at": 1}', "expected a printable name"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(running: Running, path: str, body: bytes, message: str) -> None:
    status, told = post(running, path, body)
    assert (status, message in told["message"]) == (400, True), told


def test_an_operator_may_send_any_file_format_and_an_agent_accounting_alone(running: Running) -> None:
    body = gzip.compress(b"job_id,start,end\n")
    assert post(running, "/v1/imports/jobs_csv/text", body)[0] == 403
    assert post(running, "/v1/imports/jobs_csv/text", body, Role.OPERATOR)[0] == 400
    status, told = post(running, "/v1/imports/nonsense/text", body, Role.OPERATOR)
    assert (status, "no format 'nonsense'" in told["message"]) == (400, True)


def test_a_place_in_time_never_goes_back_and_is_each_clusters_own(running: Running) -> None:
    for until in (100.0, 200.5, 150.0):
        post(running, "/v1/imports/sacct/cursor", json.dumps({"cluster": "a", "until_at": until}).encode())
    post(running, "/v1/imports/sacct/cursor", json.dumps({"cluster": "b", "until_at": 50}).encode())
    assert text_imports.read_cursor(running.store, "sacct", "a") == 200.5
    assert text_imports.read_cursor(running.store, "sacct", "b") == 50.0
    assert text_imports.read_cursor(running.store, "sacct", "c") is None
    assert text_imports.oldest_cursor(running.store) == 50.0


def test_how_far_accounting_is_behind_is_a_metric(running: Running) -> None:
    post(running, "/v1/imports/sacct/cursor", json.dumps({"cluster": "a", "until_at": 50}).encode())
    headers = {"Authorization": f"Bearer {running.tokens.by_role[Role.OPERATOR]}"}
    page = urllib3.request("GET", f"{running.url}/metrics", headers=headers).data.decode()
    (line,) = [line for line in page.splitlines() if line.startswith("trueload_server_accounting_age_seconds ")]
    assert float(line.split()[1]) > 1e9
