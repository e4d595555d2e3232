"""Reading over HTTP: Arrow as JSON, limits of time, callers who leave, equal questions at once, and whose jobs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pytest
import urllib3

from analysis.memory import Memory
from analysis.pipeline import ANSWERS
from tests.warehouse.test_purge import records
from tests.warehouse.test_server import Running
from warehouse import web
from warehouse.access import Role
from warehouse.client import Document, Parameters
from warehouse.contract import wire
from warehouse.contract.errors import RefusedError
from warehouse.contract.settings import Settings
from warehouse.sight import Sight
from warehouse.web import ARROW

ENDLESS = "SELECT count(*) FROM range(10000000) AS a(x), range(10000000) AS b(y) WHERE (x * y) % 7 = 3"
started, ended = threading.Event(), threading.Event()
memory: Memory[Document] = Memory(4)
worked: list[int] = []
gate = threading.Barrier(2)


def _endless(store: Sight, _settings: Settings, _parameters: Parameters) -> Document:
    with store.snapshot() as tables:
        started.set()
        try:
            tables.job.get_backend().con.execute(ENDLESS)
        except duckdb.InterruptException:
            ended.set()
            raise
    return {}


def _shared(_store: Sight, _settings: Settings, _parameters: Parameters) -> Document:
    def work() -> Document:
        worked.append(1)
        gate.wait(30)
        return {"worked": True}

    return memory.get("the same", work)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give a server with real questions, one that never ends and one that is slow and shared."""
    server = Running(tmp_path_factory.mktemp("data"), {**ANSWERS, "endless": _endless, "shared": _shared})
    with server.store.transaction() as transaction:
        transaction.write(wire.from_records(records()))
    yield server
    server.stop()


def ask(running: Running, path: str, token: str | None = None, **headers: str) -> urllib3.BaseHTTPResponse:
    """Ask with a token, an operator's if no other is given."""
    known = token or running.tokens.by_role[Role.OPERATOR]
    return urllib3.request(
        "GET", running.url + path, headers={"Authorization": f"Bearer {known}", **headers}, retries=False, timeout=60
    )


def token(running: Running, role: Role, name: str, *accounts: str) -> str:
    """Make a token as an operator does."""
    made = running.client().manage_tokens("new", {"role": role.value, "name": name, "accounts": list(accounts)})
    return str(made["token"])


@pytest.mark.parametrize(("question", "rows"), [("waste?by=job", "rows"), ("jobs", "jobs"), ("families", "families")])
def test_arrow_holds_the_rows_of_the_json_document_and_the_rest_as_metadata(
    running: Running, question: str, rows: str
) -> None:
    document = json.loads(ask(running, f"/v1/answers/{question}").data)
    answer = ask(running, f"/v1/answers/{question}", Accept=ARROW)
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(answer.data).read_all()
    assert table.to_pylist() == document.pop(rows)
    assert json.loads(table.schema.metadata[b"trueload"]) == document


def test_a_question_beyond_its_time_is_stopped_and_told_so(tmp_path: Path) -> None:
    hasty = Running(tmp_path, {"endless": _endless}, Settings({"server.answer_seconds": 0.3}))
    answer = ask(hasty, "/v1/answers/endless")
    hasty.stop()
    assert (answer.status, "longer than" in answer.data.decode()) == (503, True)
    assert int(answer.headers["retry-after"]) > 0


def ask_without_end(running: Running) -> socket.socket:
    """Ask what takes for ever; gives the connection, once it is being worked on."""
    started.clear()
    ended.clear()
    where = urlsplit(running.url)
    caller = socket.create_connection((where.hostname, where.port or 0))
    head = (
        f"GET /v1/answers/endless HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {running.tokens.by_role[Role.OPERATOR]}"
    )
    caller.sendall(f"{head}\r\n\r\n".encode())
    assert started.wait(30)
    return caller


def test_a_query_ends_when_the_one_who_asked_leaves(running: Running) -> None:
    ask_without_end(running).close()
    assert ended.wait(30)


def test_what_is_known_is_answered_while_all_threads_work_on_what_is_not(running: Running) -> None:
    known = ask(running, "/v1/answers/fleet").data
    callers = [ask_without_end(running) for _ in range(web.QUESTIONS_AT_ONCE)]
    try:
        assert ask(running, "/v1/answers/fleet").data == known
    finally:
        for caller in callers:
            caller.close()
    assert ended.wait(30)


def test_equal_questions_at_once_are_worked_out_once(running: Running) -> None:
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, running, "/v1/answers/shared") for _ in range(4)]
        gate.wait(30)
        assert [json.loads(answer.result().data) for answer in asked] == [{"worked": True}] * 4
    assert len(worked) == 1


WAYS = [
    "job?id=c/2%230",
    "job?id=2",
    "jobs",
    "jobs?limit=1",
    "jobs?limit=1&offset=1",
    "jobs?offset=0&limit=10000",
    "waste?by=job",
    "waste?by=user",
    "waste?by=account",
    "waste?by=partition",
    "waste?by=week",
    "families",
    "recommend",
    "fleet",
    "weekly?week=1970-W01",
    "analyze",
]


@pytest.mark.parametrize(
    ("way", "accept"), [*((way, "application/json") for way in WAYS), ("jobs", ARROW), ("waste?by=job", ARROW)]
)
def test_u25_nobody_reads_the_job_of_another_by_any_way(running: Running, way: str, accept: str) -> None:
    before = ask(running, f"/v1/answers/{way}", Accept=accept)  # an operator's answer is remembered by now
    assert before.status in (200, 404)
    seen = ask(running, f"/v1/answers/{way}", token(running, Role.USER, "alice"), Accept=accept).data
    assert b"bob" not in seen
    assert b"c/2#0" not in seen.replace(b"no job 'c/2#0'", b"")


@pytest.mark.parametrize("role", [Role.USER, Role.LEAD, Role.AGENT, Role.METRICS])
def test_sql_is_for_operators(running: Running, role: Role) -> None:
    known = token(running, role, "alice", *(["lab"] if role is Role.LEAD else []))
    headers = {"Authorization": f"Bearer {known}"}
    answer = urllib3.request("POST", f"{running.url}/v1/sql", headers=headers, json={"sql": "FROM job"}, retries=False)
    assert answer.status == 403


def test_an_operator_asks_in_sql_near_and_far_and_it_is_off_unless_switched_on(running: Running) -> None:
    found: Any = running.client().sql('SELECT "user" FROM job ORDER BY 1')
    assert [row["user"] for row in found["rows"]] == ["alice", "bob"]


def test_sql_over_http_is_off_by_default(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Running(tmp_path_factory.mktemp("data"), settings=Settings())
    with pytest.raises(RefusedError, match="switched off"):
        server.client().sql("SELECT 1 AS one")
    server.stop()


@pytest.mark.parametrize("way", ["job?id=%00", "detail?attempt=%00", "waste?by=%00", "jobs?since=%00"])
def test_a_nul_in_a_question_is_refused_and_breaks_nothing(running: Running, way: str) -> None:
    assert ask(running, f"/v1/answers/{way}").status == 400


@pytest.mark.parametrize("header", ["X-Forwarded-User", "X-Remote-User", "X-Forwarded-Email", "Remote-User"])
def test_u25_headers_that_anybody_can_set_make_nobody_anybody(running: Running, header: str) -> None:
    answer = urllib3.request("GET", f"{running.url}/v1/me", headers={header: "admin"}, retries=False)
    assert answer.status == 401
