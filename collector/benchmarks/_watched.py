"""Processes of a run that lasts: the agent and its server, watched from outside while they are disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from warehouse.contract.errors import TrueloadError

ROOT: Final = Path(__file__).parents[2]
READY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Size:
    """What a process has at one moment. ``own_bytes`` are the pages that no file stands behind."""

    at: float
    resident_bytes: int
    own_bytes: int
    threads: int
    open_files: int


class Watched:
    """A trueload command in a process of its own, writing to a log file."""

    def __init__(self, arguments: list[str], log: Path, variables: Mapping[str, str]) -> None:
        """Start it."""
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trueload", *arguments],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdout=output,
                stderr=output,
            )

    @property
    def is_running(self) -> bool:
        """Say whether it has not ended."""
        return self.process.poll() is None

    def size(self) -> Size | None:
        """Look at it; None when it is gone."""
        folder = Path(f"/proc/{self.process.pid}")
        try:
            status = dict(
                line.split(":", 1)
                for line in (folder / "status").read_text(encoding="utf-8").splitlines()
                if ":" in line
            )
            return Size(
                time.monotonic(),
                int(status["VmRSS"].split()[0]) * 1024,
                int(status["RssAnon"].split()[0]) * 1024,
                int(status["Threads"]),
                len(list((folder / "fd").iterdir())),
            )
        except (OSError, KeyError):
            return None

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def pause(self, seconds: float) -> None:
        """Stop it for a while, as a machine that sleeps would."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def stop(self, patience_seconds: float) -> float | None:
        """End it as a service manager would; gives the seconds that it took, None when it had to be killed."""
        begin = time.monotonic()
        self.process.terminate()
        try:
            self.process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        return time.monotonic() - begin

    def require_running(self) -> None:
        """Check that it runs.

        Raises:
            TrueloadError: it has ended by itself.

        """
        if not self.is_running:
            tail = self.log.read_text(encoding="utf-8", errors="replace")[-500:].strip()
            raise TrueloadError(f"the process ended by itself ({self.process.returncode}): {tail}")


def wait_for(holds: Callable[[], object], seconds: float) -> bool:
    """Wait until something holds; says whether it did in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def read(url: str, timeout_seconds: float = 5.0) -> str | None:
    """Read an address; None where nobody answers well."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_seconds) as answer:  # noqa: S310 - a process of this run
            found: bytes = answer.read()
    except (urllib.error.URLError, OSError):
        return None
    return found.decode(errors="replace")


def ask(data: Path, statement: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Ask the store of a data directory that no server owns; gives the only row.

    Raises:
        TrueloadError: it cannot be asked.

    """
    ran = subprocess.run(
        [sys.executable, "-m", "trueload", "sql", statement, "--data", str(data), "--json"],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise TrueloadError(f"the store of {data} cannot be asked: {ran.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(ran.stdout)["rows"][0]
    return found
