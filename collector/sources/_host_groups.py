"""A job's control group: what all its processes together use, under cgroup v2 and v1.

Files and units: kernel documentation, admin-guide/cgroup-v2.rst and cgroup-v1/. Slurm and kubelets limit and count at
the group of the whole job or pod, and the numbers of groups below are in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector.cgroups import group_paths
from collector.sources._host_counts import Look
from collector.sources._host_text import MICROSECONDS, pairs, pressure_seconds, read_text, whole

if TYPE_CHECKING:
    from collector.sources._host_node import Disks

NANOSECONDS: Final = 1e9
_NUMBERS: Final = re.compile(r"\d{1,9}:\d{1,9}")
_Io = tuple[str, int, int]
LIMIT_MAX: Final = 2**62
"""cgroup v1 says "no limit" by the largest page-aligned number that fits; no machine has half of that."""


class Groups:
    """Reads groups below the place where control groups are mounted."""

    def __init__(self, root: Path, disks: Disks) -> None:
        """Look which version is mounted there; ``disks`` knows which block devices are physical."""
        self._root = root
        self._disks = disks
        self._is_v2 = (root / "cgroup.controllers").exists()

    def find(self, cgroup_lines: list[str]) -> Group | None:
        """Give the group of the pod or job that these lines of ``/proc/PID/cgroup`` name; None where there is none."""
        paths = group_paths(cgroup_lines)
        if self._is_v2:
            folders = {"": self._root / paths[""].lstrip("/")} if "" in paths else {}
            path = paths.get("")
        else:
            folders = {name: self._root / name / path.lstrip("/") for name, path in paths.items() if name}
            path = next((paths[name] for name in ("memory", "cpuacct", "cpu") if name in paths), None)
        group = None if path is None else Group(path, folders, self._disks)
        return group if group is not None and group.inode is not None else None


class Group:
    """One group. ``inode`` tells it from a later one of the same path; None where it is not there."""

    def __init__(self, path: str, folders: Mapping[str, Path], disks: Disks) -> None:
        """``folders`` are those of its controllers, ``""`` that of cgroup v2."""
        self.path = path
        self._folders = folders
        self._disks = disks
        self.inode = self._inode()

    def is_there(self) -> bool:
        """Say whether it is still the same group."""
        return self.inode is not None and self._inode() == self.inode

    def look(self) -> Look:
        """Read what it says now; what its version or its controllers do not tell is left out."""
        return self._look_v2(self._folders[""]) if "" in self._folders else self._look_v1()

    def _look_v2(self, folder: Path) -> Look:
        look = Look()
        cpu = pairs(read_text(f"{folder}/cpu.stat"))
        _put(look.totals, "cpu_seconds", cpu.get("usage_usec"), MICROSECONDS)
        _put(look.totals, "cpu_throttled_seconds", cpu.get("throttled_usec"), MICROSECONDS)
        quota = (read_text(f"{folder}/cpu.max") or "").split()
        if len(quota) == 2 and (most := whole(quota[0])) is not None and (period := whole(quota[1])):  # noqa: PLR2004
            look.gauges["cpu_limit_count"] = most / period
        memory = pairs(read_text(f"{folder}/memory.stat"))
        _memory(look, memory.get("anon"), memory.get("file"), memory.get("shmem"))
        _put(look.totals, "major_fault_count", memory.get("pgmajfault"))
        _put(look.gauges, "memory_limit_bytes", whole((read_text(f"{folder}/memory.max") or "").strip()))
        self._traffic(look, _io_v2(read_text(f"{folder}/io.stat")))
        for name in ("cpu", "memory", "io"):
            stalled = pressure_seconds(read_text(f"{folder}/{name}.pressure"))
            _put(look.totals, f"{name}_stall_seconds", stalled.get("some"))
            if name == "io":
                _put(look.totals, "io_full_stall_seconds", stalled.get("full"))
        return look

    def _look_v1(self) -> Look:
        look = Look()
        used = whole(self._one("cpuacct", "cpuacct.usage").strip())
        _put(look.totals, "cpu_seconds", used, NANOSECONDS)
        throttled = pairs(self._one("cpu", "cpu.stat")).get("throttled_time")
        _put(look.totals, "cpu_throttled_seconds", throttled, NANOSECONDS)
        quota = whole(self._one("cpu", "cpu.cfs_quota_us").strip())  # -1 is no limit, and no whole number here
        period = whole(self._one("cpu", "cpu.cfs_period_us").strip())
        if quota and period:
            look.gauges["cpu_limit_count"] = quota / period
        memory = pairs(self._one("memory", "memory.stat"))
        _memory(look, memory.get("total_rss"), memory.get("total_cache"), memory.get("total_shmem", 0))
        _put(look.totals, "major_fault_count", memory.get("total_pgmajfault"))
        limit = whole(self._one("memory", "memory.limit_in_bytes").strip())
        if limit is not None and limit < LIMIT_MAX:
            look.gauges["memory_limit_bytes"] = float(limit)
        text = self._one("blkio", "blkio.throttle.io_service_bytes_recursive")
        self._traffic(look, _io_v1(text) if text else None)
        return look

    def _one(self, controller: str, name: str) -> str:
        folder = self._folders.get(controller)
        return "" if folder is None else read_text(f"{folder}/{name}") or ""

    def _traffic(self, look: Look, lines: list[_Io] | None) -> None:
        """Add up what went to physical disks: a device that lies over others counts their bytes again."""
        if lines is None:
            return
        physical = [line for line in lines if self._disks.is_physical(line[0])]
        if physical or not any(read or written for _, read, written in lines):
            look.totals["disk_read_bytes"] = float(sum(read for _, read, _ in physical))
            look.totals["disk_written_bytes"] = float(sum(written for _, _, written in physical))

    def _inode(self) -> int | None:
        for folder in self._folders.values():
            try:
                return os.stat(folder).st_ino  # noqa: PTH116 - a path is made once, this is asked each time
            except OSError:
                continue
        return None


def _put(into: dict[str, float], name: str, value: float | None, divisor: float = 1.0) -> None:
    if value is not None:
        into[name] = value / divisor


def _memory(look: Look, anonymous: int | None, cached: int | None, shared: int | None) -> None:
    """Shared memory counts as cache for the kernel, but cannot be dropped."""
    if anonymous is None or cached is None or shared is None or shared > cached:
        return
    look.gauges["memory_resident_bytes"] = float(anonymous + shared)
    look.gauges["page_cache_bytes"] = float(cached - shared)


def _io_v2(text: str | None) -> list[_Io] | None:
    """Give device, bytes read and written of lines ``8:0 rbytes=1 wbytes=2 …``; None where one of them is none.

    A file without lines is a group that did nothing yet, a line without these words a device that it did not use.
    """
    found: list[_Io] = []
    for line in [] if text is None else text.splitlines():
        device, _, rest = line.partition(" ")
        words = dict(word.partition("=")[::2] for word in rest.split())
        read, written = whole(words.get("rbytes", "0")), whole(words.get("wbytes", "0"))
        if read is None or written is None or not _NUMBERS.fullmatch(device):
            return None
        found.append((device, read, written))
    return None if text is None else found


def _io_v1(text: str) -> list[_Io]:
    """Give device, bytes read and written of lines ``8:0 Read 1`` and ``8:0 Write 2``."""
    found: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and (number := whole(words[2])) is not None:  # noqa: PLR2004 - device, kind, bytes
            found.setdefault(words[0], {})[words[1]] = number
    return [
        (device, kinds["Read"], kinds["Write"]) for device, kinds in found.items() if {"Read", "Write"} <= kinds.keys()
    ]
