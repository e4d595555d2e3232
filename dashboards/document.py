"""Reading documents: answers are JSON, so each value is looked at before it is used.

What is missing, null or of another kind is None (or empty); a page then shows ``—`` and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Row: TypeAlias = Mapping[str, object]


def number(row: Row, key: str) -> float | None:
    """Give a number."""
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def text(row: Row, key: str) -> str | None:
    """Give a text that is not empty."""
    value = row.get(key)
    return value if isinstance(value, str) and value else None


def part(row: Row, key: str) -> Row:
    """Give an object within; empty when there is none."""
    value = row.get(key)
    return value if isinstance(value, Mapping) else {}


def rows(row: Row, key: str) -> list[Row]:
    """Give a list of objects; empty when there is none."""
    value = row.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []


def texts(row: Row, key: str) -> list[str]:
    """Give a list of texts; empty when there is none."""
    value = row.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []


def seconds(row: Row, key: str) -> float | None:
    """Give one figure of the row's account of GPU time, in GPU-seconds."""
    return number(part(row, "gpu_seconds"), key)
