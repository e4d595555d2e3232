"""The server over real HTTP: no route without a token, roles, limits, and the same answers near and far."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import urllib3
import uvicorn

from warehouse import access
from warehouse.client import Answer, Document, HttpClient, LocalClient, Parameters, RecordId, find_server
from warehouse.committer import Committer
from warehouse.contract import model, wire
from warehouse.contract.errors import BadUseError, NotFoundError, RefusedError, StoreError, UnreachableError
from warehouse.contract.settings import Settings
from warehouse.server import create_app
from warehouse.sight import Sight
from warehouse.store import open_store


def _count(store: Sight, _settings: Settings, parameters: Parameters) -> Document:
    if parameters.get("boom"):
        raise NotFoundError("no such job")
    with store.snapshot() as tables:
        return {"jobs": int(tables.job.count().execute()), "asked": dict(parameters)}


ANSWERS = {"count": _count}


class Running:
    """A server on a free port in a thread, with its store and tokens."""

    def __init__(
        self, data: Path, answers: Mapping[str, Answer] | None = None, settings: Settings | None = None
    ) -> None:
        self.store = open_store(data, create=True)
        self.tokens = access.ensure_tokens(data)
        self._committer = Committer(self.store, data, Settings())
        self._committer.__enter__()
        settings = settings or Settings({"sql.over_http": True})
        app = create_app(self.store, self._committer, answers or ANSWERS, settings, self.tokens)
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.app = app

    def client(self, role: access.Role = access.Role.OPERATOR) -> HttpClient:
        """Give a client with a role's token."""
        return HttpClient(self.url, self.tokens.by_role[role])

    def post(self, path: str, body: bytes, role: access.Role = access.Role.AGENT) -> urllib3.BaseHTTPResponse:
        """Post a body with a role's token."""
        headers = {"Authorization": f"Bearer {self.tokens.by_role[role]}"}
        return urllib3.request("POST", self.url + path, body=body, headers=headers, retries=False)

    def stop(self) -> None:
        """End the thread and close the store."""
        self._server.should_exit = True
        self._thread.join()
        self._committer.__exit__()
        self.store.close()


Make = Callable[[Running], LocalClient | HttpClient]


def near(server: Running) -> LocalClient:
    """Give a client in the process that owns the store."""
    return LocalClient(server.store, ANSWERS, Settings())


