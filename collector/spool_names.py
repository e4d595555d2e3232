"""The names of files in a spool: which batch a file is, and which part of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

REFUSED_SUFFIX: Final = ".refused"
_NAME = re.compile(r"(\d{6})-(\d{12})(?:\.(\d+)of2\^(\d+))?\.batch(\.refused)?\Z")


@dataclass(frozen=True, slots=True, order=True)
class BatchName:
    """One batch, or the part of one that was too large: its halves at ``depth`` 1, their halves at 2, and so on.

    The halves of part ``p`` at depth ``d`` are the parts ``p`` and ``p + 2**d``: numbers that no other part has.
    """

    boot_number: int
    sequence: int
    part: int = 0
    depth: int = 0
    refused: bool = False

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Read a file's name; None for other files."""
        match = _NAME.match(name)
        if match is None:
            return None
        return cls(int(match[1]), int(match[2]), int(match[3] or 0), int(match[4] or 0), match[5] is not None)

    @property
    def halves(self) -> tuple[BatchName, BatchName]:
        """Give the names of the two halves."""
        deeper = self.depth + 1
        return (
            BatchName(self.boot_number, self.sequence, self.part, deeper),
            BatchName(self.boot_number, self.sequence, self.part + 2**self.depth, deeper),
        )

    def __str__(self) -> str:
        """Give the file's name; names sort as the batches do."""
        part = f".{self.part}of2^{self.depth}" if self.depth else ""
        refused = REFUSED_SUFFIX if self.refused else ""
        return f"{self.boot_number:06d}-{self.sequence:012d}{part}.batch{refused}"
