"""The kernel's small text files, read bounded and without trust: a word that is no number is no value."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 256 * 1024
_LONGEST_NUMBER: Final = 19
"""Digits of the largest whole number that the store holds, 2^63 - 1."""

MICROSECONDS: Final = 1e6


def read_text(path: Path | str, most_bytes: int = MOST_BYTES) -> str | None:
    """Give the begin of a file; None where it cannot be read, for whatever reason."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        parts = []
        while most_bytes > 0 and (part := os.read(descriptor, min(most_bytes, 65536))):
            parts.append(part)
            most_bytes -= len(part)
        return b"".join(parts).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def whole(word: str) -> int | None:
    """Give a whole number from 0 to what the store holds; None for anything else, also a sign or a space."""
    if word.isascii() and word.isdigit() and len(word) <= _LONGEST_NUMBER:
        number = int(word)
        return number if number < 2**63 else None
    return None


def pairs(text: str | None) -> dict[str, int]:
    """Give the numbers of a file of lines ``name number`` or ``name: number``; other lines are passed over."""
    found: dict[str, int] = {}
    for line in (text or "").splitlines():
        name, _, rest = line.partition(" ")
        number = whole(rest.split()[0]) if rest.split() else None
        if number is not None:
            found[name.removesuffix(":")] = number
    return found


def pressure_seconds(text: str | None) -> dict[str, float]:
    """Give the totals of a pressure file by ``some`` and ``full`` (kernel: Documentation/accounting/psi.rst)."""
    found: dict[str, float] = {}
    for line in (text or "").splitlines():
        kind, *words = line.split()
        total = next((whole(word.removeprefix("total=")) for word in words if word.startswith("total=")), None)
        if kind in ("some", "full") and total is not None:
            found[kind] = total / MICROSECONDS
    return found


def interfaces(text: str | None) -> Iterator[tuple[str, int, int]]:
    """Give name, received and transmitted bytes of each interface of a ``net/dev`` file (proc_net(5))."""
    for line in (text or "").splitlines():
        name, is_row, rest = line.partition(":")
        words = rest.split()
        if is_row and len(words) >= 9:  # noqa: PLR2004 - transmitted bytes are the ninth number
            received, transmitted = whole(words[0]), whole(words[8])
            if received is not None and transmitted is not None:
                yield name.strip(), received, transmitted
