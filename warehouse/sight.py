"""What a person may see of the store, settled where it is read: no answer can tell what its tables do not hold.

A viewer is an operator, who sees everything, or a person who sees the own jobs and those of the accounts that he or
she leads. For the latter each table of a snapshot is a view:

* jobs, attempts, steps, summaries, profiles and samples: those of the visible jobs, and no others;
* allocations: those too, and beside them, without key, owner or node, the stretches in which somebody else held the
  same device at the same time; without them the shares of one device could not be settled;
* events: those of visible attempts whole, those of nodes and devices without their detail, none of other attempts;
* nodes and devices: all; the inventory is no secret.

A table that nobody has said this of, and that has neither an attempt nor a job, is empty.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import ibis

from warehouse import queries
from warehouse.due import rolled_hours

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    import duckdb

    from warehouse.viewer import Viewer

OPEN_TABLES = frozenset({"node", "device"})
"""The inventory of the cluster."""


class Shelf(Protocol):
    """What a view needs of the store."""

    def reading(self) -> AbstractContextManager[tuple[duckdb.DuckDBPyConnection, Mapping[str, str]]]:
        """Give a cursor in a transaction that will be rolled back, and the view to read instead of a table."""
        ...

    def data_version(self) -> str:
        """Give a text that changes with every write, with batches after a moment."""
        ...

    def worked(self, seconds: float) -> None:
        """Take note of how long tables were read for an answer."""
        ...


class Sight(Protocol):
    """What an answer may read: the store itself, for those who see everything, or somebody's view of it."""

    def snapshot(self) -> AbstractContextManager[queries.Tables]:
        """Give the visible tables as they stand now."""
        ...

    def data_version(self) -> str:
        """Give a text that changes with every write and differs between viewers who do not see the same."""
        ...

    def fleet_version(self) -> str:
        """Give the data version of those who see everything: that of ``Tables.fleet``."""
        ...


class View:
    """The store as one viewer sees it: what answers start from."""

    def __init__(self, shelf: Shelf, viewer: Viewer) -> None:
        """Look at a store with somebody's eyes."""
        self._shelf = shelf
        self._viewer = viewer

    def data_version(self) -> str:
        """See ``Sight.data_version``."""
        version = self._shelf.data_version()
        return version if self._viewer.everything else f"{version}:{self._viewer.fingerprint}"

    def fleet_version(self) -> str:
        """See ``Sight.fleet_version``."""
        return self._shelf.data_version()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._shelf.worked(time.monotonic() - began)

    @contextmanager
    def snapshot(self) -> Iterator[queries.Tables]:
        """Give the visible tables as they stand now, hot file and lake as one; later writes do not show.

        Use and leave it: an old snapshot keeps space from being reused.
        """
        with self._timed(), self._shelf.reading() as (cursor, sources):
            seen = {} if self._viewer.everything else _restrict(cursor, sources, self._viewer)
            backend = ibis.duckdb.from_connection(cursor)
            rolled = rolled_hours(cursor)
            whole = queries.tables(backend, sources, rolled)
            if self._viewer.everything:
                yield whole
            else:
                yield replace(queries.tables(backend, seen, rolled), fleet=whole)


def _restrict(cursor: duckdb.DuckDBPyConnection, sources: Mapping[str, str], viewer: Viewer) -> dict[str, str]:
    """Make a view of each table that holds what the viewer may see; gives their names."""
    cursor.execute(
        "CREATE OR REPLACE TEMP TABLE seen_job_key AS SELECT job_key FROM job "
        'WHERE "user" = ? OR account IN (SELECT unnest(?::VARCHAR[]))',
        [viewer.name, list(viewer.accounts)],
    )
    cursor.execute(
        "CREATE OR REPLACE TEMP TABLE seen_attempt_key AS SELECT attempt_key FROM attempt SEMI JOIN seen_job_key "
        "USING (job_key)"
    )
    views: dict[str, str] = {}
    for table in queries.TABLE_NAMES:
        views[table] = f"seen_{table}"
        query = _visible(cursor, table, sources.get(table, table))
        cursor.execute(f"CREATE OR REPLACE TEMP VIEW seen_{table} AS {query}")
    return views


def _visible(cursor: duckdb.DuckDBPyConnection, table: str, source: str) -> str:
    columns = [row[0] for row in cursor.execute(f'DESCRIBE "{source}"').fetchall()]
    everything = f'SELECT * FROM "{source}"'
    if table in OPEN_TABLES:
        return everything
    if table == "allocation":
        return _allocations(columns, source)
    if table == "event":
        return _events(columns, source)
    if "attempt_key" in columns:
        return f"{everything} SEMI JOIN seen_attempt_key USING (attempt_key)"
    if "job_key" in columns:
        return f"{everything} SEMI JOIN seen_job_key USING (job_key)"
    return f"{everything} LIMIT 0"


def _allocations(columns: list[str], source: str) -> str:
    kept = {"gpu_count", "start_at", "end_at", "share_ratio", "device_uuid"}
    unnamed = ", ".join(f'"{column}"' if column in kept else f'NULL AS "{column}"' for column in columns)
    return f"""
        SELECT * FROM "{source}" SEMI JOIN seen_attempt_key USING (attempt_key)
        UNION ALL BY NAME
        SELECT {unnamed} FROM (
            SELECT other.* FROM "{source}" AS other ANTI JOIN seen_attempt_key USING (attempt_key)
        ) AS other WHERE EXISTS (
            SELECT 1 FROM (SELECT * FROM "{source}" SEMI JOIN seen_attempt_key USING (attempt_key)) AS own
            WHERE own.device_uuid = other.device_uuid
            AND own.start_at < coalesce(other.end_at, 'infinity'::TIMESTAMP)
            AND other.start_at < coalesce(own.end_at, 'infinity'::TIMESTAMP)
        )
    """


def _events(columns: list[str], source: str) -> str:
    plain = ", ".join('NULL AS "detail"' if column == "detail" else f'"{column}"' for column in columns)
    return f"""
        SELECT * FROM "{source}" SEMI JOIN seen_attempt_key USING (attempt_key)
        UNION ALL BY NAME SELECT {plain} FROM "{source}" WHERE attempt_key IS NULL
    """
