"""Batches on disk until the server has them safely: written first, sent later, bounded, in order.

One file is one batch, encoded as it will be posted. Files are written aside, synced and renamed, so a process that is
killed at any point leaves whole batches only. What the server has acknowledged moves into the folder ``kept`` and stays
there until the server's last backup holds it or a bound of its own is reached: a server that lost what it had
acknowledged gets it again.

Numbers belong to a *stream*: the machine's boot id and a few random characters drawn when the spool first sees that
boot. A spool whose memory was wiped thus begins a new stream, and never gives an old number to new rows. Numbers go on
across restarts: the newest file shows the highest one, which is written down before that file goes.

A disk that is full or read-only costs nothing while the server answers: batches then wait in memory, within a bound,
in a stream of this process's own, for a number that is nowhere written down must not be given twice.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from collector.files import remove_unfinished, replace_file, sync_folder
from collector.spool_names import BatchName
from collector.spool_shelf import Shelf, SpooledBatch
from collector.spool_state import BOOT_ID_FILE, LOCK_FILE, STATE_FILE, State, lock_folder, new_stream, read_boot_id
from warehouse.contract import exchange, wire
from warehouse.contract.errors import BadUseError

LOG = logging.getLogger("trueload.spool")
KEPT_FOLDER: Final = "kept"
MEMORY_BOOT_NUMBER: Final = 999_999
"""Stands for the stream of batches that are in memory only; no boot of a machine is ever counted so far."""

MOST_AT_A_TIME: Final = 64
"""Batches that ``waiting`` gives at once: enough to send, and few however many wait."""

LOOK_AGAIN_SECONDS: Final = 60.0
"""How often the age of the oldest batch is looked at, and a disk that refused is tried again."""

DISK_REFUSES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a spool may hold: bytes and age of what waits, of what is kept after that, and bytes in memory."""

    max_bytes: int
    max_age_seconds: float
    kept_max_bytes: int = 128 * 1024**2
    kept_max_age_seconds: float = 2 * 86400.0
    memory_max_bytes: int = 8 * 1024**2


