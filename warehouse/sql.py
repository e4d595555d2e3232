"""Free questions in SQL, for operators: read-only, over the documented tables, and over nothing else.

DuckDB's own parser turns the text into a tree, and every part of the tree must be on a list here: kinds of tables,
names of tables, names of functions. What is on no list is refused, so that whatever a later version can do in a SELECT
(read files, settings, secrets; draw from sequences) is refused too. The statement then runs in a read-only transaction
on a cursor of its own. Reading files cannot be switched off there as well: DuckDB knows that switch for a whole
database only, and this one reads its lake.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from warehouse.arrow import COLUMN_TYPES
from warehouse.contract.errors import BadUseError, StoreError
from warehouse.contract.wire import LEDGER_ONLY
from warehouse.patience import watched
from warehouse.sql_words import FUNCTIONS, SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warehouse.client import Document
    from warehouse.store import Store

LONGEST_CHARACTERS = 100_000
PUBLIC = frozenset(COLUMN_TYPES) - {LEDGER_ONLY} | {
    "attempt_alias",
    "batch_ledger",
    "rejected_value",
    "sealed_day",
    "rollup_1m",
    "rollup_1h",
}
"""Tables that may be asked, where the store has them: what was measured and booked; neither tokens nor tombstones."""

SIDES = ("from_table", "left", "right", "source")
"""Where a source stands in the tree. Set operations have their own sides, which are queries."""

NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of an answer; ``is_cut`` says that there are more."""

    rows: pa.Table
    is_cut: bool

    def document(self) -> Document:
        """Give it as JSON: instants as ISO 8601 texts, and what JSON does not know as text."""
        rows = [{name: _plain(value) for name, value in row.items()} for row in self.rows.to_pylist()]
        return {"columns": self.rows.column_names, "rows": rows, "cut": self.is_cut}


def ask(store: Store, statement: str, *, most_rows: int, most_seconds: float) -> Found:
    """Run one SELECT.

    Raises:
        BadUseError: it is no single SELECT over what may be asked, or DuckDB cannot make sense of it.
        StoreError: it took too long, or needed too much.

    """
    with store.cursor() as cursor, watched(cursor.interrupt):
        cursor.execute("SET python_enable_replacements = false")
        check(cursor, statement)
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        timer = threading.Timer(most_seconds, cursor.interrupt)
        timer.start()
        try:
            store.show_whole_tables(cursor)
            found = cursor.sql(statement)
            if len(set(found.columns)) < len(found.columns):
                raise BadUseError("two columns have the same name; name them with AS")
            rows = found.limit(most_rows + 1).to_arrow_table()
        except duckdb.InterruptException as cause:
            if not timer.finished.is_set():
                raise  # the caller left
            raise StoreError(f"stopped: it took longer than {most_seconds:g} s (setting sql.most_seconds)") from cause
        except duckdb.OutOfMemoryException as cause:
            raise StoreError("the statement needs more memory than there is; ask about less") from cause
        except (duckdb.Error, pa.ArrowException) as cause:
            raise BadUseError(str(cause)) from cause
        finally:
            timer.cancel()
            cursor.execute("ROLLBACK")
    return Found(rows.slice(0, most_rows), rows.num_rows > most_rows)


def check(cursor: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Refuse a statement that is not one SELECT over what may be asked.

    Raises:
        BadUseError: it is not; says why.

    """
    if len(statement) > LONGEST_CHARACTERS:
        raise BadUseError(f"at most {LONGEST_CHARACTERS} characters are taken")
    try:
        row = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement]).fetchone()
        tree = json.loads(row[0]) if row else {}
    except (duckdb.Error, ValueError, RecursionError) as cause:
        raise BadUseError(f"it cannot be parsed ({str(cause).splitlines()[0]})") from cause
    if tree.get("error", True):
        if tree.get("error_type") == "not implemented":  # DuckDB serializes nothing else
            raise BadUseError("only a SELECT is run: nothing is written, set, loaded or attached")
        raise BadUseError(str(tree.get("error_message", "it cannot be parsed")))
    if len(tree["statements"]) != 1:
        raise BadUseError("one statement at a time")
    parts = list(_parts(tree["statements"]))
    own = {str(entry["key"]).lower() for part in parts for entry in _entries(part)}
    for name in own:
        if not _NAME.fullmatch(name) or _is_known(cursor, name):
            raise BadUseError(f"WITH {name!r}: choose a plain name that no table has")
    for part in parts:
        _check_source(part, own)
        _check_function(part)


def _parts(tree: object) -> Iterator[dict[str, object]]:
    """Give every object of the tree, without recursion: a hostile tree is deep."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _entries(part: dict[str, object]) -> list[dict[str, object]]:
    ctes = part.get("cte_map")
    entries = ctes.get("map") if isinstance(ctes, dict) else None
    return entries if isinstance(entries, list) else []


def _is_known(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    found = cursor.execute(
        "SELECT 1 FROM (SELECT table_name AS name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views()) "
        "WHERE lower(name) = ?",
        [name],
    )
    return found.fetchone() is not None


def _check_source(part: dict[str, object], own: set[str]) -> None:
    """Check what an object of the tree names after FROM: in ``from_table``, or on a side of a join."""
    for source in (part.get(key) for key in SIDES):
        # Comparisons have sides, too: they are expressions, which have a class.
        if isinstance(source, dict) and "class" not in source and source.get("type") not in SOURCES | NODES:
            raise BadUseError(f"{str(source.get('type'))[:100]}: not allowed here")
    if "table_name" not in part or "column_names" in part:
        return
    name, path = str(part["table_name"]), part.get("qualified_name")
    names = path.get("path") if isinstance(path, dict) else None
    if part.get("type") != "BASE_TABLE":
        raise BadUseError(f"{str(part.get('type'))[:100]}: not allowed here")
    if part.get("schema_name") or part.get("catalog_name") or (isinstance(names, list) and len(names) > 1):
        raise BadUseError(f"{name[:100]}: name the table alone, without schema or database")
    if part.get("at_clause") or name.lower() not in PUBLIC | own:
        raise BadUseError(f"no table {name[:100]!r} to ask; there are {', '.join(sorted(PUBLIC))}")


def _check_function(part: dict[str, object]) -> None:
    name = part.get("function_name")
    if name is None:
        return
    home = (part.get("schema") or "main", part.get("catalog") or "system")
    if not isinstance(name, str) or name.lower() not in FUNCTIONS or home != ("main", "system"):
        raise BadUseError(f"function {str(name)[:100]!r} is not allowed here")


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124 - not a number
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case _ if hasattr(value, "isoformat"):
            return value.isoformat() + ("Z" if hasattr(value, "hour") and hasattr(value, "year") else "")
        case _:
            return str(value)
