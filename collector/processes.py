"""What ``/proc`` says about a process: which cgroups it is in, what its environment said, and who exactly it is.

Process ids are given out again: a process is its id, its start and the boot. All files are read bounded, for what a
user can write there is theirs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The first pid namespace of a kernel always has this number (``PROC_PID_INIT_INO`` in linux/proc_ns.h)."""
_START_FIELD: Final = 19
"""``starttime`` is field 22 of proc_pid_stat(5); what stands before the name's closing bracket are the first two."""
_CGROUP_BYTES: Final = 64 * 1024
_ENVIRON_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for ever: ``start_ticks`` are clock ticks since boot."""

    pid: int
    start_ticks: int
    boot_id: str


class ProcessTable:
    """Processes of the host below a root that is usually ``/proc``."""

    def __init__(self, root: Path) -> None:
        """Read below ``root``; nothing is opened yet."""
        self._root = root
        self._at = str(root)  # joined by hand: paths cost more than what is read
        self._boot_id = self._read("sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()

    def sees_host_pids(self) -> bool:
        """Say whether a pid that the driver names means the same process here.

        The driver names host pids whoever asks. In a pid namespace of one's own they do not exist, or belong to
        somebody else.
        """
        for name in ("1", "self"):
            try:
                return str((self._root / name / "ns/pid").readlink()) == HOST_PID_NAMESPACE
            except OSError:
                continue
        return False

    def identity(self, pid: int) -> ProcessId | None:
        """Say who a pid is now; None when there is no such process."""
        _, bracket, rest = self._read(f"{pid}/stat", 4096).rpartition(b")")
        fields = rest.split()
        if not bracket or len(fields) <= _START_FIELD or not fields[_START_FIELD].isdigit():
            return None
        return ProcessId(pid, int(fields[_START_FIELD]), self._boot_id)

    def boot_at(self) -> float:
        """Give the instant of the boot, from which starts are counted, in seconds since the epoch."""
        for line in self._read("stat", 1024**2).splitlines():
            if line.startswith(b"btime "):
                return float(line.split()[1])
        return 0.0

    def cgroup_lines(self, pid: int) -> list[str]:
        """Give the lines of the process's cgroup file; none when it is gone."""
        return self._read(f"{pid}/cgroup", _CGROUP_BYTES).decode("utf-8", "replace").splitlines()

    def environ(self, pid: int) -> Mapping[str, str]:
        """Give the environment that the process was started with, as far as it can be read; its user can forge it."""
        text = self._read(f"{pid}/environ", _ENVIRON_BYTES).decode("utf-8", "replace")
        return {name: value for name, is_pair, value in (entry.partition("=") for entry in text.split("\0")) if is_pair}

    def name(self, pid: int) -> str:
        """Give the name of the program, at most 15 characters; empty when it is gone."""
        return self._read(f"{pid}/comm", 64).decode("utf-8", "replace").rstrip("\n")

    def user_id(self, pid: int) -> int | None:
        """Give the real user of a process; None when it is gone."""
        for line in self._read(f"{pid}/status", 4096).splitlines():
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
        return None

    def _read(self, name: str, most_bytes: int) -> bytes:
        try:
            descriptor = os.open(f"{self._at}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            parts = []
            while most_bytes > 0 and (part := os.read(descriptor, most_bytes)):
                parts.append(part)
                most_bytes -= len(part)
            return b"".join(parts)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
