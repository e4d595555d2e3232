"""What is done when the database file is not what it was: say it loudly, lose nothing that can be kept, go on.

* A damaged write-ahead log or file is set aside under another name, never deleted; agents send again what they still
  hold, and sealed days come back from the lake.
* A log that lost its tail without complaint (a damaged record length opens silently, measured; docs/benchmarks.md)
  is revealed by a commit counter kept outside the database.
* A file of a newer format is refused and left untouched.
"""

from __future__ import annotations

import logging
import os
import time
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

LOG = logging.getLogger("trueload.recovery")
COUNTER_FILE = "commits"
COUNTER_DIGITS = 20
MAGIC = b"DUCK"
MAGIC_OFFSET = 8
NEWEST_FILE_FORMAT = 68
"""The storage number of the file format v1.5.0, the newest that this release writes (read off a file)."""


class Damage(Enum):
    """What is wrong with a file that cannot be opened."""

    BUSY = "another process owns it"
    NEWER = "it was written by a newer version"
    LOG = "its write-ahead log is damaged"
    FILE = "it is damaged or no database"
    OTHER = "it cannot be opened"


def diagnose(path: Path, error: duckdb.Error) -> Damage:
    """Tell from DuckDB's error and the file's header what is wrong."""
    text = str(error)
    if "Could not set lock" in text or "Conflicting lock" in text:
        return Damage.BUSY
    if "replaying WAL" in text:
        return Damage.LOG
    if (format_number(path) or 0) > NEWEST_FILE_FORMAT and "Corrupt" not in text:
        return Damage.NEWER
    if "Corrupt database file" in text or "not a valid DuckDB database file" in text:
        return Damage.FILE
    return Damage.OTHER


def format_number(path: Path) -> int | None:
    """Read the storage number from a file's header; None when it is no database."""
    try:
        with path.open("rb") as file:
            header = file.read(MAGIC_OFFSET + len(MAGIC) + 8)
    except OSError:
        return None
    if header[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] != MAGIC:
        return None
    return int.from_bytes(header[MAGIC_OFFSET + len(MAGIC) :], "little")


def set_aside(*files: Path) -> list[Path]:
    """Rename files that exist to ``<name>.damaged-<time>``; gives the new names."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    moved: list[Path] = []
    for file in files:
        if file.exists():
            target = file.with_name(f"{file.name}.damaged-{stamp}-{os.getpid()}")
            file.rename(target)
            moved.append(target)
    return moved


class CommitCounter:
    """The number of the last commit, durable outside the database and written after each commit."""

    def __init__(self, folder: Path) -> None:
        """Open or make the counter's file."""
        self._descriptor = os.open(folder / COUNTER_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        self._last = self.read()

    def read(self) -> int:
        """Give the number in the file; 0 when it holds none."""
        text = os.pread(self._descriptor, COUNTER_DIGITS, 0)
        return int(text) if text.strip().isdigit() else 0

    def advance(self, number: int) -> None:
        """Make a commit's number durable; a smaller one than the last changes nothing."""
        if number > self._last:
            os.pwrite(self._descriptor, b"%0*d" % (COUNTER_DIGITS, number), 0)
            os.fdatasync(self._descriptor)
            self._last = number

    def accept(self, number: int) -> None:
        """Start again from what the database knows, after a loss was reported."""
        self._last = -1
        self.advance(number)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
