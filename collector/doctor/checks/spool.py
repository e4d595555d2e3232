"""Can batches be kept on disk, do they survive a restart, is there room?"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from collector import settings as names
from collector.doctor.check import Check, Finding, Site, Stage
from collector.files import UNFINISHED_PREFIX
from collector.spool import DISK_REFUSES
from collector.spool_state import STATE_FILE, State
from warehouse.contract.errors import BadInputError

MIB: Final = 1024**2
SHORT_LIVED: Final = ("tmpfs", "ramfs", "overlay")
"""Kinds of file systems that go with the machine's memory, or with the container."""

ELSEWHERE: Final = "give agent.spool_dir a folder on a disk that stays (in a pod: a hostPath)"


def _run(site: Site) -> Iterator[Finding]:
    folder = Path(site.settings[names.SPOOL_DIR])
    home = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    refusal = _refusal(folder, home)
    if refusal is None:
        yield Finding(f"{folder} can be written", needed=True)
    elif refusal.errno in DISK_REFUSES:
        why = f"{home}: {refusal.strerror}; batches would wait in memory"
        yield Finding(f"{folder} takes nothing now", ok=False, reason=why, fix="make room, or mount it writable")
    else:
        why = f"{refusal.filename or home}: {refusal.strerror}"
        yield Finding(f"{folder} cannot be used", ok=False, reason=why, fix=ELSEWHERE, needed=True)
    kind = _kind(site, home)
    if kind in SHORT_LIVED:
        yield Finding(f"it lies on {kind}", ok=False, reason="what waits goes with a restart", fix=ELSEWHERE)
    yield _room(site, home)
    yield from _waiting(folder)


def _refusal(folder: Path, home: Path) -> OSError | None:
    """Try to write and sync a file, where the folder is there; else ask whether it could be made."""
    if not home.is_dir():
        return NotADirectoryError(errno.ENOTDIR, "is no folder", str(home))
    if home != folder:
        if os.access(home, os.W_OK | os.X_OK):
            return None
        return PermissionError(errno.EACCES, "may not be written, or is mounted read-only", str(home))
    try:
        descriptor, name = tempfile.mkstemp(prefix=UNFINISHED_PREFIX, dir=folder)
    except OSError as error:
        return error
    try:
        os.write(descriptor, b"\0" * 4096)
        os.fsync(descriptor)
    except OSError as error:
        return error
    finally:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)
    return None


def _kind(site: Site, home: Path) -> str:
    """Give the kind of the file system of a folder: the longest mount point that it lies below (proc(5), mountinfo)."""
    try:
        lines = (site.proc / "self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        path = home.resolve()
    except OSError:
        return ""
    best, kind = 0, ""
    for line in lines:
        fields = line.split()
        if "-" not in fields[:-1]:
            continue
        point = Path(fields[4].replace("\\040", " "))
        if (path == point or point in path.parents) and len(str(point)) >= best:
            best, kind = len(str(point)), fields[fields.index("-") + 1]
    return kind


def _room(site: Site, home: Path) -> Finding:
    wanted = site.settings[names.SPOOL_MAX_BYTES] + site.settings[names.SPOOL_KEPT_MAX_BYTES]
    free = shutil.disk_usage(home).free
    if free >= wanted:
        return Finding(f"room for all that may wait and be kept ({wanted // MIB} MiB)")
    why = f"{free // MIB} MiB are free, {wanted // MIB} MiB may be used: it would be full before the oldest are dropped"
    return Finding("little room", ok=False, reason=why, fix="make room, or lower agent.spool_max_bytes")


def _waiting(folder: Path) -> Iterator[Finding]:
    try:
        State.restore(folder / STATE_FILE, 0)
    except BadInputError as error:
        yield Finding(
            "its state is damaged", ok=False, reason=str(error), fix=f"remove {folder / STATE_FILE}", needed=True
        )
    except OSError as error:
        yield Finding("its state cannot be read", ok=None, reason=str(error))
    ages = []
    for path in folder.glob("*.batch"):
        try:
            ages.append(time.time() - path.stat().st_mtime)
        except OSError:
            continue
    if ages:
        yield Finding(f"{len(ages)} batches wait, the oldest for {max(ages) / 60:.0f} min")


CHECK = Check("spool", "whether batches can be kept on disk", Stage.SPOOL, _run)
