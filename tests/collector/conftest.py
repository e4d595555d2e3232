"""A server that takes batches, as a test wants it to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from warehouse.contract import wire


@dataclass
class Receiver:
    """A server in a thread: answers with ``statuses`` one after the other, then with 200, and keeps what it took."""

    url: str = ""
    token: str = "secret"
    statuses: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    batches: list[wire.Batch] = field(default_factory=list)
    known: set[tuple[str, str, int, int]] = field(default_factory=set)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, object]]:
        """Answer one post."""
        with self.guard:
            self.headers.append(headers)
            status = self.statuses.pop(0) if self.statuses else 200
            if headers.get("Authorization") != f"Bearer {self.token}":
                status = 401
            self.answered.append(status)
            if status != 200:
                return status, {"message": f"told to answer {status}"}
            batch = wire.decode(body)
            name = (batch.agent, batch.boot_id, batch.sequence, batch.part)
            duplicate = name in self.known
            self.known.add(name)
            if not duplicate:
                self.batches.append(batch)
            return 200, {"acknowledged": True, "duplicate": duplicate}

    def rows(self, table: str) -> list[dict[str, wire.Value]]:
        """Give all rows of a table that were taken, in order."""
        with self.guard:
            tables = [batch.tables[table] for batch in self.batches if table in batch.tables]
        return [row for found in tables for row in rows_of(found)]


def rows_of(table: wire.Table) -> list[dict[str, wire.Value]]:
    """Give a table row by row, constant columns written out."""
    columns = {
        name: values if isinstance(values, list) else [values] * table.rows for name, values in table.columns.items()
    }
    return [{name: values[place] for name, values in columns.items()} for place in range(table.rows)]


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], None]:
    """Give a function that waits until something holds, and fails when it does not in time."""

    def wait(holds: Callable[[], object], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "did not come true in time"
            time.sleep(0.02)

    return wait


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Give a server that takes batches on a free port."""
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, document = (
                received.take(dict(self.headers), body) if self.path == "/v1/batches" else (404, {"message": self.path})
            )
            answer = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    received.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """Give a file that holds the receiver's token."""
    path = tmp_path / "agent.token"
    path.write_text("secret\n", encoding="ascii")
    path.chmod(0o600)
    return path
