"""Finding the memory that traced processes publish. Whoever owns such a file may be hostile: nothing is believed.

A file is opened only as what it was looked at: first as a mere path (``O_PATH`` neither blocks nor has side effects),
then, once it is known to be a regular file of the right name, size and seals, for reading. It is read piece by piece,
never mapped: reading a mapping makes pages where its owner left holes, and they count as the reader's own memory, three
megabytes a process. Without the seal against shrinking it could end before a piece that is read.
"""

from __future__ import annotations

import fcntl
import os
import stat
import weakref
from pathlib import Path
from typing import Final

from collector.tracer import layout

LINK: Final = f"/memfd:{layout.NAME} (deleted)"
DESCRIPTORS_MAX: Final = 65_536
"""Entries of one process that are looked at: a program with more open files is not searched to the end."""

CANDIDATES_MAX: Final = 4
"""Files of our name that are tried in one process: it needs one."""


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """A file bears our name and is not to be read; the text is the reason, one of few, to be counted."""


class Published:
    """The open memory of a process: slices are read from it. It is closed when nobody holds it any more."""

    def __init__(self, descriptor: int) -> None:
        """Take the descriptor over."""
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def __getitem__(self, part: slice, /) -> bytes:
        """Read a slice with a start and a stop.

        Raises:
            Refused: it cannot be read, or ends before.

        """
        try:
            found = os.pread(self._descriptor, part.stop - part.start, part.start)
        except OSError as cause:
            raise Refused("cannot be read") from cause
        if len(found) != part.stop - part.start:
            raise Refused("has the wrong size")
        return found


def find_memory(folder: Path) -> Published | None:
    """Open the memory published by the process of a ``/proc/PID`` folder; None when there is none, or no access.

    Raises:
        Refused: there are files of the name, and none of them may be read.

    """
    refusal: Refused | None = None
    tried = 0
    try:
        with os.scandir(folder / "fd") as entries:
            for place, entry in enumerate(entries):
                if place >= DESCRIPTORS_MAX or tried >= CANDIDATES_MAX:
                    break
                if _link(entry.path) != LINK:
                    continue
                tried += 1
                try:
                    return _open(entry.path)
                except Refused as refused:
                    refusal = refused
    except OSError:
        pass  # it has ended, or belongs to somebody whom we may not look at
    if refusal is not None:
        raise refusal
    return None


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - asked of every open file of every process on a device
    except OSError:
        return None  # closed meanwhile


def _open(path: str) -> Published:
    try:
        looked_at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as cause:
        raise Refused("cannot be opened") from cause
    try:
        if not stat.S_ISREG(os.fstat(looked_at).st_mode):
            raise Refused("is no file")
        same = f"/proc/self/fd/{looked_at}"
        if _link(same) != LINK:
            raise Refused("was replaced")
        try:
            descriptor = os.open(same, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as cause:
            raise Refused("cannot be opened") from cause
    finally:
        os.close(looked_at)
    try:
        _check(descriptor)
    except Refused:
        os.close(descriptor)
        raise
    return Published(descriptor)


def _check(descriptor: int) -> None:
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError as cause:
        raise Refused("is no memory") from cause
    if not seals & fcntl.F_SEAL_SHRINK:
        raise Refused("is not sealed")
    if os.fstat(descriptor).st_size != layout.TOTAL_BYTES:
        raise Refused("has the wrong size")
