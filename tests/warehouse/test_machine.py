"""The memory that a server counts on is its container's, where that is less than the machine's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warehouse.machine import memory_bytes

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
NO_LIMIT_V1 = "9223372036854771712"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("memory.max", "1073741824\n", 1073741824),
        ("memory.max", "max\n", MACHINE),
        ("memory/memory.limit_in_bytes", "536870912\n", 536870912),
        ("memory/memory.limit_in_bytes", NO_LIMIT_V1, MACHINE),
        ("memory.max", "", MACHINE),
    ],
)
def test_the_limit_of_a_control_group_counts_where_it_is_less(
    tmp_path: Path, name: str, content: str, expected: int
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    assert memory_bytes(tmp_path) == expected


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path) == MACHINE
