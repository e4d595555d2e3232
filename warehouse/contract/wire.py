"""What agents, collectors and importers send: gzip'd columnar JSON.

A batch is ``{"version", "agent", "boot_id", "sequence", "part", "sent_at", "tables"}``; a table is
``{"rows": N, "columns": {name: [values] | value}}``, where a bare value stands for N equal ones. Columns that a
receiver does not know are an error, columns left out are absent values. Numbers are rounded by the sender.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter

from warehouse.contract import model
from warehouse.contract.errors import BadInputError
from warehouse.contract.metrics import METRIC_COLUMNS

VERSION = 1
MAX_COMPRESSED_BYTES = 16 * 1024**2
MAX_PLAIN_BYTES = 256 * 1024**2
MAX_ROWS = 1_000_000
"""Rows of a table. One value may stand for all rows: without a limit a short body could ask for any memory."""

LEDGER_ONLY = "import_record"
"""A table that travels with imported rows and names the records they came from; it has no table in the store."""

Value = str | int | float | bool | None
Column = Sequence[Value] | Value

TABLE_COLUMNS: dict[str, tuple[str, ...]] = {
    **{name: model.columns(kind) for name, kind in model.RECORDS.items()},
    **{name: model.columns(kind) for name, kind in model.SAMPLES.items()},
    "device_sample": (*model.SAMPLE_COLUMNS, *METRIC_COLUMNS),
    LEDGER_ONLY: ("record_key", "content_hash"),
}
"""Every table that may travel, with its columns."""


@dataclass(frozen=True, slots=True)
class Table:
    """Some rows by column. A column is a list of ``rows`` values, or one value for all rows."""

    rows: int
    columns: Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one sender ships at once. (agent, boot_id, sequence, part) names it for ever; sending again is safe."""

    agent: str
    boot_id: str
    sequence: int
    sent_at: float
    tables: Mapping[str, Table]
    part: int = 0
    version: int = field(default=VERSION)

    @property
    def rows(self) -> int:
        """Give the number of rows over all tables."""
        return sum(table.rows for table in self.tables.values())

    @property
    def nodes(self) -> set[str]:
        """Give the nodes that any row speaks of."""
        columns = [table.columns.get("node") for table in self.tables.values() if table.rows]
        given = [value for column in columns for value in (column if isinstance(column, list) else [column])]
        return {value for value in given if isinstance(value, str)}


def from_records(records: Iterable[model.Record | model.Sample]) -> dict[str, Table]:
    """Turn records into tables, one per kind, rows in the given order."""
    by_kind: dict[type[model.Record | model.Sample], list[model.Record | model.Sample]] = {}
    for record in records:
        by_kind.setdefault(type(record), []).append(record)
    return {kind.TABLE: _turned(model.columns(kind), rows) for kind, rows in by_kind.items()}


def _turned(names: tuple[str, ...], rows: Sequence[object]) -> Table:
    values = zip(*map(attrgetter(*names), rows), strict=True)
    return Table(len(rows), {name: list(column) for name, column in zip(names, values, strict=True)})


def halves(batch: Batch) -> tuple[dict[str, Table], dict[str, Table]] | None:
    """Cut the rows of a batch in two, in the middle of all rows; None when there is one row or none."""
    half = sum(table.rows for table in batch.tables.values()) // 2
    if half == 0:
        return None
    first: dict[str, Table] = {}
    second: dict[str, Table] = {}
    for name, table in batch.tables.items():
        cut = min(half, table.rows)
        half -= cut
        for target, begin, end in ((first, 0, cut), (second, cut, table.rows)):
            if end > begin:
                columns = {key: _cut(column, begin, end) for key, column in table.columns.items()}
                target[name] = Table(end - begin, columns)
    return first, second


def _cut(column: Column, begin: int, end: int) -> Column:
    """Give a column's values from ``begin`` to ``end``; a bare value stands for any number of them."""
    return column[begin:end] if isinstance(column, Sequence) and not isinstance(column, str) else column


def stacked(tables: Sequence[Table]) -> Table:
    """Put tables of one kind under each other, in the given order."""
    names = dict.fromkeys(name for table in tables for name in table.columns)
    return Table(sum(table.rows for table in tables), {name: _stacked(name, tables) for name in names})


