"""Deleting a person's or a project's data for good.

In order, so that a crash between any two steps leaves something that the next start finishes (``sweep``):

1. the tombstone is written beside the database;
2. one transaction enters it, forbids the keys of the jobs and their attempts, and deletes their rows from the hot file;
3. day by day, what the lake holds of them is left out of a new generation;
4. new snapshots and a new manifest replace the old; files of replaced generations go.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warehouse import aliases, lake, layout, tombstones
from warehouse.contract.errors import BadUseError, StoreError
from warehouse.contract.units import iso
from warehouse.tombstones import KEYS, PROJECT, USER, Tombstone, forbidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from warehouse.client import Document
    from warehouse.store import Store, Transaction

LONGEST_NAME = 1000
KEYS_FILE = "purged_keys.parquet"
OWN_TABLES = ("purged_key", "tombstone", aliases.TABLE)
OUT_OF_REACH = (
    "what agents still hold: it is refused when it arrives",
    "backups made before: restore holds them against tombstones.json; delete those that must not be kept",
    "freed pages of hot.duckdb and of the disk: reused, not overwritten",
    "tokens of that name: `trueload token list`, `trueload token revoke`",
    "the scheduler's own accounting, reports that were sent, and logs",
)
"""What this cannot delete, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Whom:
    """Whose data: ``kind`` is ``user`` or ``project`` (account or namespace); ``cluster`` None: on all clusters."""

    kind: str
    name: str
    cluster: str | None = None


def read_asked(asked: Mapping[str, object]) -> tuple[Whom, bool]:
    """Read a request: whom, and whether only to count.

    Raises:
        BadUseError: not exactly one of user and project, or a name that cannot be.

    """
    named = [(kind, asked.get(kind)) for kind in (USER, PROJECT) if asked.get(kind) is not None]
    cluster, dry_run = asked.get("cluster"), asked.get("dry_run", False)
    if len(named) != 1:
        raise BadUseError("name either a user or a project")
    kind, name = named[0]
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise BadUseError(f"{kind}: expected a name of 1 to {LONGEST_NAME} characters")
    if not (cluster is None or isinstance(cluster, str)) or not isinstance(dry_run, bool):
        raise BadUseError("cluster is a name, dry_run is true or false")
    return Whom(kind, name, cluster), dry_run


def purge(store: Store, whom: Whom, *, dry_run: bool = False, files_at_once: bool = False) -> Document:
    """Delete what is known of somebody up to now; gives the rows of each table that went, or with ``dry_run`` would go.

    ``files_at_once``: nobody else reads the lake, so that replaced files go now and not with the keeper's next rounds.

    Raises:
        StoreError: it could not be finished; the next start of a server, or the same command, goes on.

    """
    stone = Tombstone.of(whom.kind, whom.name, whom.cluster)
    with store.housekeeping:
        if not dry_run:
            tombstones.add_to_file(store.data / tombstones.FILE, [stone])
        hot = _delete_hot(store, [stone], dry_run=dry_run)
        sealed = _count_sealed(store, whom) if dry_run else sweep(store, files_at_once=files_at_once)
    return {
        "kind": whom.kind,
        "name": whom.name,
        "cluster": whom.cluster,
        "before": iso(stone.before_at),
        "dry_run": dry_run,
        "rows": dict(sorted((hot + sealed).items())),
        "out_of_reach": list(OUT_OF_REACH),
    }


def catch_up(store: Store, *, files_at_once: bool = False) -> Counter[str]:
    """Enter tombstones that lie beside the database and finish what a crash or late rows left to do; gives counts."""
    with store.housekeeping:
        known = tombstones.read_file(store.data / tombstones.FILE)
        _take_keys(store)
        hot = _delete_hot(store, known) if known else Counter[str]()
        return hot + sweep(store, files_at_once=files_at_once)


