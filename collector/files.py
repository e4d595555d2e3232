"""Files that are whole or not there, whatever happens while they are written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

UNFINISHED_PREFIX = ".unfinished-"
"""What a writer that was killed leaves behind begins with this; it may be removed at any time."""


def replace_file(path: Path, content: bytes) -> None:
    """Write ``path`` anew: a reader, or a later start after a power cut, finds the old content or the new one.

    Raises:
        OSError: the file system refused; the old content stays.

    """
    descriptor, unfinished = tempfile.mkstemp(prefix=UNFINISHED_PREFIX, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make new, renamed and removed names of a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed writers left in a folder. Only while nobody else writes there."""
    for path in folder.glob(f"{UNFINISHED_PREFIX}*"):
        path.unlink(missing_ok=True)
