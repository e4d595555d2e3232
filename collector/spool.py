"""Batches on disk until the server has them: written first, sent later, bounded, in order.

One file is one batch, encoded as it will be posted. Files are written aside, synced and renamed, so a process that is
killed at any point leaves whole batches only. Sequence numbers go on across restarts: they are the larger of the
highest file and the highest number ever acknowledged, which is written down before its file goes.

Numbers belong to a *stream*: the machine's boot id and a few random characters drawn when the spool first sees that
boot. A spool whose memory was wiped thus begins a new stream, and never gives an old number to new rows.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from collector.files import remove_unfinished, replace_file, sync_folder
from warehouse.contract import wire
from warehouse.contract.errors import BadInputError, BadUseError

BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
STATE_FILE: Final = "state.json"
LOCK_FILE: Final = "lock"
REFUSED_SUFFIX: Final = ".refused"
STREAM_SUFFIX_BYTES: Final = 3
_NAME = re.compile(r"(\d{6})-(\d{12})\.batch(\.refused)?\Z")


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """One batch that waits: its file, which also gives its place in the order, and its size."""

    path: Path
    size_bytes: int
    written_at: float


@dataclass(slots=True)
class _State:
    """What the spool remembers: streams by number of the boot, the newest last, and the last number acknowledged."""

    boot_id: str
    stream: str
    boot_number: int
    acknowledged: int


class Spool:
    """A folder of batches of one sender. One process at a time; any number of its threads."""

    def __init__(self, folder: Path, agent: str, *, max_bytes: int, max_age_seconds: float) -> None:
        """Open or make the folder and remove what a killed process left unfinished.

        Raises:
            BadUseError: the folder cannot be written, or another process uses it.
            BadInputError: the spool's own state file is damaged.

        """
        self.folder: Final = folder
        self.agent: Final = agent
        self.dropped_total = 0
        self._max_bytes = max_bytes
        self._max_age_seconds = max_age_seconds
        self._guard = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock(folder / LOCK_FILE)
            remove_unfinished(folder)
        except OSError as cause:
            raise BadUseError(f"spool {folder}: {cause.strerror}; give agent.spool_dir a folder to write in") from cause
        self._state = self._restore()
        waiting = [int(match[2]) for match in self._names() if int(match[1]) == self._state.boot_number]
        self._next_sequence = max([self._state.acknowledged, *waiting]) + 1

    def __enter__(self) -> Self:
        """The spool itself."""
        return self

    def __exit__(self, *_exit: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Let another process use the folder. Batches stay where they are."""
        os.close(self._lock)

    def put(self, tables: Mapping[str, wire.Table]) -> Path:
        """Keep a batch; when this returns, it survives a power cut.

        Raises:
            OSError: the disk is full or read-only; the batch is not kept and its number is used for the next one.

        """
        with self._guard:
            sequence = self._next_sequence
            batch = wire.Batch(self.agent, self._state.stream, sequence, time.time(), tables)
            path = self.folder / f"{self._state.boot_number:06d}-{sequence:012d}.batch"
            replace_file(path, wire.encode(batch))
            self._next_sequence = sequence + 1
            self._drop_what_exceeds(path)
        return path

    def waiting(self) -> list[SpooledBatch]:
        """Give the batches that are to be sent, oldest first."""
        found = (self._look(match) for match in self._names() if not match[3])
        return [batch for batch in found if batch is not None]

    def acknowledge(self, batch: SpooledBatch) -> None:
        """Forget a batch that the server has."""
        with self._guard:
            self._remember(batch.path.name)
            batch.path.unlink(missing_ok=True)

    def set_aside(self, batch: SpooledBatch) -> None:
        """Keep a batch that the server will never take, without sending it again, until a bound drops it."""
        with self._guard:
            batch.path.replace(batch.path.with_name(batch.path.name + REFUSED_SUFFIX))

    def _remember(self, name: str) -> None:
        match = _NAME.match(name)
        if match and int(match[1]) == self._state.boot_number and int(match[2]) > self._state.acknowledged:
            self._state.acknowledged = int(match[2])
            self._save(self._state)

    def _drop_what_exceeds(self, newest: Path) -> None:
        """Keep within bytes and age, dropping the oldest; the newest always stays."""
        batches = [batch for batch in map(self._look, self._names()) if batch is not None]
        total_bytes = sum(batch.size_bytes for batch in batches)
        oldest_at = time.time() - self._max_age_seconds
        dropped = False
        for batch in batches:
            if batch.path == newest or (total_bytes <= self._max_bytes and batch.written_at >= oldest_at):
                break
            self._remember(batch.path.name)
            batch.path.unlink(missing_ok=True)
            total_bytes -= batch.size_bytes
            self.dropped_total += 1
            dropped = True
        if dropped:
            sync_folder(self.folder)

    def _names(self) -> list[re.Match[str]]:
        """Give the names of all batches, in the order in which they were written."""
        names = sorted(path.name for path in self.folder.iterdir())
        return [match for match in map(_NAME.match, names) if match]

    def _look(self, match: re.Match[str]) -> SpooledBatch | None:
        path = self.folder / match.string
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        return SpooledBatch(path, status.st_size, status.st_mtime)

    def _restore(self) -> _State:
        boot_id = _boot_id()
        path = self.folder / STATE_FILE
        number = max((int(match[1]) for match in self._names()), default=0)
        if path.exists():
            try:
                known = _State(**json.loads(path.read_text(encoding="utf-8")))
                number = max(number, int(known.boot_number))
            except (ValueError, TypeError) as cause:
                detail = f"damaged ({cause}); remove it: batches that wait are kept, a new stream begins"
                raise BadInputError(str(path), None, detail) from cause
            if known.boot_id == boot_id and number == known.boot_number:
                return known
        stream = f"{boot_id}.{secrets.token_hex(STREAM_SUFFIX_BYTES)}"
        state = _State(boot_id, stream, number + 1, 0)
        self._save(state)
        return state

    def _save(self, state: _State) -> None:
        content = {name: getattr(state, name) for name in _State.__slots__}
        replace_file(self.folder / STATE_FILE, json.dumps(content).encode())


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BadUseError(
            f"spool {path.parent}: another process uses it; each sender needs a folder of its own"
        ) from None
    return descriptor


def _boot_id() -> str:
    """Give the kernel's boot id; where there is none, one for this process, so that numbers never repeat."""
    try:
        return BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)