def sweep(store: Store, *, files_at_once: bool = False) -> Counter[str]:
    """Delete what forbidden keys still name, hot and sealed, unless it is known that there is nothing."""
    deleted: Counter[str] = Counter()
    if not store.read("SELECT 1 FROM tombstone WHERE swept_at IS NULL LIMIT 1").num_rows:
        return deleted
    with store.transaction() as transaction:
        deleted += _delete_named(transaction, dry_run=False)
    for day in lake.sealed_days(store):
        deleted[day.table] += _rewrite(store, day)
    with store.transaction() as transaction:  # until here it told which node keys were theirs
        transaction.execute(f"DELETE FROM {aliases.TABLE} WHERE {forbidden('attempt_key', 'attempt')}")
    _leave_keys(store)
    lake.publish(store, store.data)
    if files_at_once:
        lake.tidy(store, store.data, 0.0)
    if not store.missing:  # a file that comes back has to be swept then
        with store.transaction() as transaction:
            transaction.execute("UPDATE tombstone SET swept_at = now()::TIMESTAMP WHERE swept_at IS NULL")
    with store.cursor() as cursor:
        cursor.execute("CHECKPOINT")
    return deleted


def _leave_keys(store: Store) -> None:
    """Write the forbidden keys beside the database, for the day on which it is lost."""
    fresh = store.data / f"{KEYS_FILE}.tmp"
    with store.cursor() as cursor:
        cursor.execute(f"COPY (SELECT * FROM purged_key ORDER BY ALL) TO {layout.quoted(fresh)} (FORMAT parquet)")
    lake.make_durable(fresh)
    fresh.replace(store.data / KEYS_FILE)
    lake.make_durable(store.data)


def _take_keys(store: Store) -> None:
    """Read them again where the database has none."""
    file = store.data / KEYS_FILE
    if file.exists() and not store.read("SELECT 1 FROM purged_key LIMIT 1").num_rows:
        with store.transaction() as transaction:
            transaction.execute(f"INSERT INTO purged_key SELECT kind, key_hash FROM {layout.read(file)}")


class _Rehearsed(Exception):  # noqa: N818 - no error: it ends a transaction that was only to count
    pass


def _delete_hot(store: Store, stones: list[Tombstone], *, dry_run: bool = False) -> Counter[str]:
    """Enter tombstones, forbid the keys, delete what names them from the hot file; or only count that."""
    deleted: Counter[str] = Counter()
    with suppress(_Rehearsed), store.transaction() as transaction:
        if not tombstones.enter(transaction, stones):
            return deleted
        transaction.execute(tombstones.forbid("job", f"SELECT job_key FROM job WHERE {tombstones.matching('job')}"))
        transaction.execute(
            tombstones.forbid("attempt", f"SELECT attempt_key FROM attempt WHERE {forbidden('job_key', 'job')}")
        )
        # What a node calls them is forbidden, too, but for a number that was given to others as well.
        own = f"SELECT node_key FROM {aliases.TABLE} WHERE since_at IS NULL AND {forbidden('attempt_key', 'attempt')}"
        transaction.execute(tombstones.forbid("attempt", own))
        deleted += _delete_named(transaction, dry_run=dry_run) + _delete_mails(transaction)
        if dry_run:
            raise _Rehearsed
    return deleted


def _delete_mails(transaction: Transaction) -> Counter[str]:
    """Delete which mails a person got, and that none were wanted."""
    theirs = "sha256(recipient) IN (SELECT name_hash FROM tombstone WHERE kind = 'user' AND cluster IS NULL)"
    return Counter(
        {
            table: len(transaction.execute(f"DELETE FROM {table} WHERE {theirs} RETURNING 1"))
            for table in ("mail", "mail_refusal")
        }
    )


