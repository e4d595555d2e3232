"""What a spool remembers beside its batches: its streams, and that it belongs to one process."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from collector.files import replace_file
from warehouse.contract.errors import BadInputError, BadUseError

BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
STATE_FILE: Final = "state.json"
LOCK_FILE: Final = "lock"
STREAM_SUFFIX_BYTES: Final = 3
MOST_STREAMS: Final = 32
"""Boots whose stream is remembered; what is kept of earlier ones is not compared with the server any more."""


@dataclass(slots=True)
class State:
    """The present stream, the number of its boot, and the highest number of it that no file may show any more.

    ``streams`` are those of earlier boots too, by number of the boot.
    """

    boot_id: str
    stream: str
    boot_number: int
    acknowledged: int
    streams: dict[int, str] = field(default_factory=dict)

    @classmethod
    def restore(cls, path: Path, highest_boot_number: int) -> tuple[Self, bool]:
        """Read the state, and begin a stream where this boot has none yet; says whether it did.

        Raises:
            BadInputError: the file is damaged.

        """
        boot_id, number, streams = read_boot_id(), highest_boot_number, {}
        if path.exists():
            try:
                raw = json.loads(path.read_text(encoding="utf-8"))
                raw["streams"] = {int(boot): str(stream) for boot, stream in raw.get("streams", {}).items()}
                known = cls(**raw)
                number = max(number, int(known.boot_number))
            except (ValueError, TypeError, AttributeError) as cause:
                detail = f"damaged ({cause}); remove it: batches that wait are kept, a new stream begins"
                raise BadInputError(str(path), None, detail) from cause
            known.streams[known.boot_number] = known.stream
            if known.boot_id == boot_id and number == known.boot_number:
                return known, False
            streams = known.streams
        stream = new_stream(boot_id)
        latest = sorted({**streams, number + 1: stream}.items())[-MOST_STREAMS:]
        return cls(boot_id, stream, number + 1, 0, dict(latest)), True

    def save(self, path: Path) -> None:
        """Write the state, whole or not at all."""
        replace_file(path, json.dumps({name: getattr(self, name) for name in State.__slots__}).encode())


def new_stream(boot_id: str) -> str:
    """Give a name that no stream has had."""
    return f"{boot_id}.{secrets.token_hex(STREAM_SUFFIX_BYTES)}"


def read_boot_id() -> str:
    """Give the kernel's boot id; where there is none, one for this process, so that numbers never repeat."""
    try:
        return BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)


def lock_folder(path: Path) -> int:
    """Take a folder for this process until the descriptor is closed.

    Raises:
        BadUseError: another process has it.

    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        text = f"spool {path.parent}: another process uses it; each sender needs a folder of its own"
        raise BadUseError(text) from None
    return descriptor
