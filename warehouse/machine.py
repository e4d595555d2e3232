"""How much memory this process may have: the machine's, or less where a control group says so (a container's limit)."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
LIMIT_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""Of cgroup v2 and v1, as a container sees its own group."""


def memory_bytes(root: Path = CGROUP_ROOT) -> int:
    """Give the memory of the machine, or the limit of the control group at ``root`` if that is less.

    In a container the kernel tells the whole machine's memory; who took its share of that would be killed for it.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [limit for name in LIMIT_FILES if (limit := _limit(root / name)) is not None]
    return min([machine, *limits])


def _limit(path: Path) -> int | None:
    """Read a limit; None: there is no such file, or it says ``max``."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
