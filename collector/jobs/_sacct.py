"""Asking Slurm's accounting: one ``sacct`` at a time, its text in pieces that a server takes.

Times are asked for and printed so that no zone and no change of clocks matters: the window in UTC, the answers as
seconds since the epoch (``SLURM_TIME_FORMAT=%s``). Fields are those that the site's version has (``--helpformat``).
"""

from __future__ import annotations

import gzip
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Final

from collector.job_source import TooMuchError
from warehouse.contract.errors import BadInputError, BadUseError, UnreachableError

FIELDS: Final = (
    *("JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "QOS", "State", "ExitCode"),
    *("Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw", "NNodes", "NCPUS", "NodeList"),
    *("ReqTRES", "ReqMem", "AllocTRES", "AllocGRES", "MaxRSS", "TotalCPU"),
    *("Comment", "AdminComment", "SubmitLine", "WorkDir", "Container", "Cluster", "DBIndex", "SLUID"),
)
"""What the server's importer reads (docs/import.md); a version that lacks one is asked for the others."""

NEEDED: Final = frozenset({"JobID", "State", "Start", "End"})
DELIMITER: Final = "\x1f"
"""The unit separator, which nobody writes into a comment."""

PIECE_BYTES: Final = 8 * 1024**2
"""Text of one message: some tens of thousands of jobs, and read by a server within seconds."""

STOP_SECONDS: Final = 5.0
LONGEST_MESSAGE: Final = 300
_LINE_BYTES: Final = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Sacct:
    """How a site's accounting is asked. ``clusters`` empty: the cluster of the machine's own slurm.conf."""

    command: str
    clusters: str
    timeout_seconds: float

    def fields(self) -> tuple[str, ...]:
        """Give those of ``FIELDS`` that this version has.

        Raises:
            BadUseError: there is no such program, or it is no sacct.
            UnreachableError: it does not answer.

        """
        text = self._run("--helpformat")
        known = set(text.split())
        if not known >= NEEDED:
            raise BadUseError(f"{self.command}: no sacct of Slurm; it knows no {', '.join(sorted(NEEDED - known))}")
        return tuple(name for name in FIELDS if name in known)

    def pieces(self, fields: tuple[str, ...], since_at: float, until_at: float) -> Iterator[tuple[bytes, int]]:
        """Give what ran in ``[since_at, until_at)`` as gzip'd texts with a header each, and how many lines each has.

        Rows of one job may lie in two pieces; the importer keeps keys equal over every split. Without any row there is
        no piece.

        Raises:
            UnreachableError: accounting does not answer, or stopped answering midway.
            TooMuchError: it took too long.

        """
        window = [f"--starttime={_utc(since_at)}", f"--endtime={_utc(until_at)}"]
        shape = ["--parsable2", f"--delimiter={DELIMITER}", f"--format={','.join(fields)}"]
        with tempfile.TemporaryFile() as errors:
            # Duplicates: each start of a requeued job is a row of its own.
            process = self._start([*self._where(), "--allusers", "--duplicates", *window, *shape], errors)
            patience = _Patience(process, self.timeout_seconds)
            try:
                yield from _pieces(process, patience)
                code = process.wait(self.timeout_seconds)  # it has said all, and may hang all the same
            except subprocess.TimeoutExpired as cause:
                raise TooMuchError(f"{self.command}: does not end (jobs.slurm_timeout_seconds)") from cause
            finally:
                patience.pause()
                _end(process)
            if patience.is_over:
                raise TooMuchError(
                    f"{self.command}: no answer within {self.timeout_seconds:g} s (jobs.slurm_timeout_seconds)"
                )
            if code:
                raise UnreachableError(f"{self.command}: exit code {code}: {_message(errors)}")

    def _where(self) -> list[str]:
        return [f"--clusters={self.clusters}"] if self.clusters else []

    def _run(self, *options: str) -> str:
        with tempfile.TemporaryFile() as errors:
            process = self._start(list(options), errors)
            try:
                text, _ = process.communicate(timeout=self.timeout_seconds)
            except subprocess.TimeoutExpired as cause:
                raise TooMuchError(f"{self.command} {options[0]}: no answer in time") from cause
            finally:
                _end(process)
            if process.returncode:
                raise UnreachableError(f"{self.command} {options[0]}: {_message(errors)}")
        return text.decode(errors="replace")

    def _start(self, options: list[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}
        for name in ("SACCT_FORMAT", "SLURM_CLUSTERS"):  # what an operator has set for reading by eye
            environment.pop(name, None)
        try:
            return subprocess.Popen(
                [self.command, *options],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as cause:
            raise BadUseError(f"{self.command}: cannot be started ({cause.strerror}); set jobs.slurm_sacct") from cause


class _Patience:
    """Kills a process that is silent for too long; the clock stands still while it is paused."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self.is_over = False
        self._process = process
        self._seconds = seconds
        self._timer = threading.Timer(seconds, self._end)
        self._timer.start()

    def pause(self) -> None:
        self._timer.cancel()

    def go_on(self) -> None:
        self._timer = threading.Timer(self._seconds, self._end)
        self._timer.start()

    def _end(self) -> None:
        self.is_over = True
        self._process.kill()


def _pieces(process: subprocess.Popen[bytes], patience: _Patience) -> Iterator[tuple[bytes, int]]:
    """Cut what a process prints into pieces at the ends of rows."""
    if process.stdout is None:
        return
    lines = process.stdout
    header = lines.readline(_LINE_BYTES)
    delimiter = DELIMITER.encode()
    width = header.count(delimiter)
    piece: list[bytes] = []
    size = seen = rows = 0
    while line := lines.readline(_LINE_BYTES):
        piece.append(line)
        size += len(line)
        rows += 1
        seen += line.count(delimiter)
        if seen < width:
            continue  # a text with a line break in it
        seen = 0
        if size >= PIECE_BYTES:
            patience.pause()
            yield gzip.compress(header + b"".join(piece), 6, mtime=0), rows
            patience.go_on()
            piece, size, rows = [], 0, 0
    patience.pause()
    if piece:
        yield gzip.compress(header + b"".join(piece), 6, mtime=0), rows


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _message(errors: IO[bytes]) -> str:
    errors.seek(0)
    text = " ".join(errors.read(64 * 1024).decode(errors="replace").split())
    return text[:LONGEST_MESSAGE] or "it says nothing"


def _utc(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError) as cause:
        raise BadInputError("window", None, f"{at!r} is no instant") from cause
