"""A node made of files, and a server that answers what a test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from collector.doctor.check import Finding, Site
from collector.doctor.examine import checks, examine
from tests.collector.proctree import ProcTree
from warehouse.contract.settings import Settings

ALL_RIGHTS = "000001ffffffffff"


@dataclass
class Server:
    """Answers ``/healthz`` and ``/v1/me``."""

    url: str = ""
    me: tuple[int, object] = (200, {"name": "agent", "role": "agent", "node": None, "accounts": []})
    health: tuple[int, object] = (200, {"ok": True})
    ahead_seconds: float | None = 0.0
    """By how much its clock is ahead of ours; None: it does not tell."""


@pytest.fixture
def server() -> Iterator[Server]:
    told = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = told.me if self.path == "/v1/me" else told.health
            if self.path == "/healthz" and isinstance(document, dict) and told.ahead_seconds is not None:
                document = {**document, "answered_at": time.time() + told.ahead_seconds}
            answer = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.daemon_threads = True
    told.url = f"http://127.0.0.1:{served.server_address[1]}"
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield told
    finally:
        served.shutdown()
        served.server_close()
        thread.join()


@dataclass
class Node:
    """A node on which nothing is wrong, until a test changes it."""

    folder: Path
    proc: ProcTree
    values: dict[str, object] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def set(self, **values: object) -> None:
        """Change settings of the agent."""
        self.values |= {f"agent.{name}": value for name, value in values.items()}

    def site(self) -> Site:
        """Give what checks look at."""
        return Site(Settings(dict(self.values)), self.environ)

    def look(self, *names: str) -> list[Finding]:
        """Run some checks and give what they found."""
        chosen = [check for check in checks() if check.name in names]
        assert len(chosen) == len(names)
        return [line.finding for line in examine(self.site(), chosen).lines]

    def only(self, name: str) -> Finding:
        """Run one check that finds one thing."""
        (found,) = self.look(name)
        return found

    def status(self, capabilities: str = ALL_RIGHTS) -> None:
        """Say what the agent itself may."""
        (self.proc.root / "self").mkdir(exist_ok=True)
        (self.proc.root / "self/status").write_text(f"Name:\tpython\nUid:\t0\t0\t0\t0\nCapEff:\t{capabilities}\n")

    def mounts(self, kind: str) -> None:
        """Say what kind of file system the node's folder lies on."""
        lines = ["22 1 8:1 / / rw - ext4 /dev/sda1 rw", f"30 22 0:40 / {self.folder} rw,nosuid shared:9 - {kind} x rw"]
        (self.proc.root / "self/mountinfo").write_text("\n".join(lines) + "\n")

    def token(self, text: str = "secret", mode: int = 0o600) -> Path:
        """Write the agent's token."""
        path = self.folder / "agent.token"
        path.write_text(text)
        path.chmod(mode)
        self.set(token_file=str(path))
        return path


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path, ProcTree(tmp_path / "proc"))
    made.status()
    made.mounts("ext4")
    (made.proc.root / "1/environ").write_bytes(b"")
    (made.proc.root / "1/fd").mkdir()
    (made.proc.root / "1/cgroup").write_text("0::/init.scope\n")
    (made.proc.root / "driver/nvidia").mkdir(parents=True)
    (made.proc.root / "driver/nvidia/params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n")
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup/cgroup.controllers").write_text("cpu io memory\n")
    (tmp_path / "spool").mkdir()
    made.set(
        proc_root=str(made.proc.root),
        cgroup_root=str(tmp_path / "cgroup"),
        spool_dir=str(tmp_path / "spool"),
        spool_max_bytes=1024**2,
        spool_kept_max_bytes=1024**2,
        kubelet_socket=str(tmp_path / "kubelet.sock"),
        pod_logs_dir=str(tmp_path / "pods"),
        slurm_jobs_dir=str(tmp_path / "jobs"),
        exporter_listen="",
        node="node-1",
        post_timeout_seconds=2.0,
    )
    return made
