"""A server that takes batches, and a simulated node, as a test wants them to be."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from collector.simulate.standin import (
    STATE_VARIABLE,
    GpmCounters,
    StandinDevice,
    StandinProcess,
    StandinState,
    library_path,
)
from warehouse.contract import wire
from warehouse.contract.errors import TrueloadError


@dataclass
class Receiver:
    """A server in a thread: answers with ``statuses`` one after the other, then with 200, and keeps what it took."""

    url: str = ""
    token: str = "secret"
    statuses: list[int] = field(default_factory=list)
    held_status: int = 404
    hold: threading.Barrier | None = None
    answered: list[int] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    batches: list[wire.Batch] = field(default_factory=list)
    known: set[tuple[str, str, int, int]] = field(default_factory=set)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, object]]:
        """Answer one post."""
        if self.hold is not None:
            with suppress(threading.BrokenBarrierError):
                self.hold.wait(30.0)
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
    named: list[tuple[str, Any]] = list(table.columns.items())
    columns = {name: list(values) if isinstance(values, list) else [values] * table.rows for name, values in named}
    return [{name: values[place] for name, values in columns.items()} for place in range(table.rows)]


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], None]:
    """Give a function that waits until something holds, and fails when it does not in time."""

    def wait(holds: Callable[[], object], seconds: float = 60.0) -> None:
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
            if self.path == "/v1/batches":
                status, document = received.take(dict(self.headers), body)
            else:
                status, document = received.held_status if self.path == "/v1/held" else 404, {"message": self.path}
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


UUIDS = ("GPU-00000000-0000-0000-0000-00000000000a", "GPU-00000000-0000-0000-0000-00000000000b")


class Bench:
    """A simulated node of two H100 whose state a thread writes every 20 ms, and an agent over it.

    Card 0: half of its time busy, 400 W, process 71. Card 1: idle at 100 W, no process.
    """

    def __init__(self, folder: Path, repository: Path) -> None:
        """Write the first state and go on writing."""
        self.folder = folder
        self.repository = repository
        self.cards = [
            StandinDevice(
                uuid=uuid,
                name="NVIDIA H100 80GB HBM3",
                pci_bus_id=f"00000000:{0x1A + place:02X}:00.0",
                minor_number=place,
                memory_total_bytes=80 * 1024**3,
                memory_used_bytes=(20 - 20 * place) * 1024**3,
                driver_util_ratio=0.9 - 0.9 * place,
                power_watts=400.0 - 300.0 * place,
                energy_joules=0.0,
                temperature_celsius=60.0 - 20.0 * place,
                sm_clock_hertz=1.98e9,
                gpm=GpmCounters(0, 0, 0, 0, 0, 0),
                processes=(StandinProcess(71, 20 * 1024**3),) if place == 0 else (),
            )
            for place, uuid in enumerate(UUIDS)
        ]
        self.begun = time.monotonic()
        self.path = folder / "node.nvml"
        self.state = StandinState.create(self.path, "570.124.06", self._now())
        self.stop = threading.Event()
        self.written = threading.Event()
        self.thread = threading.Thread(target=self._write)
        self.thread.start()

    def change(self, card: int, **changes: object) -> None:
        """Change a card; come back when it has been written."""
        self.cards[card] = replace(self.cards[card], **changes)  # type: ignore[arg-type]
        self.written.clear()
        for _ in range(2):  # the first may have begun before the change
            assert self.written.wait(5.0)
            self.written.clear()

    def environment(self, url: str, token_file: Path | None, **settings: str) -> dict[str, str]:
        """Give the environment of an agent over this node: ten readings and one row a second."""
        names = {
            "NVML_LIBRARY": str(library_path()),
            "NODE": "node-1",
            "INTERVAL_SECONDS": "0.2",
            "CADENCE_SECONDS": "1",
            "SERVER_URL": url,
            "TOKEN_FILE": "" if token_file is None else str(token_file),
            "SPOOL_DIR": str(self.folder / "spool"),
            "REPROBE_SECONDS": "1",
            "EXPORTER_LISTEN": "",
            **settings,
        }
        ours = {f"TRUELOAD_AGENT__{name}": value for name, value in names.items()}
        return {**os.environ, **ours, STATE_VARIABLE: str(self.path)}

    def command(self, *arguments: str) -> list[str]:
        """Give a command line of trueload."""
        return [sys.executable, "-m", "trueload", *arguments]

    def close(self) -> None:
        """Write no more."""
        self.stop.set()
        self.thread.join()
        self.state.close()

    def _now(self) -> list[StandinDevice]:
        seconds = time.monotonic() - self.begun
        return [
            replace(
                card,
                energy_joules=card.power_watts * seconds,
                gpm=None
                if card.gpm is None
                else GpmCounters(seconds, *(share * seconds * (1 - place) for share in (0.5, 0.4, 0.2, 0.1, 0.3))),
            )
            for place, card in enumerate(self.cards)
        ]

    def _write(self) -> None:
        while not self.stop.wait(0.02):
            self.state.write(self._now())
            self.written.set()


@pytest.fixture
def bench(tmp_path: Path, repository: Path) -> Iterator[Bench]:
    """Give a simulated node, or skip where the stand-in is not built."""
    try:
        library_path()
    except TrueloadError as error:
        pytest.skip(str(error))
    made = Bench(tmp_path, repository)
    try:
        yield made
    finally:
        made.close()