class Spool:
    """A folder of batches of one sender. One process at a time; any number of its threads."""

    def __init__(self, folder: Path, agent: str, bounds: Bounds) -> None:
        """Open or make the folder and remove what a killed process left unfinished.

        A full or read-only disk is no error: batches wait in memory, and the disk is tried again.

        Raises:
            BadUseError: the folder cannot be used, or another process uses it.
            BadInputError: the spool's own state file is damaged.

        """
        self.folder: Final = folder
        self.agent: Final = agent
        self.dropped_total = 0
        """Batches that a bound dropped before the server had them."""

        self._say_dropped_at = 0.0
        self._bounds = bounds
        self._guard = threading.RLock()
        self._lock: int | None = None
        self._on_disk = False
        self._try_disk_at = 0.0
        self._state = State("", "", 0, 0)
        self._next_sequence = 1
        self._shelf, self._kept = Shelf(folder), Shelf(folder / KEPT_FOLDER)
        self._memory: deque[SpooledBatch] = deque()
        self._memory_bytes = 0
        self._memory_stream = new_stream(read_boot_id())
        self._memory_sequence = 0
        self._forgotten_until: dict[int, int] = {}
        self._unmoved: dict[BatchName, Path] = {}
        """Batches that wait no more, and where their files are to go once the disk lets them."""

        self._open_disk()

    def __enter__(self) -> Self:
        """The spool itself."""
        return self

    def __exit__(self, *_exit: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Let another process use the folder. Batches on disk stay where they are; those in memory are lost."""
        with self._guard:
            if self._memory:
                LOG.warning("spool %s: %d batches were only in memory and are lost", self.folder, len(self._memory))
                self.dropped_total += len(self._memory)
                self._memory.clear()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    @property
    def waiting_bytes(self) -> int:
        """Give the bytes that wait, on disk and in memory."""
        return self._shelf.bytes + self._memory_bytes

    @property
    def waiting_count(self) -> int:
        """Give the number of batches that wait, or were refused, on disk and in memory."""
        return self._shelf.count - len(self._unmoved) + len(self._memory)

    @property
    def kept_count(self) -> int:
        """Give the number of batches that the server has and its last backup has not."""
        return self._kept.count

    @property
    def memory_count(self) -> int:
        """Give the number of batches that the disk did not take."""
        return len(self._memory)

    def put(self, tables: Mapping[str, wire.Table]) -> Path:
        """Keep a batch; when this returns, it survives a power cut, or the disk has refused and it waits in memory.

        Gives the file that it is in, or would be.
        """
        with self._guard:
            if not self._on_disk and time.monotonic() >= self._try_disk_at:
                self._open_disk()
            if self._on_disk:
                try:
                    return self._put_on_disk(tables)
                except OSError as error:
                    if error.errno not in DISK_REFUSES:
                        raise
                    self._say_refused(error)
            return self._put_in_memory(tables)

    def waiting(self) -> list[SpooledBatch]:
        """Give the batches that are to be sent, oldest first, ``MOST_AT_A_TIME`` of them at most."""
        with self._guard:
            there = self._shelf.names() if self._on_disk else []
            names = [name for name in there if not name.refused and name not in self._unmoved]
            found = [*self._shelf.batches(names[:MOST_AT_A_TIME]), *self._memory]
        return found[:MOST_AT_A_TIME]

    def acknowledge(self, batch: SpooledBatch, backed_up_until: int | None = None) -> None:
        """Take note that the server has a batch, and what of its stream the server's last backup has."""
        with self._guard:
            if batch.content is not None:
                self._forget_in_memory(batch)
                return
            if not self._move(batch, self._kept.folder / batch.path.name):
                return
            self._shelf.removed(batch.size_bytes)
            self._kept.added(batch.size_bytes)
            if backed_up_until is not None:
                self._forget_backed_up(batch.name.boot_number, backed_up_until)
            self._bound_kept()

    def set_aside(self, batch: SpooledBatch) -> None:
        """Keep a batch that the server will never take, without sending it again, until a bound drops it."""
        with self._guard:
            if batch.content is not None:
                self._forget_in_memory(batch)
                return
            name = BatchName(
                batch.name.boot_number, batch.name.sequence, batch.name.part, batch.name.depth, refused=True
            )
            self._move(batch, self.folder / str(name))

    def _move(self, batch: SpooledBatch, target: Path) -> bool:
        """Move a batch's file; False when it is gone, or the disk refuses: then it waits no more all the same."""
        try:
            batch.path.replace(target)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in DISK_REFUSES:
                raise
            if not self._unmoved:
                self._say_refused(error)
            self._unmoved[batch.name] = target
            return False
        return True

    def _move_the_rest(self) -> None:
        """Move what a disk that takes something again refused to move before."""
        unmoved, self._unmoved = self._unmoved, {}
        for batch in self._shelf.batches(unmoved):
            if self._move(batch, unmoved[batch.name]) and unmoved[batch.name].parent == self._kept.folder:
                self._shelf.removed(batch.size_bytes)
                self._kept.added(batch.size_bytes)

    def split(self, batch: SpooledBatch) -> bool:
        """Replace a batch by two halves of its rows; False when it is one row.

        Both halves are there before the whole goes; whoever finds all three removes the halves (``_drop_orphans``),
        for no half is sent before the whole is gone.
        """
        whole = wire.decode(batch.read(), origin=str(batch.name))
        halves = wire.halves(whole)
        if halves is None:
            return False
        with self._guard:
            contents = [
                wire.encode(wire.Batch(whole.agent, whole.boot_id, whole.sequence, whole.sent_at, tables, name.part))
                for tables, name in zip(halves, batch.name.halves, strict=True)
            ]
            if batch.content is not None:
                self._forget_in_memory(batch)
                for name, content in zip(batch.name.halves, contents, strict=True):
                    self._remember_in_memory(name, content)
                return True
            try:
                self._split_on_disk(batch, contents)
            except OSError as error:
                if error.errno not in DISK_REFUSES:
                    raise
                self._split_in_memory(batch, contents, error)
        return True

    def _split_on_disk(self, batch: SpooledBatch, contents: Sequence[bytes]) -> None:
        for name, content in zip(batch.name.halves, contents, strict=True):
            replace_file(self.folder / str(name), content)
            self._shelf.added(len(content))
        self._unlink(self._shelf, batch)
        sync_folder(self.folder)

    def _split_in_memory(self, batch: SpooledBatch, contents: Sequence[bytes], error: OSError) -> None:
        """Have the halves wait in memory, where the disk takes none: the whole would hold up all that comes after it.

        The whole stays on the disk and waits no more. After a restart it is sent, and split, again: the server knows
        the halves that it has by their names.
        """
        if not self._unmoved:
            self._say_refused(error)
        for name, content in zip(batch.name.halves, contents, strict=True):
            half = self.folder / str(name)
            if half.exists():  # written before the other was refused
                half.unlink()
                self._shelf.removed(len(content))
            self._remember_in_memory(name, content)
        self._unmoved[batch.name] = self._kept.folder / batch.path.name

    def holdings(self) -> list[exchange.Holdings]:
        """Give what the server has acknowledged and is still here, by stream."""
        with self._guard:
            by_boot: dict[int, list[tuple[int, int]]] = {}
            for name in self._kept.names() if self._on_disk else []:
                by_boot.setdefault(name.boot_number, []).append((name.sequence, name.part))
            return [
                exchange.Holdings(stream, max(numbers)[0], exchange.runs(numbers))
                for boot, numbers in by_boot.items()
                if (stream := self._state.streams.get(boot)) is not None
            ]

    def send_again(self, position: exchange.Position) -> int:
        """Let what the server lacks wait again; gives how many batches do."""
        with self._guard:
            boots = [boot for boot, stream in self._state.streams.items() if stream == position.boot_id]
            names = [name for name in self._kept.names() if name.boot_number in boots]
            again = [
                name
                for name in names
                if any(first <= name.sequence <= last and name.part == part for first, last, part in position.missing)
            ]
            for batch in self._kept.batches(again):
                batch.path.replace(self.folder / batch.path.name)
                self._kept.removed(batch.size_bytes)
                self._shelf.added(batch.size_bytes)
            return len(again)

    # ------------------------------------------------------------------------------------------------- on disk

    def _open_disk(self) -> None:
        self._try_disk_at = time.monotonic() + LOOK_AGAIN_SECONDS
        try:
            for folder in (self.folder, self._kept.folder):  # a mode is given to the last folder of a path alone
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._lock is None:
                self._lock = lock_folder(self.folder / LOCK_FILE)
            remove_unfinished(self.folder)
            self._drop_orphans()
            self._restore()
        except OSError as cause:
            if cause.errno not in DISK_REFUSES:
                text = f"spool {self.folder}: {cause.strerror}; give agent.spool_dir a folder to write in"
                raise BadUseError(text) from cause
            self._say_refused(cause)
            return
        self._shelf.survey()
        self._kept.survey()
        self._on_disk = True

    def _restore(self) -> None:
        names = [*self._shelf.names(), *self._kept.names()]
        path = self.folder / STATE_FILE
        self._state, is_new = State.restore(path, max((name.boot_number for name in names), default=0))
        if is_new:
            self._state.save(path)
        numbers = [name.sequence for name in names if name.boot_number == self._state.boot_number]
        self._next_sequence = max([self._state.acknowledged, *numbers]) + 1

    def _drop_orphans(self) -> None:
        """Remove halves whose whole is still there: their writer was killed before it could send any."""
        names = set(self._shelf.names())
        for name in names:
            for half in name.halves:
                if half in names:
                    (self.folder / str(half)).unlink(missing_ok=True)

    def _put_on_disk(self, tables: Mapping[str, wire.Table]) -> Path:
        name = BatchName(self._state.boot_number, self._next_sequence)
        content = wire.encode(wire.Batch(self.agent, self._state.stream, name.sequence, time.time(), tables))
        path = self.folder / str(name)
        try:
            replace_file(path, content)
        except OSError as error:
            if error.errno not in DISK_REFUSES or not self._make_room(4 * len(content)):
                raise
            replace_file(path, content)
        self._next_sequence += 1
        self._shelf.added(len(content))
        if self._unmoved:
            self._move_the_rest()
        self._bound_waiting(path)
        return path

    def _make_room(self, wanted_bytes: int) -> bool:
        """Give up what the server has anyway, oldest first, for a disk that is full."""
        freed = 0
        for batch in self._kept.batches(self._kept.names()):
            self._unlink(self._kept, batch)
            freed += batch.size_bytes
            if freed >= wanted_bytes:
                break
        return freed > 0

    def _bound_waiting(self, newest: Path) -> None:
        """Keep within bytes and age, dropping the oldest; the newest always stays."""
        bounds = self._bounds
        dropped = [
            batch
            for batch in self._exceeding(self._shelf, bounds.max_bytes, bounds.max_age_seconds)
            if batch.path != newest
        ]
        for batch in dropped:
            self._unlink(self._shelf, batch)
        if dropped:
            self.dropped_total += len(dropped)
            self._say_dropped(dropped[-1])

    def _say_dropped(self, latest: SpooledBatch) -> None:
        """Say now and then what the bounds have cost: nobody else will ever know of these rows."""
        if time.monotonic() < self._say_dropped_at:
            return
        self._say_dropped_at = time.monotonic() + LOOK_AGAIN_SECONDS
        LOG.warning(
            "spool %s: the server has been away for too long: %d batches dropped so far, all up to %s "
            "(agent.spool_max_bytes %d, agent.spool_max_age_seconds %g)",
            *(self.folder, self.dropped_total, time.strftime("%FT%TZ", time.gmtime(latest.written_at))),
            *(self._bounds.max_bytes, self._bounds.max_age_seconds),
        )

    def _bound_kept(self) -> None:
        bounds = self._bounds
        for batch in self._exceeding(self._kept, bounds.kept_max_bytes, bounds.kept_max_age_seconds):
            self._unlink(self._kept, batch)

    def _exceeding(self, shelf: Shelf, max_bytes: int, max_age_seconds: float) -> list[SpooledBatch]:
        """Give the oldest batches that are too many bytes or too old; the newest is never among them."""
        now = time.monotonic()
        if shelf.bytes <= max_bytes and now < shelf.look_again_at:
            return []
        shelf.look_again_at = now + min(LOOK_AGAIN_SECONDS, max_age_seconds / 60)
        surplus_bytes, oldest_at = shelf.bytes - max_bytes, time.time() - max_age_seconds
        found: list[SpooledBatch] = []
        for batch in shelf.batches(shelf.names()[:-1]):
            if surplus_bytes <= 0 and batch.written_at >= oldest_at:
                break
            surplus_bytes -= batch.size_bytes
            found.append(batch)
        return found

    def _forget_backed_up(self, boot_number: int, until: int) -> None:
        """Remove what the server's last backup has; the newest stays, to tell how far the stream was."""
        if until <= self._forgotten_until.get(boot_number, -1):
            return
        self._forgotten_until[boot_number] = until
        # The last number may be there in part only: parts of it are kept.
        names = [name for name in self._kept.names()[:-1] if name.boot_number == boot_number and name.sequence <= until]
        for batch in self._kept.batches(name for name in names if name.sequence < until or name.depth == 0):
            self._unlink(self._kept, batch)

    def _unlink(self, shelf: Shelf, batch: SpooledBatch) -> None:
        name = batch.name
        self._unmoved.pop(name, None)
        is_newest = name.boot_number == self._state.boot_number and name.sequence == self._next_sequence - 1
        if is_newest and name.sequence > self._state.acknowledged:
            self._state.acknowledged = name.sequence
            self._state.save(self.folder / STATE_FILE)
        batch.path.unlink(missing_ok=True)
        shelf.removed(batch.size_bytes)

    # ----------------------------------------------------------------------------------------------- in memory

    def _put_in_memory(self, tables: Mapping[str, wire.Table]) -> Path:
        self._memory_sequence += 1
        name = BatchName(MEMORY_BOOT_NUMBER, self._memory_sequence)
        batch = wire.Batch(self.agent, self._memory_stream, name.sequence, time.time(), tables)
        self._remember_in_memory(name, wire.encode(batch))
        return self.folder / str(name)

    def _remember_in_memory(self, name: BatchName, content: bytes) -> None:
        self._memory.append(SpooledBatch(self.folder / str(name), name, len(content), time.time(), content))
        self._memory_bytes += len(content)
        while self._memory_bytes > self._bounds.memory_max_bytes and len(self._memory) > 1:
            latest = self._memory.popleft()
            self._memory_bytes -= latest.size_bytes
            self.dropped_total += 1
            self._say_dropped(latest)

    def _forget_in_memory(self, batch: SpooledBatch) -> None:
        if batch in self._memory:
            self._memory.remove(batch)
            self._memory_bytes -= batch.size_bytes

    def _say_refused(self, error: OSError) -> None:
        if not self._memory:
            LOG.warning(
                "spool %s: %s; batches wait in memory, %d bytes at most, until there is room",
                *(self.folder, error.strerror, self._bounds.memory_max_bytes),
            )


__all__ = ["BOOT_ID_FILE", "KEPT_FOLDER", "LOCK_FILE", "STATE_FILE", "Bounds", "Spool", "SpooledBatch"]