def _delete_named(transaction: Transaction, *, dry_run: bool) -> Counter[str]:
    """Delete rows that name a forbidden job or attempt, in every table that names any."""
    rows = transaction.execute(
        "SELECT table_name, list(column_name) FROM duckdb_columns() JOIN duckdb_tables() "
        "USING (database_name, schema_name, table_name) WHERE database_name = current_database() "
        f"AND table_name NOT IN {OWN_TABLES} GROUP BY 1 HAVING bool_or(column_name IN ('job_key', 'attempt_key')) "
        "ORDER BY 1"
    )
    deleted: Counter[str] = Counter()
    for table, columns in rows:
        names = [str(column) for column in columns] if isinstance(columns, list) else []
        ways = [forbidden(f"{kind}_key", kind) for kind in KEYS if f"{kind}_key" in names]
        if "attempt_key" in names:
            ways.append(_is_theirs(names, f'"{table}"'))
        named = " OR ".join(ways)
        verb = "SELECT count(*)" if dry_run else "DELETE"
        deleted[str(table)] += int(str(transaction.execute(f'{verb} FROM "{table}" WHERE {named}')[0][0]))
    return deleted


def _is_theirs(columns: Sequence[str], rows: str) -> str:
    """Give the SQL condition under which a row carries a node's key of a forbidden attempt."""
    return aliases.meaning(columns, rows, forbidden("known.attempt_key", "attempt"))


def _rewrite(store: Store, day: lake.SealedDay) -> int:
    """Write a day anew without the rows that name a forbidden attempt; gives their number."""
    file = day.folder(store.data) / layout.PART
    if file in store.missing:
        return 0
    source = layout.read(file)
    columns = store.read(f"SELECT * FROM {source} LIMIT 0").column_names
    if "attempt_key" not in columns:
        return 0
    named = f"({forbidden('attempt_key', 'attempt')} OR {_is_theirs(columns, 'sealed')})"
    count = int(store.read(f"SELECT count(*) AS n FROM {source} AS sealed WHERE {named}").to_pylist()[0]["n"])
    if count:
        try:
            lake.write_anew(store, day, f"SELECT * FROM {source} AS sealed WHERE NOT coalesce({named}, false)")
        except OSError as cause:
            raise StoreError(f"{file}: could not be written anew, the purge goes on with the next start") from cause
        os.utime(file.parent)  # it is replaced from now on: readers that began earlier keep it for their time
    return count


def _count_sealed(store: Store, whom: Whom) -> Counter[str]:
    """Count the rows in the lake that would go."""
    columns = " OR ".join(f"job.{column} = ?" for column in tombstones.KINDS[whom.kind])
    values: list[object] = [whom.name for _ in tombstones.KINDS[whom.kind]]
    counted: Counter[str] = Counter()
    for day in lake.sealed_days(store):
        file = day.folder(store.data) / layout.PART
        if file in store.missing:
            continue
        source = layout.read(file)
        names = store.read(f"SELECT * FROM {source} LIMIT 0").column_names
        if "attempt_key" not in names:
            continue
        theirs = aliases.meaning(names, "sealed", "known.attempt_key IN (SELECT attempt_key FROM theirs)")
        rows = store.read(
            "WITH theirs AS (SELECT attempt_key FROM attempt JOIN job USING (job_key) "
            f"WHERE ({columns}) AND job.cluster = coalesce(?, job.cluster)) SELECT count(*) AS n FROM {source} "
            f"AS sealed WHERE attempt_key IN (SELECT attempt_key FROM theirs) OR {theirs}",
            [*values, whom.cluster],
        )
        counted[day.table] += int(rows.to_pylist()[0]["n"])
    return counted


def add_to_backup(backup: Path, data: Path) -> None:
    """Lay the tombstones of a store into a backup, so that a restore of it keeps them.

    Raises:
        StoreError: it is no backup, or cannot be written.

    """
    if not (backup / "backup.json").is_file():
        raise StoreError(f"{backup}: no whole backup")
    tombstones.add_to_file(backup / tombstones.FILE, tombstones.read_file(data / tombstones.FILE))
