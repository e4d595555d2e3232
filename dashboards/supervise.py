"""Child processes of ``trueload up``: started one after the other, awaited, watched, and ended by pid, in turn.

Children run in sessions of their own, so that Ctrl-C reaches the parent alone and it can end them in order: those
that deliver before the one that takes delivery.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

import urllib3

from warehouse.contract.errors import BadUseError, TrueloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

POLL_SECONDS = 0.1
PROBE_SECONDS = 2.0
TAIL_LINES = 12


class PartDiedError(TrueloadError):
    """A part ended, or never got ready; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Part:
    """One child process: its name (also that of its log), its arguments, and how to see that it is ready."""

    name: str
    arguments: Sequence[str]
    is_ready: Callable[[], bool] = lambda: True
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Stop:
    """Whether somebody asked to stop, by Ctrl-C or SIGTERM."""

    asked: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM as a request to stop, for the time of the block."""

        def ask(_number: int, _frame: FrameType | None) -> None:
            self.asked.set()

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Supervisor:
    """The children of one ``trueload up``; leaving the ``with`` block ends them all, the last started first."""

    def __init__(self, logs: Path, stop: Stop, ready_seconds: float, stop_seconds: float) -> None:
        """Write logs into ``logs``; wait at most ``ready_seconds`` for a part, ``stop_seconds`` for its end."""
        self._logs = logs
        self._stop = stop
        self._ready_seconds = ready_seconds
        self._stop_seconds = stop_seconds
        self._running: list[tuple[Part, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        """Make the folder of the logs."""
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_error: object) -> None:
        """End all children that still run."""
        self.end_all()

    def start(self, part: Part) -> None:
        """Start a part; come back at once."""
        with self._log(part).open("wb") as log:
            child = subprocess.Popen(
                list(part.arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **part.environment},
                start_new_session=True,
            )
        self._running.append((part, child))

    def await_ready(self, part: Part) -> None:
        """Wait until a started part is ready, or somebody asks to stop.

        Raises:
            PartDiedError: it ended before, or was not ready in time.

        """
        deadline = time.monotonic() + self._ready_seconds
        while not self._stop.asked.is_set():
            self.check()
            if part.is_ready():
                return
            if time.monotonic() > deadline:
                raise PartDiedError(f"{part.name} was not ready within {self._ready_seconds:g} s; {self._tail(part)}")
            self._stop.asked.wait(POLL_SECONDS)

    def run(self, part: Part) -> None:
        """Run a part to its end, or until somebody asks to stop.

        Raises:
            PartDiedError: it ended with another exit code than 0.

        """
        self.start(part)
        _, child = self._running[-1]
        while not self._stop.asked.is_set() and child.poll() is None:
            self.check(but=part)
            self._stop.asked.wait(POLL_SECONDS)
        if child.poll() is None:
            return
        self._running.remove((part, child))
        if child.returncode != 0:
            raise self._died(part, child)

    def watch(self, seconds: float | None = None) -> None:
        """Stay until somebody asks to stop, or for some seconds.

        Raises:
            PartDiedError: a part ended by itself.

        """
        until = None if seconds is None else time.monotonic() + seconds
        while not self._stop.asked.wait(POLL_SECONDS):
            self.check()
            if until is not None and time.monotonic() >= until:
                return

    def check(self, but: Part | None = None) -> None:
        """Look whether all parts still run.

        Raises:
            PartDiedError: one does not.

        """
        for part, child in self._running:
            if part is not but and child.poll() is not None:
                raise self._died(part, child)

    def end_all(self) -> None:
        """Ask every child to end, the last started first, and end by force what does not within the time given."""
        while self._running:
            _, child = self._running.pop()
            if child.poll() is None:
                child.terminate()
            try:
                child.wait(self._stop_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    def _died(self, part: Part, child: subprocess.Popen[bytes]) -> PartDiedError:
        return PartDiedError(f"{part.name} ended with exit code {child.returncode}; {self._tail(part)}")

    def _tail(self, part: Part) -> str:
        path = self._log(part)
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return f"the end of its log {path}:\n" + "\n".join(f"    {line}" for line in lines)

    def _log(self, part: Part) -> Path:
        return self._logs / f"{part.name}.log"


def answers_ok(url: str) -> bool:
    """Say whether an address answers a GET with 200."""
    try:
        answer = urllib3.request("GET", url, timeout=PROBE_SECONDS, retries=False)
    except urllib3.exceptions.HTTPError:
        return False
    return answer.status == 200  # noqa: PLR2004 - HTTP's OK


def require_free(host: str, port: int, option: str, setting: str) -> None:
    """Make sure that nobody listens on a port.

    Raises:
        BadUseError: somebody does; the message names the option and the setting that choose another.

    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as cause:
            message = (
                f"cannot listen on {host} port {port} ({cause.strerror}); choose another with {option} or {setting}"
            )
            raise BadUseError(message) from cause


def some_free_port(host: str) -> int:
    """Give a port that nobody listens on right now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
