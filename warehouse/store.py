"""The only owner of ``hot.duckdb``: opening, migrating, writing rows, handing out tables to read.

One process opens the file at a time; all others ask that process (``warehouse.client``).
"""

from __future__ import annotations

import re
import threading
import uuid
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING

import duckdb
import ibis
import pyarrow as pa

from warehouse import layout, queries
from warehouse.arrow import COLUMN_TYPES, to_arrow
from warehouse.contract.errors import StoreBusyError, StoreError
from warehouse.contract.metrics import METRIC_COLUMNS
from warehouse.contract.model import RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from warehouse.contract.wire import Table

FILE_NAME = "hot.duckdb"
FILE_FORMAT = "v1.5.0"
"""The file format that both supported DuckDB lines (1.5 and 2.0) read and write (DESIGN 5.5)."""

_HOLDER = re.compile(r"PID (\d+)")


class Store:
    """The database of one data directory. Safe to use from several threads: reads run beside one writer."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, data: Path) -> None:
        """Take over a connection whose schema is up to date; use ``open_store``."""
        self._connection = connection
        self._data = data
        self._counting = threading.Lock()
        self._writing = threading.RLock()
        self._opened = uuid.uuid4().hex
        self._writes = 0

    @contextmanager
    def snapshot(self) -> Iterator[queries.Tables]:
        """Give the tables as they stand now, hot file and lake as one; later writes do not show.

        Use and leave it: an old snapshot keeps space from being reused.
        """
        with self._cursor() as cursor:
            cursor.execute("BEGIN")
            try:
                sources = {table: self._hot_and_sealed(cursor, table) for table in queries.SAMPLE_TABLES}
                yield queries.tables(ibis.duckdb.from_connection(cursor), sources)
            finally:
                _roll_back(cursor)

    def _hot_and_sealed(self, cursor: duckdb.DuckDBPyConnection, table: str) -> str:
        """Make a view of a sample table over the hot file and its sealed days; gives the view's name."""
        rows = cursor.execute("SELECT date, generation FROM sealed_day WHERE table_name = ?", [table]).fetchall()
        files = [str(layout.part(self._data, table, day, generation)) for day, generation in rows]
        if not files:
            return table
        view = f"{table}_hot_and_sealed"
        # A column that came after a day was sealed is absent in that day, which the union by name says.
        cursor.execute(
            f'CREATE OR REPLACE TEMP VIEW {view} AS SELECT * FROM "{table}" UNION ALL BY NAME '
            f"SELECT * FROM read_parquet({layout.quoted_list(files)}, union_by_name = true, hive_partitioning = false)"
        )
        return view

    def read(self, sql: str, parameters: list[object] | None = None) -> pa.Table:
        """Run one SELECT on a cursor of its own."""
        with self._cursor() as cursor:
            return cursor.sql(sql, params=parameters or []).to_arrow_table()

    def known_records(self, format_name: str, records: pa.Table) -> set[tuple[str, int]]:
        """Give those (record_key, content_hash) of ``records`` that were loaded before from this format."""
        with self._cursor() as cursor:
            cursor.register("incoming", records)
            rows = cursor.execute(
                """
                SELECT incoming.record_key, incoming.content_hash FROM incoming SEMI JOIN import_ledger AS known
                ON known.format = ? AND known.record_key = incoming.record_key
                AND known.content_hash = incoming.content_hash
                """,
                [format_name],
            ).fetchall()
        return set(rows)

    def data_version(self) -> str:
        """Give a text that changes with every write; equal texts mean equal answers."""
        return f"{self._opened}:{self._writes}"

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Write several things together or not at all. One writer at a time; others wait.

        Raises:
            StoreError: the database refused; nothing of the transaction was kept.

        """
        with self._writing, self.long_transaction() as transaction:
            yield transaction

    @contextmanager
    def long_transaction(self) -> Iterator[Transaction]:
        """Write as in ``transaction`` while others write too: for work that takes minutes and touches old rows only.

        Raises:
            StoreError: the database refused (also when another writer touched the same rows); nothing was kept.

        """
        with self._cursor() as cursor:
            try:
                cursor.execute("BEGIN")
                yield Transaction(cursor)
                cursor.execute("COMMIT")
            except duckdb.Error as cause:
                _roll_back(cursor)
                raise StoreError(f"the store could not be written, nothing was kept: {cause}") from cause
            except BaseException:
                _roll_back(cursor)
                raise
            with self._counting:
                self._writes += 1

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        try:
            return self._connection.cursor()
        except duckdb.Error as cause:
            raise StoreError(f"the store is closed ({cause})") from cause

    def close(self) -> None:
        """Let go of the file. Waits for a running write."""
        with self._writing:
            self._connection.close()


class Transaction:
    """One open transaction on the store."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Wrap a cursor on which BEGIN has run."""
        self._cursor = cursor

    def execute(self, sql: str, parameters: list[object] | None = None) -> list[tuple[object, ...]]:
        """Run one statement and give its rows."""
        return self._cursor.execute(sql, parameters or []).fetchall()

    def execute_with(self, incoming: pa.Table, sql: str) -> list[tuple[object, ...]]:
        """Run one statement that reads the Arrow table as ``incoming``, and give its rows."""
        self._cursor.register("incoming", incoming)
        try:
            return self.execute(sql)
        finally:
            self._cursor.unregister("incoming")

    def write(self, tables: Mapping[str, Table]) -> int:
        """Add samples; add or renew keyed records. Gives the number of rows taken.

        Raises:
            BadInputError: a value has the wrong type.

        """
        return sum(self.write_arrow(name, to_arrow(name, table)) for name, table in tables.items() if table.rows)

    def write_arrow(self, name: str, rows: pa.Table) -> int:
        """Add rows of one table; rows of keyed records replace what was known, absent values keep it."""
        kind = RECORDS.get(name)
        self.execute_with(rows, _append(name, rows) if kind is None else _merge(name, kind.KEY))
        return int(rows.num_rows)

    def remember_records(self, format_name: str, records: pa.Table) -> None:
        """Remember that these records' content was loaded."""
        named = records.append_column("format", pa.repeat(pa.scalar(format_name), records.num_rows))
        self.execute_with(
            named,
            "INSERT INTO import_ledger SELECT format, record_key, content_hash, now()::TIMESTAMP FROM incoming",
        )


