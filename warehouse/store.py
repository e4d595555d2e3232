"""The only owner of ``hot.duckdb``: opening, migrating, writing rows, handing out tables to read.

One process opens the file at a time; all others ask that process (``warehouse.client``).
"""

from __future__ import annotations

import logging
import threading
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from warehouse import aliases, due, layout, opening, queries, salvage, tombstones
from warehouse.arrow import COLUMN_TYPES, to_arrow
from warehouse.contract.errors import StoreError
from warehouse.contract.model import RECORDS
from warehouse.freshness import Freshness
from warehouse.opening import TALLIED, first_value, hot_rows
from warehouse.patience import watched
from warehouse.recovery import CommitCounter
from warehouse.sight import View
from warehouse.viewer import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from warehouse.contract.wire import Table
    from warehouse.viewer import Viewer

DATABASE = "hot"
FILE_NAME = f"{DATABASE}.duckdb"

TAKE_NUMBER = "INSERT INTO committed SELECT nextval('commit_number'), ? RETURNING number"

MANY_ROWS = 5_000
"""From this many rows on it is worth asking first whether any of them has to be merged."""

LOG = logging.getLogger("trueload.store")


class Store:
    """The database of one data directory. Safe to use from several threads: reads run beside one writer."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, data: Path, counter: CommitCounter) -> None:
        """Take over a connection whose schema is up to date; use ``open_store``."""
        self._connection = connection
        self._data = data
        self._counter = counter
        self._counting = threading.Lock()
        self._writing = threading.RLock()
        self.housekeeping = threading.RLock()
        """Held by whoever makes or removes files of the lake, or needs them all to stay."""
        self._opened = uuid.uuid4().hex
        self._keyed: Mapping[str, list[str]] = {}
        self.freshness = Freshness()
        self.missing: frozenset[Path] = frozenset()
        """Files of sealed days that were not there, or not whole, when the store was opened: reading does without."""
        self.damage: str | None = None
        """What DuckDB said of a damaged block of the file, since it was opened."""

    @property
    def data(self) -> Path:
        """Give the data directory."""
        return self._data

    def seen_by(self, viewer: Viewer) -> View:
        """Give the store as somebody may see it: for one asking."""
        return View(self, viewer)

    def snapshot(self) -> AbstractContextManager[queries.Tables]:
        """Give all tables as they stand now; see ``View.snapshot``."""
        return self.seen_by(OPERATOR).snapshot()

    def fleet_version(self) -> str:
        """Give the data version; who opens the store sees everything."""
        return self.data_version()

    @contextmanager
    def reading(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, Mapping[str, str]]]:
        """Give a cursor that sees the store as it stands now, and the view to read instead of each sample table."""
        with self.cursor() as cursor, watched(cursor.interrupt):
            cursor.execute("BEGIN")
            try:
                yield cursor, self._sources(cursor)
            except duckdb.Error as error:
                self._notice(error)
                raise
            finally:
                _roll_back(cursor)

    def _sources(self, cursor: duckdb.DuckDBPyConnection) -> dict[str, str]:
        """Give the view to read instead of a table, where one is needed.

        Samples lie partly in the lake, and what nodes call attempts is read as the attempts' own keys.
        """
        sources = {table: self._hot_and_sealed(cursor, table) for table in queries.SAMPLE_TABLES}
        [(known, timed)] = cursor.execute(aliases.COUNTS).fetchall()  # one row left unread would hold the cursor
        if not known:
            return sources
        for table, columns in self._naming(cursor).items():
            source = sources.get(table, table)
            source = f'{DATABASE}.main."{table}"' if source == table else source
            query = aliases.naming(table, columns, source, timed=timed > 0)
            cursor.execute(f"CREATE OR REPLACE TEMP VIEW named_{table} AS {query}")
            sources[table] = f"named_{table}"
        return sources

    def _naming(self, cursor: duckdb.DuckDBPyConnection) -> Mapping[str, list[str]]:
        """Give the tables that name attempts, with their columns: settled once the schema is up to date."""
        if not self._keyed:
            columns = {
                table: [str(row[0]) for row in cursor.execute(f'DESCRIBE {DATABASE}.main."{table}"').fetchall()]
                for table in queries.TABLE_NAMES
                if table != "attempt"
            }
            self._keyed = {table: names for table, names in columns.items() if "attempt_key" in names}
        return self._keyed

    def take_note_of_node_keys(self) -> None:
        """Find the node keys of all rows and what they mean, where that is not known from their arrival."""
        with self.transaction() as transaction, self.cursor() as cursor:
            for table in self._naming(cursor):
                view = self._hot_and_sealed(cursor, table) if table in queries.SAMPLE_TABLES else table
                aliases.take(transaction, cursor.sql(f'SELECT DISTINCT attempt_key FROM "{view}"').to_arrow_table())
            aliases.settle(transaction)

    def _hot_and_sealed(self, cursor: duckdb.DuckDBPyConnection, table: str) -> str:
        """Make a view of a sample table over the hot file and its sealed days; gives the view's name."""
        rows = cursor.execute("SELECT date, generation FROM sealed_day WHERE table_name = ?", [table]).fetchall()
        files = [layout.part(self._data, table, day, generation) for day, generation in rows]
        files = [file for file in files if file not in self.missing]
        if not files:
            return table
        view = f"{table}_hot_and_sealed"
        # A column that came after a day was sealed is absent in that day, which the union by name says.
        cursor.execute(
            f'CREATE OR REPLACE TEMP VIEW {view} AS SELECT * FROM {DATABASE}.main."{table}" UNION ALL BY NAME '
            f"SELECT * FROM {layout.read(*files)}"
        )
        return view

    def look_for_files(self) -> None:
        """Hold what the store knows of sealed days against the files of the lake, and say loudly what is missing."""
        known = "SELECT table_name, date, generation, row_count, file_bytes FROM sealed_day ORDER BY 1, 2"
        missing: dict[Path, int] = {}
        for table, day, generation, rows, size in (tuple(row.values()) for row in self.read(known).to_pylist()):
            file = layout.part(self._data, table, day, generation)
            try:
                found = file.stat().st_size
            except OSError:
                found = -1
            if found != size:
                missing[file] = rows
                LOG.critical(
                    "%s: %s; %d rows of %s are not seen until it is back (from a backup) and the server started again",
                    file,
                    "is not there" if found < 0 else f"has {found} bytes and not {size}",
                    rows,
                    day,
                )
        self.missing = frozenset(missing)

    def show_whole_tables(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Have the name of each table mean, on this cursor, all its rows, with the attempts' own keys."""
        for table, view in self._sources(cursor).items():
            if view != table:
                cursor.execute(f'CREATE OR REPLACE TEMP VIEW "{table}" AS SELECT * FROM {view}')

    def read(self, sql: str, parameters: list[object] | None = None) -> pa.Table:
        """Run one SELECT on a cursor of its own."""
        with self.cursor() as cursor:
            try:
                return cursor.sql(sql, params=parameters or []).to_arrow_table()
            except duckdb.Error as error:
                self._notice(error)
                raise

    def known_records(self, format_name: str, records: pa.Table) -> set[tuple[str, int]]:
        """Give those (record_key, content_hash) of ``records`` that were loaded before from this format."""
        with self.cursor() as cursor:
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
        """Give a text that changes with every write, with batches after a moment; equal texts mean equal answers."""
        return f"{self._opened}:{self.freshness.number()}"

    def worked(self, seconds: float) -> None:
        """See ``Shelf.worked``."""
        self.freshness.worked(seconds)

    @contextmanager
    def transaction(self, *, at_once: bool = True) -> Iterator[Transaction]:
        """Write several things together or not at all. One writer at a time; others wait.

        ``at_once``: answers show it from now on, else within a moment (``warehouse.freshness``).

        Raises:
            StoreError: the database refused; nothing of the transaction was kept.

        """
        with self._writing, self.long_transaction(at_once=at_once) as transaction:
            yield transaction

    @contextmanager
    def long_transaction(self, *, at_once: bool = True) -> Iterator[Transaction]:
        """Write as in ``transaction`` while others write too: for work that takes minutes and touches old rows only.

        Raises:
            StoreError: the database refused (also when another writer touched the same rows); nothing was kept.

        """
        with self.cursor() as cursor:
            try:
                cursor.execute("BEGIN")
                transaction = Transaction(cursor)
                before = hot_rows(cursor) if at_once else 0
                yield transaction
                # Batches do nothing but add; whatever else writes is counted.
                change = hot_rows(cursor) - before if at_once else transaction.added_rows
                number = first_value(cursor.execute(TAKE_NUMBER, [change]))
                cursor.execute("COMMIT")
            except duckdb.Error as cause:
                _roll_back(cursor)
                self._notice(cause)
                raise StoreError(f"the store could not be written, nothing was kept: {cause}") from cause
            except BaseException:
                _roll_back(cursor)
                raise
            with self._counting:
                self._counter.advance(number)
                self.freshness.wrote(at_once=at_once)

    def _notice(self, error: duckdb.Error) -> None:
        """Note where an error tells of a damaged block, so that the next server brings over what can be read."""
        what = salvage.damage_in(error)
        if what is None or self.damage is not None:
            return
        self.damage = what
        LOG.critical("%s: has damaged blocks (%s); the next server copies what can be read", self._data, what)
        try:
            salvage.note(self._data, what)
        except OSError:
            LOG.exception("%s: has damaged blocks, which could not be noted", self._data)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Give a cursor of its own to modules of this room; close it after use."""
        try:
            return self._connection.cursor()
        except duckdb.Error as cause:
            raise StoreError(f"the store is closed ({cause})") from cause

    def close(self) -> None:
        """Let go of the file. Waits for a running write."""
        with self._writing:
            try:
                self._connection.close()
            finally:
                self._counter.close()


class Transaction:
    """One open transaction on the store."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Wrap a cursor on which BEGIN has run."""
        self._cursor = cursor
        self.added_rows = 0
        """Rows that were added to tables whose rows are counted (``opening.TALLIED``)."""

    def execute(self, sql: str, parameters: list[object] | None = None) -> list[tuple[object, ...]]:
        """Run one statement and give its rows."""
        return self._cursor.execute(sql, parameters or []).fetchall()

    def execute_with(self, incoming: pa.Table, sql: str) -> list[tuple[object, ...]]:
        """Run one statement that reads the Arrow table as ``incoming``, and give its rows."""
        self._cursor.register("incoming", incoming)
        try:
            return self.execute(sql)
        finally:
            with suppress(duckdb.Error):  # after an error nothing more can be done here, and the first one tells
                self._cursor.unregister("incoming")

    def write(self, tables: Mapping[str, Table]) -> int:
        """Add samples; add or renew keyed records. Gives the number of rows taken.

        Raises:
            BadInputError: a value has the wrong type.

        """
        names = tombstones.in_order(tables)
        return sum(self.write_arrow(name, to_arrow(name, tables[name])) for name in names if tables[name].rows)

    def write_arrow(self, name: str, rows: pa.Table) -> int:
        """Add rows of one table; rows of keyed records replace what was known, absent values keep it.

        Rows that were deleted on request stay out; write tables ``tombstones.in_order``. Gives the number of rows
        that were given.
        """
        given, rows = rows.num_rows, tombstones.wanted(self, name, rows)
        kind = RECORDS.get(name)
        is_added = kind is None or (rows.num_rows >= MANY_ROWS and self._are_all_new(name, kind.KEY, rows))
        self.execute_with(rows, _append(name, rows) if kind is None or is_added else _merge(name, kind.KEY))
        self.added_rows += rows.num_rows if name in TALLIED else 0
        aliases.follow(self, name, rows)
        if name == due.SAMPLES:
            due.note(self, rows)
        return int(given)

    def _are_all_new(self, name: str, key: tuple[str, ...], rows: pa.Table) -> bool:
        """Say whether no key of the rows stands in the table or twice in the rows: then nothing has to be merged."""
        keys = ", ".join(f'"{column}"' for column in key)
        same = " AND ".join(f'old."{column}" IS NOT DISTINCT FROM incoming."{column}"' for column in key)
        [(old, distinct)] = self.execute_with(
            rows.select(list(key)),
            f"""
            SELECT (SELECT count(*) FROM "{name}" AS old SEMI JOIN incoming ON {same}),
                   (SELECT count(*) FROM (SELECT DISTINCT {keys} FROM incoming))
            """,
        )
        return (old, distinct) == (0, rows.num_rows)

    def new_records(self, format_name: str, records: pa.Table) -> pa.Array:
        """Give the positions of those records of a foreign format that were never loaded, in order, each once."""
        numbered = records.append_column("position", pa.array(range(records.num_rows), pa.int64()))
        self._cursor.register("incoming", numbered)
        try:
            found = self._cursor.sql(
                """
                SELECT min(position) AS position FROM incoming ANTI JOIN import_ledger AS known
                ON known.format = ? AND known.record_key = incoming.record_key
                AND known.content_hash = incoming.content_hash
                GROUP BY record_key, incoming.content_hash ORDER BY position
                """,
                params=[format_name],
            )
            return found.to_arrow_table()["position"].combine_chunks()
        finally:
            self._cursor.unregister("incoming")

    def remember_records(self, format_name: str, records: pa.Table) -> None:
        """Remember that these records' content was loaded."""
        named = records.append_column("format", pa.repeat(pa.scalar(format_name), records.num_rows))
        self.execute_with(
            named,
            "INSERT INTO import_ledger SELECT format, record_key, content_hash, now()::TIMESTAMP FROM incoming",
        )


def open_store(
    data: Path, *, create: bool = False, memory_limit_bytes: int | None = None, recover: bool = False
) -> Store:
    """Open the store of a data directory, bringing its schema up to date.

    With ``recover`` a damaged file is set aside with a loud message and the store starts from what is left, which is
    what a server must do; without it the damage is an error.

    Raises:
        StoreBusyError: another process owns the file.
        StoreError: there is no store and ``create`` is false, or the file cannot be opened.

    """
    path = data / FILE_NAME
    if not path.exists() and not create:
        raise StoreError(f"{data}: no store here; import something or start `trueload serve` first")
    try:
        data.mkdir(parents=True, exist_ok=True)
        counter = CommitCounter(data)
    except OSError as cause:
        raise StoreError(f"{data}: the directory cannot be used ({cause})") from cause
    try:
        source = salvage.take_aside(path) if recover else None
        connection = opening.connect(path, opening.config(data, memory_limit_bytes), recover=recover)
    except (StoreError, OSError) as cause:
        counter.close()
        raise cause if isinstance(cause, StoreError) else StoreError(f"{path}: cannot be used ({cause})") from cause
    try:
        connection.execute("SET TimeZone = 'UTC'")
        is_older = opening.migrate(connection)
        if source is not None:
            salvage.bring_over(connection, data, source, counter.read())
        opening.reveal_lost_commits(connection, counter, path)
    except (duckdb.Error, StoreError, OSError) as cause:
        connection.close()
        counter.close()
        what = salvage.damage_in(cause)
        if recover and source is None and what is not None:
            salvage.note(data, what)
            return open_store(data, create=create, memory_limit_bytes=memory_limit_bytes, recover=True)
        message = f"{path}: the schema could not be brought up to date ({cause})"
        raise cause if isinstance(cause, StoreError) else StoreError(message) from cause
    store = Store(connection, data, counter)
    try:
        store.look_for_files()
        if is_older:
            store.take_note_of_node_keys()
    except duckdb.Error as cause:  # noted by then where it tells of damage
        store.close()
        if recover and source is None and store.damage is not None:
            return open_store(data, create=create, memory_limit_bytes=memory_limit_bytes, recover=True)
        raise StoreError(f"{path}: cannot be read ({str(cause).splitlines()[0]})") from cause
    return store


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