def far(server: Running) -> HttpClient:
    """Give a client over HTTP."""
    return server.client()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give one running server for the module."""
    server = Running(tmp_path_factory.mktemp("data"))
    yield server
    server.stop()


def test_every_route_but_health_refuses_a_missing_a_wrong_and_a_mistyped_token(running: Running) -> None:
    asked = 0
    for route in running.app.routes:
        path = getattr(route, "path", "")
        if path == "/healthz":
            continue
        for method in route.methods:  # type: ignore[attr-defined]
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic Zm9vOmJhcg=="}):
                url = running.url + path.format(question="count", format_name="sacct", action="list")
                answer = urllib3.request(method, url, headers=headers, body=b"", retries=False)
                assert answer.status == 401, (method, path)
                asked += 1
    assert asked >= 15


def test_an_agent_may_deliver_but_not_read_or_import(running: Running) -> None:
    agent = running.client(access.Role.AGENT)
    with pytest.raises(RefusedError, match="role agent"):
        agent.ask("count", {})
    with pytest.raises(RefusedError):
        agent.load("sacct", [], {})


def test_a_batch_is_acknowledged_once_and_recognised_when_it_comes_again(running: Running) -> None:
    body = wire.encode(wire.Batch("n1", "boot", 1, 0.0, wire.from_records([model.Job("a", "c", "1", "s")])))
    first, again = (json.loads(running.post("/v1/batches", body).data) for _ in range(2))
    assert (first["acknowledged"], first["duplicate"], again["duplicate"]) == (True, False, True)


BAD_BODIES = {
    "empty": b"",
    "no gzip": b"no gzip",
    "no JSON": gzip.compress(b"no json"),
    "no object": gzip.compress(b"[]"),
    "of another version": gzip.compress(b'{"version": 99}'),
    "deeply nested": gzip.compress(b"[" * 100_000),
    "no column": wire.encode(wire.Batch("n", "b", 1, 0.0, {"job": wire.Table(1, {"job_key": 5})})),
    "no such table": wire.encode(wire.Batch("n", "b", 1, 0.0, {"evil": wire.Table(1, {})})),
    "no such column": wire.encode(wire.Batch("n", "b", 1, 0.0, {"job": wire.Table(1, {'x"; DROP TABLE job; --': 5})})),
    "the server's table": wire.encode(
        wire.Batch("n", "b", 1, 0.0, {"import_record": wire.Table(1, {"record_key": "k"})})
    ),
}


@pytest.mark.parametrize("body", list(BAD_BODIES.values()), ids=list(BAD_BODIES))
def test_a_bad_body_is_400_with_the_reason(running: Running, body: bytes) -> None:
    answer = running.post("/v1/batches", body)
    assert answer.status == 400
    assert json.loads(answer.data)["message"]


def test_a_body_that_unpacks_to_more_than_the_limit_is_refused(running: Running) -> None:
    answer = running.post("/v1/batches", gzip.compress(b" " * (wire.MAX_PLAIN_BYTES + 1), compresslevel=1))
    assert answer.status == 400


def test_a_body_above_the_limit_is_413(running: Running) -> None:
    answer = running.post("/v1/batches", b"x" * (wire.MAX_COMPRESSED_BYTES + 1))
    assert answer.status == 413


def test_the_same_question_gives_the_same_answer_near_and_far(running: Running) -> None:
    assert near(running).ask("count", {"by": "user"}) == far(running).ask("count", {"by": "user"})


@pytest.mark.parametrize("make", [near, far])
def test_errors_are_the_same_near_and_far(running: Running, make: Make) -> None:
    with pytest.raises(BadUseError, match="there are count"):
        make(running).ask("nothing", {})
    with pytest.raises(NotFoundError, match="no such job"):
        make(running).ask("count", {"boom": "1"})


@pytest.mark.parametrize("make", [near, far])
def test_an_import_is_the_same_near_and_far(running: Running, make: Make) -> None:
    client = make(running)
    name = f"format_{type(client).__name__.lower()}"
    record = RecordId("1", 42)
    assert client.which_are_new(name, [record]) == [True]
    rows: list[model.Record] = [
        model.Job(f"{name}/1#0", name, "1", "s"),
        model.Attempt(f"{name}/1#0:1", f"{name}/1#0", model.AttemptState.RUNNING, "R", 1.0, None, "s"),
    ]
    client.load(name, [record], wire.from_records(rows))
    assert client.which_are_new(name, [record]) == [False]
    assert [past.attempt_key for past in client.past_attempts(name, ["1"])] == [f"{name}/1#0:1"]


def test_a_server_that_is_gone_is_said_in_one_line(free_port: int) -> None:
    with pytest.raises(UnreachableError, match="does not answer"):
        HttpClient(f"http://127.0.0.1:{free_port}", "t").ask("count", {})


def test_an_address_left_by_a_dead_process_counts_as_none(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    access.publish(tmp_path, access.Address("http://127.0.0.1:1", child.pid, "t"))
    assert find_server(tmp_path) is None


def test_tokens_and_address_are_for_their_owner_alone(tmp_path: Path) -> None:
    access.ensure_tokens(tmp_path)
    access.publish(tmp_path, access.Address("http://127.0.0.1:1", os.getpid(), "t"))
    private = [*(tmp_path / "tokens").iterdir(), tmp_path / access.SERVER_FILE]
    assert {file.stat().st_mode & 0o777 for file in private} == {0o600}


def test_tokens_stay_the_same_over_restarts(tmp_path: Path) -> None:
    assert access.ensure_tokens(tmp_path) == access.ensure_tokens(tmp_path)


def test_serve_publishes_its_address_answers_and_leaves_on_sigterm(tmp_path: Path, repository: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "trueload", "serve", "--data", str(tmp_path), "--port", "0"],
        cwd=repository,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 60
        while (client := find_server(tmp_path)) is None and time.monotonic() < deadline:
            assert server.poll() is None, server.stderr and server.stderr.read().decode()
            time.sleep(0.05)
        assert client is not None
        with pytest.raises(BadUseError):
            client.ask("no such question", {})
        with pytest.raises(StoreError):
            open_store(tmp_path)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) in (0, -signal.SIGTERM)
        assert server.stderr is not None
        server.stderr.close()
    assert find_server(tmp_path) is None
    assert not (tmp_path / access.SERVER_FILE).exists()