def open_store(data: Path, *, create: bool = False, memory_limit_bytes: int | None = None) -> Store:
    """Open the store of a data directory, bringing its schema up to date.

    Raises:
        StoreBusyError: another process owns the file.
        StoreError: there is no store and ``create`` is false, or the file cannot be opened.

    """
    path = data / FILE_NAME
    if not path.exists() and not create:
        raise StoreError(f"{data}: no store here; import something or start `trueload serve` first")
    try:
        data.mkdir(parents=True, exist_ok=True)
        connection = duckdb.connect(str(path), config=_config(data, memory_limit_bytes))
    except OSError as cause:
        raise StoreError(f"{data}: the directory cannot be made ({cause})") from cause
    except duckdb.Error as cause:
        raise _opening_error(path, cause) from cause
    try:
        connection.execute("SET TimeZone = 'UTC'")
        _migrate(connection)
    except duckdb.Error as cause:
        connection.close()
        raise StoreError(f"{path}: the schema could not be brought up to date ({cause})") from cause
    return Store(connection, data)


def _config(data: Path, memory_limit_bytes: int | None) -> dict[str, str | bool | int | float | list[str]]:
    config: dict[str, str | bool | int | float | list[str]] = {
        "storage_compatibility_version": FILE_FORMAT,
        "temp_directory": str(data / "tmp"),
        # Nothing is ever fetched from a network by the database itself.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if memory_limit_bytes is not None:
        config["memory_limit"] = f"{memory_limit_bytes}B"
    return config


def _opening_error(path: Path, cause: duckdb.Error) -> StoreError:
    text = str(cause)
    if "lock" in text.lower():
        holder = _HOLDER.search(text)
        who = f"process {holder.group(1)}" if holder else "another process"
        return StoreBusyError(f"{path}: {who} owns the store; stop it, or ask it through its server")
    return StoreError(f"{path}: cannot be opened as a store ({text.splitlines()[0]})")


def _migrate(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP)")
    done = {version for (version,) in connection.execute("SELECT version FROM schema_version").fetchall()}
    for version, script in _migrations():
        if version in done:
            continue
        connection.execute("BEGIN")
        connection.execute(script)
        connection.execute("INSERT INTO schema_version VALUES (?, now()::TIMESTAMP)", [version])
        connection.execute("COMMIT")
    for column in METRIC_COLUMNS:
        connection.execute(f"ALTER TABLE device_sample ADD COLUMN IF NOT EXISTS {column} FLOAT")


def _migrations() -> list[tuple[int, str]]:
    scripts = [entry for entry in resources.files("warehouse.schema").iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name.split("_")[0]), entry.read_text(encoding="utf-8")) for entry in scripts)


def _append(name: str, rows: pa.Table) -> str:
    names = ", ".join(f'"{column}"' for column in rows.column_names)
    return f'INSERT INTO "{name}" ({names}) SELECT {names} FROM incoming'


def _merge(name: str, key: tuple[str, ...]) -> str:
    """Build the upsert: the last incoming row of a key wins, an absent value keeps what was known."""
    every = list(COLUMN_TYPES[name])
    names = ", ".join(f'"{column}"' for column in every)
    same = " AND ".join(f'old."{column}" IS NOT DISTINCT FROM new."{column}"' for column in key)
    keys = ", ".join(f'"{column}"' for column in key)
    renew = ", ".join(f'"{column}" = coalesce(new."{column}", old."{column}")' for column in every if column not in key)
    added = ", ".join(f'new."{column}"' for column in every)
    return f"""
        MERGE INTO "{name}" AS old USING (
            SELECT {names} FROM (SELECT *, row_number() OVER () AS position FROM incoming)
            QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY position DESC) = 1
        ) AS new ON {same}
        WHEN MATCHED THEN UPDATE SET {renew}
        WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({added})
    """


def _roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error:
        # The transaction is gone already (a fatal error closes it); the first error is the one to report.
        return
