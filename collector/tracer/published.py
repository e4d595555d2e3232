"""What a process that we started ourselves publishes. For processes of others the agent checks far more."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from collector.tracer import layout
from warehouse.contract.errors import TrueloadError


def published_memory(pid: int | str) -> memoryview | None:
    """Map the tracer's memory of a process (or ``"self"``); ``None`` when it publishes none."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(entry.readlink()) != f"/memfd:{layout.NAME} (deleted)":
                continue
        except FileNotFoundError:
            continue  # closed meanwhile, as the listing itself
        descriptor = os.open(entry, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return memoryview(mmap.mmap(descriptor, layout.TOTAL_BYTES, prot=mmap.PROT_READ))
        finally:
            os.close(descriptor)
    return None


def read_header(memory: memoryview) -> layout.Header:
    """Read its header.

    Raises:
        TrueloadError: the tracer is another version's, or was writing throughout.
    """
    header = layout.parse_header(read_piece(memory, layout.HEADER_SPAN))
    if not layout.is_ours(header):
        raise TrueloadError(f"the tracer has layout version {header.version}, not {layout.VERSION}; build both anew")
    return header


def read_piece(memory: memoryview, span: layout.Span) -> bytes:
    """Copy one piece.

    Raises:
        TrueloadError: the tracer was writing throughout.
    """
    pieces = layout.read_together(memory, [span])
    if pieces is None:
        raise TrueloadError("the tracer was writing throughout; the machine is too busy to measure")
    return pieces[0]
