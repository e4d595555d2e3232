"""Batches that wait in a folder: what is known of each, and how much they are together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from collector.spool_names import BatchName


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """One batch that waits: its file, its name, its size; ``content`` where it is in memory only."""

    path: Path
    name: BatchName
    size_bytes: int
    written_at: float
    content: bytes | None = None

    def read(self) -> bytes:
        """Give the batch as it is posted.

        Raises:
            FileNotFoundError: a bound of the spool dropped it meanwhile.

        """
        return self.path.read_bytes() if self.content is None else self.content


class Shelf:
    """One folder of batches with its size, so that staying within bounds costs no look at every file."""

    def __init__(self, folder: Path) -> None:
        """Begin with an empty folder; ``survey`` counts what is there."""
        self.folder = folder
        self.bytes = 0
        self.count = 0
        self.look_again_at = 0.0

    def survey(self) -> None:
        """Count what is there."""
        sizes = [batch.size_bytes for batch in self.batches(self.names())]
        self.bytes, self.count = sum(sizes), len(sizes)

    def names(self) -> list[BatchName]:
        """Give the names, in the order in which the batches were written."""
        return sorted(name for name in map(BatchName.parse, os.listdir(self.folder)) if name is not None)  # noqa: PTH208 - ten thousand names

    def batches(self, names: Iterable[BatchName]) -> Iterable[SpooledBatch]:
        """Look at files; those that went away meanwhile are left out."""
        for name in names:
            path = self.folder / str(name)
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            yield SpooledBatch(path, name, status.st_size, status.st_mtime)

    def added(self, size_bytes: int) -> None:
        """Take note of one more."""
        self.bytes, self.count = self.bytes + size_bytes, self.count + 1

    def removed(self, size_bytes: int) -> None:
        """Take note of one less."""
        self.bytes, self.count = max(0, self.bytes - size_bytes), max(0, self.count - 1)
