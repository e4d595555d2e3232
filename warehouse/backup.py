"""Backups of a store: written while it serves, opened and counted, and brought back.

A backup is a folder: ``hot.duckdb``, the lake's files that it names, and ``backup.json``, written last; a folder
without it is no backup. Files of the lake never change once written, so where the file system allows they are hard
links and cost no space; copy the folder to another disk to be safe from the loss of this one.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from typing import TYPE_CHECKING

import duckdb

from warehouse import agent_desk, lake, layout, purge, tombstones
from warehouse.contract.errors import StoreError
from warehouse.contract.model import RECORDS
from warehouse.contract.units import iso
from warehouse.opening import FILE_FORMAT
from warehouse.recovery import COUNTER_FILE
from warehouse.store import FILE_NAME, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.client import Document
    from warehouse.store import Store

LOG = logging.getLogger("trueload.backup")
NOTE = "backup.json"
ALIAS = "trueload_backup"


UNIQUE = {name: kind.KEY for name, kind in RECORDS.items()} | {
    "batch_ledger": ("agent", "boot_id", "sequence", "part"),
    "import_ledger": ("format", "record_key", "content_hash"),
}
"""Tables in which a key occurs once, and the key."""


def write_backup(store: Store, target: Path) -> Document:
    """Copy the store into a new or empty folder; gives what is in it. Batches and questions go on meanwhile.

    Files of the lake that are not there are named under ``missing_files``, and all else is copied.

    Raises:
        StoreError: the folder holds something, cannot be written, or the copy does not hold what the store held.

    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target}: holds something; a backup goes into a new folder")
    try:
        target.mkdir(parents=True, exist_ok=True)
        with store.housekeeping:  # no file of the lake goes away between naming and linking it
            rows = _copy_database(store, target / FILE_NAME)
            files, missing = _link_lake(store.data, target)
        _check_copy(target / FILE_NAME, rows)
        size_bytes = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
        note: Document = {
            "made_at": iso(time.time()),
            "rows": rows,
            "lake_files": files,
            "missing_files": missing,
            "bytes": size_bytes,
        }
        lake.replace_durably(target / NOTE, json.dumps(note, indent=1))
        if not missing:  # else agents keep what they hold: it may be in no file any more
            agent_desk.note_backup(store.data, target / FILE_NAME)
    except (OSError, duckdb.Error) as cause:
        raise StoreError(f"{target}: the backup could not be written ({cause})") from cause
    return {"backup": str(target), **note}


def restore_backup(backup: Path, data: Path, *, tombstones_file: Path | None = None) -> Document:
    """Make a store of a backup in a directory that has none; gives what ``verify`` finds.

    All tokens of the backup are revoked in it: it cannot know which were revoked since. What was deleted on request
    stays deleted, as told by ``tombstones_file`` and by tombstones in the backup's folder and in ``data``.

    Raises:
        StoreError: it is no whole backup, the directory has a store, or it cannot be written.

    """
    if not (backup / NOTE).is_file():
        raise StoreError(f"{backup}: no whole backup, {NOTE} is missing")
    if (data / FILE_NAME).exists() or (data / layout.FOLDER).exists():
        raise StoreError(f"{data}: has a store; restore into a new directory, or move the old store away first")
    try:
        data.mkdir(parents=True, exist_ok=True)
        (data / COUNTER_FILE).unlink(missing_ok=True)  # it counts the commits of another store
        if (backup / layout.FOLDER).is_dir():
            shutil.copytree(backup / layout.FOLDER, data / layout.FOLDER)
        told = [backup / tombstones.FILE, *([] if tombstones_file is None else [tombstones_file])]
        tombstones.add_to_file(data / tombstones.FILE, [stone for file in told for stone in tombstones.read_file(file)])
        fresh = data / f"{FILE_NAME}.restoring"
        shutil.copyfile(backup / FILE_NAME, fresh)
        lake.make_durable(fresh)
        fresh.rename(data / FILE_NAME)
        lake.make_durable(data)
    except OSError as cause:
        raise StoreError(f"{data}: the backup could not be brought back ({cause})") from cause
    store = open_store(data)
    try:
        with store.transaction() as transaction:
            transaction.execute("UPDATE credential SET revoked_at = now()::TIMESTAMP WHERE revoked_at IS NULL")
        purge.catch_up(store, files_at_once=True)
        return verify(store)
    finally:
        store.close()


