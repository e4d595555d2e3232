"""A database file with damaged blocks: set aside, and what can be read of it brought over into a new one.

DuckDB opens a file with a damaged block and fails whenever something touches it: one question, or, where the block
belongs to the ledger's index, every batch. Such a file would end or stop a server again and again. So the first such
error is noted beside the file, and the next start with ``recover`` sets the file aside under another name and copies
table by table, row group by row group, what its checksums vouch for. Nothing is deleted.

Where rows of a ledger are lost, batches and files that come again could not be told from new ones. Then the ledgers and
the rows that could be doubled (samples) are left out as a whole: agents send again what they still hold.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import duckdb

from warehouse import layout, queries
from warehouse.contract.errors import StoreError
from warehouse.lake import replace_durably
from warehouse.recovery import set_aside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG = logging.getLogger("trueload.salvage")
NOTE: Final = "damaged.json"
ALIAS: Final = "damaged"
LEDGERS: Final = ("batch_ledger", "import_ledger")
WHOLE: Final = ("sealed_day",)
"""Tables that are of use only as a whole; the lake's manifest brings this one back (``comeback.restore``)."""

OWN: Final = ("schema_version", "committed")
"""Tables that a new file has by itself."""

ROW_GROUP: Final = 122_880
"""Rows that DuckDB keeps together, and reads or skips together (its documentation, "Row Groups")."""

_CHECKSUM = re.compile(r"Corrupt database file: computed checksum \d+ does not match stored checksum \d+")


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of one table."""

    table: str
    kept: int
    lost: int


def damage_in(error: BaseException) -> str | None:
    """Give what an error, or what caused it, says of a damaged block; None where it speaks of something else."""
    seen: BaseException | None = error
    while seen is not None:
        found = _CHECKSUM.search(str(seen)) if isinstance(seen, duckdb.Error) else None
        if found is not None:
            return found.group()
        seen = seen.__cause__ or seen.__context__
    return None


def note(data: Path, what: str, source: Path | None = None) -> None:
    """Have the next start with ``recover`` bring over what can be read; ``source`` is the file once it is set aside."""
    replace_durably(data / NOTE, json.dumps({"what": what, "source": None if source is None else source.name}))


def take_aside(path: Path) -> Path | None:
    """Set a database file aside that was noted as damaged; gives what to read from, or None where none was noted.

    Raises:
        StoreError: the note cannot be read.

    """
    data = path.parent
    log_file = path.with_name(f"{path.name}.wal")
    try:
        noted = json.loads((data / NOTE).read_text(encoding="utf-8"))
        what, name = str(noted["what"]), noted["source"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise StoreError(f"{data / NOTE}: cannot be read ({cause}); remove it and start again") from cause
    if name is not None:  # an earlier start was interrupted: what it had copied is copied again
        path.unlink(missing_ok=True)
        log_file.unlink(missing_ok=True)
        return data / str(name)
    moved = set_aside(path)
    if not moved:
        (data / NOTE).unlink()
        return None
    if log_file.exists():
        log_file.rename(moved[0].with_name(f"{moved[0].name}.wal"))  # so that it is read with the file
    note(data, what, moved[0])
    LOG.critical("%s: has damaged blocks (%s). Set aside as %s; what can be read of it is copied", path, what, moved[0])
    return moved[0]


def bring_over(connection: duckdb.DuckDBPyConnection, data: Path, source: Path, last_commit: int) -> list[Copied]:
    """Copy what can be read of a file that was set aside into a new one with the present schema.

    ``last_commit`` is the number of the last commit as known outside the database.
    """
    try:
        connection.execute(f"ATTACH {layout.quoted(source)} AS {ALIAS} (READ_ONLY)")
    except duckdb.Error:
        LOG.exception("%s: nothing of it can be read; agents send again what they still hold", source)
        (data / NOTE).unlink()
        return []
    try:
        _go_on_counting(connection, last_commit)
        copied = list(_copy_all(connection))
    finally:
        connection.execute(f"DETACH {ALIAS}")
    for item in copied:
        if item.lost:
            LOG.error("%s: %d rows of table %s are lost, %d were kept", source, item.lost, item.table, item.kept)
    LOG.critical("%s: %d rows were copied, %d are lost", source, *(sum(n) for n in zip(*_counts(copied), strict=True)))
    (data / NOTE).unlink()
    return copied


def _counts(copied: list[Copied]) -> list[tuple[int, int]]:
    return [(item.kept, item.lost) for item in copied] or [(0, 0)]


def _go_on_counting(connection: duckdb.DuckDBPyConnection, last_commit: int) -> None:
    """Have commits numbered on from the old file's last, so that a loss of its log shows as ever."""
    try:
        known = connection.execute(f"SELECT max(number) FROM {ALIAS}.main.committed").fetchone()
    except duckdb.Error:
        known = None
    number = last_commit if known is None or known[0] is None else int(known[0])
    connection.execute(f"CREATE OR REPLACE SEQUENCE commit_number START {number + 1}")
    connection.execute("INSERT INTO committed (number) VALUES (?)", [number])


def _copy_all(connection: duckdb.DuckDBPyConnection) -> Iterator[Copied]:
    tables = [table for table in _tables(connection) if table not in OWN]
    ledgers = [_copy(connection, table) for table in tables if table in LEDGERS]
    is_complete = not any(item.lost for item in ledgers)
    yield from ledgers if is_complete else (_leave_out(connection, item.table) for item in ledgers)
    for table in tables:
        if table not in LEDGERS:
            can_double = table in queries.SAMPLE_TABLES
            copied = _copy(connection, table) if is_complete or not can_double else _leave_out(connection, table)
            yield _leave_out(connection, table) if copied.lost and table in WHOLE else copied


def _copy(connection: duckdb.DuckDBPyConnection, table: str) -> Copied:
    total = _count(connection, table)
    columns = ", ".join(f'"{column}"' for column in _columns(connection, table))
    query = f'INSERT INTO "{table}" ({columns}) SELECT {columns} FROM {ALIAS}.main."{table}"'
    if _copies(connection, query):
        return Copied(table, total, 0)
    for first in range(0, total, ROW_GROUP):
        _copies(connection, f"{query} WHERE rowid >= {first} AND rowid < {first + ROW_GROUP}")
    row = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
    kept = 0 if row is None else int(row[0])
    return Copied(table, kept, total - kept)


def _copies(connection: duckdb.DuckDBPyConnection, query: str) -> bool:
    try:
        connection.execute(query)
    except duckdb.Error as error:
        if damage_in(error) is None:
            raise
        return False
    return True


def _leave_out(connection: duckdb.DuckDBPyConnection, table: str) -> Copied:
    connection.execute(f'DELETE FROM "{table}"')
    return Copied(table, 0, _count(connection, table))


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    row = connection.execute(f'SELECT count(*) FROM {ALIAS}.main."{table}"').fetchone()
    return 0 if row is None else int(row[0])


def _tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Give the tables that both files have."""
    rows = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND NOT temporary AND schema_name = 'main' "
        f"AND database_name IN (current_database(), '{ALIAS}') GROUP BY 1 HAVING count(*) = 2 ORDER BY 1"
    ).fetchall()
    return [str(name) for (name,) in rows]


def _columns(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Give the columns that the table has in both files."""
    rows = connection.execute(
        "SELECT column_name FROM duckdb_columns() WHERE table_name = ? AND schema_name = 'main' "
        f"AND database_name IN (current_database(), '{ALIAS}') GROUP BY 1 HAVING count(*) = 2 ORDER BY 1",
        [table],
    ).fetchall()
    return [str(name) for (name,) in rows]
