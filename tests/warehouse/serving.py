"""A real server process for tests: started, found, killed, started again; and one under a supervisor."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from warehouse import access
from warehouse.client import HttpClient

REPOSITORY = Path(__file__).resolve().parents[2]
READY_SECONDS = 60.0


class ServerProcess:
    """``trueload serve`` on a free port, or a given one, over a data directory."""

    def __init__(self, data: Path, port: int = 0, variables: Mapping[str, str] | None = None) -> None:
        """Start it and wait until it has told its address."""
        self.data = data
        self.log = (data.parent / f"{data.name}.log").open("ab")
        command = [sys.executable, "-m", "trueload", "serve", "--data", str(data), "--port", str(port)]
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, env={**os.environ, **(variables or {})}, stdout=self.log, stderr=self.log
        )
        atexit.register(self.end_if_left)
        deadline = time.monotonic() + READY_SECONDS
        while (address := access.published(data)) is None or address.process_id != self.process.pid:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(Path(self.log.name).read_text())
            time.sleep(0.02)
        self.url = address.url

    def client(self, role: access.Role = access.Role.OPERATOR) -> HttpClient:
        """Give a client with a role's token."""
        return HttpClient(self.url, access.token_file(self.data, role).read_text())

    def end_if_left(self) -> None:
        """End it when the tests are over and the one that started it fell before it could."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """End it as a power cut of the process would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def stop(self) -> None:
        """End it as an operator would."""
        self.process.terminate()
        self.process.wait(timeout=30)
        self.log.close()


class Supervisor(threading.Thread):
    """Starts a server again whenever it ends with an error, as systemd's ``Restart=on-failure`` does."""

    def __init__(self, data: Path, port: int) -> None:
        super().__init__(name="supervisor")
        self.log = data.parent / "server.log"
        self.codes: list[int] = []
        self.started = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._command = [sys.executable, "-m", "trueload", "serve", "--data", str(data), "--port", str(port)]
        self._guard = threading.Lock()
        self._enough = False

    def run(self) -> None:
        while self._start():
            assert self.process is not None
            self.codes.append(self.process.wait())
            if self.codes[-1] == 0:
                return

    def stop(self) -> None:
        with self._guard:
            self._enough = True
            if self.process is not None:
                self.process.terminate()
        self.join()

    def _start(self) -> bool:
        with self._guard, self.log.open("ab") as stream:
            if not self._enough:
                self.process = subprocess.Popen(self._command, cwd=REPOSITORY, stdout=stream, stderr=stream)
                self.started += 1
            return not self._enough
