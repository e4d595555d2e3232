"""Where things lie in a data directory's lake, and how their paths are written into SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

FOLDER = "lake"
MANIFEST = "manifest.json"
PART = "part-0.parquet"


def part(data: Path, table: str, day: date, generation: int) -> Path:
    """Give the file of one generation of a sealed day."""
    return data / FOLDER / table / f"date={day.isoformat()}" / f"gen={generation}" / PART


def quoted(path: Path | str) -> str:
    """Give a path as an SQL text literal."""
    return "'" + str(path).replace("'", "''") + "'"


def read(*files: Path | str) -> str:
    """Give the SQL that reads files of the lake: columns by name, and none made up from folder names."""
    listed = ", ".join(map(quoted, files))
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