def verify(store: Store) -> Document:
    """Read every value of the store and every file of the lake, and hold the counts against each other."""
    checks: list[dict[str, object]] = []

    def check(name: str, expected: object, found: object) -> None:
        checks.append({"name": name, "ok": expected == found, "expected": expected, "found": found})

    with store.housekeeping:
        for table in _tables(store):
            check(f"table {table}", "readable", _readable(store, f'SELECT count(COLUMNS(*)) FROM "{table}"'))
        for table, key in UNIQUE.items():
            check(f"table {table}, each key once", 0, _repeated(store, table, key))
        days = lake.sealed_days(store)
        for day in days:
            file = day.folder(store.data) / layout.PART
            name = f"lake {file.relative_to(store.data)}"
            check(name, "readable", _readable(store, f"SELECT count(COLUMNS(*)) FROM {layout.read(file)}"))
            if checks[-1]["ok"]:
                counted = store.read(f"SELECT count(*) AS n FROM {layout.read(file)}").to_pylist()[0]["n"]
                check(f"{name}, rows", day.row_count, counted)
        named = lake.named_in_manifest(store.data)
        expected = sorted(str(day.folder(store.data).relative_to(store.data / layout.FOLDER)) for day in days)
        check("manifest, days", expected, sorted(path for path in named if "/date=" in path))
    return {"ok": all(bool(item["ok"]) for item in checks), "checks": checks}


def _copy_database(store: Store, path: Path) -> dict[str, int]:
    """Copy the database as it stands at one moment; gives the rows of each table then."""
    tables = _tables(store)
    with store.cursor() as cursor:
        cursor.execute(f"ATTACH {layout.quoted(path)} AS {ALIAS} (STORAGE_VERSION '{FILE_FORMAT}')")
        try:
            cursor.execute("BEGIN")
            rows = {name: _count(cursor, name) for name in tables}
            cursor.execute(f"COPY FROM DATABASE {path.stem} TO {ALIAS}")
            cursor.execute("COMMIT")
        finally:
            cursor.execute(f"DETACH {ALIAS}")
    lake.make_durable(path)
    return rows


def _check_copy(path: Path, rows: dict[str, int]) -> None:
    """Open a copied database and count.

    Raises:
        StoreError: it does not hold what was copied.

    """
    with duckdb.connect(str(path), read_only=True) as copy:
        for name, expected in rows.items():
            if (found := _count(copy, name)) != expected:
                raise StoreError(f"{path}: table {name} has {found} rows where the store had {expected}; try again")


def _count(cursor: duckdb.DuckDBPyConnection, table: str) -> int:
    row = cursor.execute(f'SELECT count(*) FROM "{table}"').fetchone()
    return 0 if row is None else int(row[0])


def _link_lake(data: Path, target: Path) -> tuple[int, list[str]]:
    """Link, or copy where that cannot be, every file that the store or the manifest names.

    Gives their number, and those that are not there.
    """
    with duckdb.connect(str(target / FILE_NAME), read_only=True) as copy:
        days = copy.execute("SELECT table_name, date, generation FROM sealed_day").fetchall()
    folders = {layout.part(data, table, day, generation).parent for table, day, generation in days}
    folders |= {data / layout.FOLDER / path for path in lake.named_in_manifest(data)}
    count, missing = 0, []
    for folder in sorted(folders):
        if not (folder / layout.PART).is_file():
            missing.append(str((folder / layout.PART).relative_to(data)))
            LOG.error("%s: is not there; the backup goes on without it", data / missing[-1])
            continue
        fresh = target / folder.relative_to(data)
        fresh.mkdir(parents=True)
        for file in sorted(folder.iterdir()):
            try:
                os.link(file, fresh / file.name)
            except OSError:
                shutil.copyfile(file, fresh / file.name)
                lake.make_durable(fresh / file.name)
            count += 1
        lake.make_durable(fresh)
    manifest = data / layout.FOLDER / layout.MANIFEST
    if manifest.exists():
        lake.replace_durably(target / layout.FOLDER / layout.MANIFEST, manifest.read_text(encoding="utf-8"))
    return count, missing


def _repeated(store: Store, table: str, key: tuple[str, ...]) -> int:
    columns = ", ".join(f'"{column}"' for column in key)
    query = f'SELECT count(*) AS n FROM (SELECT 1 FROM "{table}" GROUP BY {columns} HAVING count(*) > 1)'
    return int(store.read(query).to_pylist()[0]["n"])


def _tables(store: Store) -> list[str]:
    rows = store.read(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() AND NOT internal "
        "AND NOT temporary ORDER BY 1"
    )
    return [str(name) for name in rows["table_name"].to_pylist()]


def _readable(store: Store, sql: str) -> str:
    try:
        store.read(sql)
    except duckdb.Error as cause:
        return str(cause).splitlines()[0]
    return "readable"