def _stacked(name: str, tables: Sequence[Table]) -> Column:
    given = [table.columns.get(name) for table in tables]
    first = given[0]
    if not isinstance(first, list) and all(type(values) is type(first) and values == first for values in given):
        return first
    column: list[Value] = []
    for values, table in zip(given, tables, strict=True):
        column += values if isinstance(values, list) else repeat(values, table.rows)  # type: ignore[arg-type]
    return column


def encode(batch: Batch, level: int = 6) -> bytes:
    """Give the gzip'd JSON of a batch. ``level`` is gzip's, 1 (fast) to 9 (small)."""
    document = {
        "version": batch.version,
        "agent": batch.agent,
        "boot_id": batch.boot_id,
        "sequence": batch.sequence,
        "part": batch.part,
        "sent_at": batch.sent_at,
        "tables": {name: {"rows": table.rows, "columns": dict(table.columns)} for name, table in batch.tables.items()},
    }
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), compresslevel=level, mtime=0)


def decode(body: bytes, loads: Callable[[bytes], object] = json.loads, origin: str = "batch") -> Batch:
    """Read a batch, treating it as hostile.

    ``loads`` may be a faster JSON reader; ``origin`` names the sender in errors.

    Raises:
        BadInputError: too big, not gzip'd JSON, a wrong version, an unknown table or column, lengths that differ.

    """
    try:
        document = loads(inflate(body, origin))
    except (ValueError, RecursionError) as cause:
        raise BadInputError(origin, None, f"not JSON ({cause})") from cause
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise BadInputError(origin, "version", f"expected a batch of version {VERSION}")
    tables = document.get("tables")
    if not isinstance(tables, dict):
        raise BadInputError(origin, "tables", "expected an object")
    return Batch(
        agent=_text(document, "agent", origin),
        boot_id=_text(document, "boot_id", origin),
        sequence=_whole(document, "sequence", origin),
        part=_whole(document, "part", origin),
        sent_at=_number(document, "sent_at", origin),
        tables={name: _table(name, table, origin) for name, table in tables.items()},
    )


def inflate(body: bytes, origin: str) -> bytes:
    """Unpack gzip within the size limits, before and after."""
    if len(body) > MAX_COMPRESSED_BYTES:
        raise BadInputError(origin, None, f"{len(body)} bytes, at most {MAX_COMPRESSED_BYTES} are taken: send parts")
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plain = unpacker.decompress(body, MAX_PLAIN_BYTES)
    except zlib.error as cause:
        raise BadInputError(origin, None, f"not gzip ({cause})") from cause
    if not unpacker.eof:
        raise BadInputError(origin, None, f"gzip is cut short or holds more than {MAX_PLAIN_BYTES} bytes")
    return plain


def _table(name: str, raw: object, origin: str) -> Table:
    known = TABLE_COLUMNS.get(name)
    if known is None:
        raise BadInputError(origin, f"table {name!r}", "unknown table")
    if not isinstance(raw, dict) or not isinstance(raw.get("columns"), dict):
        raise BadInputError(origin, f"table {name!r}", "expected rows and columns")
    rows = _whole(raw, "rows", origin)
    if rows > MAX_ROWS:
        raise BadInputError(origin, f"table {name!r}", f"{rows} rows, at most {MAX_ROWS} are taken: send parts")
    for column, values in raw["columns"].items():
        if column not in known:
            raise BadInputError(origin, f"{name}.{column}"[:200], "unknown column")
        if isinstance(values, str) and len(values) * rows > MAX_PLAIN_BYTES:
            raise BadInputError(
                origin, f"{name}.{column}", f"its text {rows} times is more than {MAX_PLAIN_BYTES} bytes"
            )
        if isinstance(values, dict) or (isinstance(values, list) and len(values) != rows):
            raise BadInputError(origin, f"{name}.{column}", f"expected {rows} values, or one value for all rows")
    return Table(rows, raw["columns"])


def _text(document: Mapping[str, object], key: str, origin: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= 200:  # noqa: PLR2004 - a name, not a text
        raise BadInputError(origin, key, "expected a text of 1 to 200 characters")
    return value


def _whole(document: Mapping[str, object], key: str, origin: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise BadInputError(origin, key, "expected a whole number from 0 on")
    return value


def _number(document: Mapping[str, object], key: str, origin: str) -> float:
    value = document.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise BadInputError(origin, key, "expected a number")
    return float(value)
