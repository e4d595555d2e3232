"""The lake: sealed days of samples as sorted Parquet, and snapshots of what they are joined with.

Layout below ``DATA/lake``::

    manifest.json                                   what is valid, replaced atomically
    device_sample/date=2026-11-20/gen=3/part-0.parquet
    job/gen=17/part-0.parquet                       snapshot of a keyed table

The truth about which generation counts is the table ``sealed_day`` of the hot file, changed in the transaction that
also deletes the rows from it; the manifest is its copy for engines that read the lake alone, and for the day on which
the hot file is lost (``comeback``). A crash before that transaction leaves files that nothing names; ``tidy`` removes
them. So a row is never counted twice and never lost.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warehouse import aliases, layout
from warehouse.contract import rollups
from warehouse.contract.errors import StoreError
from warehouse.contract.model import RECORDS
from warehouse.contract.rollups import HOUR, MINUTE, SOURCES
from warehouse.due import rolled_hours

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from pathlib import Path

    from warehouse.store import Store, Transaction

ORDER = {
    "device_sample": "device_uuid, sampled_at, source",
    "process_sample": "device_uuid, sampled_at, pid",
    "host_sample": "node, sampled_at, scope, subject",
    MINUTE: "device_uuid, start_at, attempt_key, activity_code",
    HOUR: "device_uuid, start_at, attempt_key, activity_code",
    SOURCES: "device_uuid, bucket_at, attempt_key, source",
}
"""How rows of a day are sorted: by device, then time, so that one device's history is a few row groups."""

SNAPSHOTS = (*RECORDS, aliases.TABLE)
"""Tables that lie in the lake as they stood when it was published: what samples are joined with."""


@dataclass(frozen=True, slots=True)
class SealedDay:
    """One day of one sample table in the lake."""

    table: str
    date: date
    generation: int
    row_count: int
    file_bytes: int

    def folder(self, data: Path) -> Path:
        """Give the folder of its files."""
        return layout.part(data, self.table, self.date, self.generation).parent


def time_of(table: str) -> str:
    """Give the column that tells to which day a row belongs."""
    return "bucket_at" if table in rollups.COLUMNS else "sampled_at"


def sealed_days(store: Store) -> list[SealedDay]:
    """Give every sealed day, in order."""
    rows = store.read("SELECT table_name, date, generation, row_count, file_bytes FROM sealed_day ORDER BY 1, 2")
    return [SealedDay(*row.values()) for row in rows.to_pylist()]


def days_to_seal(store: Store, before: date) -> list[tuple[str, date]]:
    """Give the (table, day) pairs before a day that have rows in the hot file: days that ended, and late rows."""
    found: list[tuple[str, date]] = []
    for table in ORDER:
        time = time_of(table)
        rows = store.read(f'SELECT DISTINCT {time}::DATE AS day FROM "{table}" WHERE {time} < ? ORDER BY day', [before])
        found += [(table, day) for day in rows["day"].to_pylist()]
    return found


def seal(store: Store, data: Path, table: str, day: date) -> SealedDay:
    """Move a day's rows from the hot file into a new generation of the lake, with those sealed before.

    Rows that arrive meanwhile stay in the hot file. Readers that began earlier still find the old generation, which
    ``tidy`` removes later.

    Raises:
        StoreError: the files or the database could not be written; everything is as before.

    """
    old = next((sealed for sealed in sealed_days(store) if (sealed.table, sealed.date) == (table, day)), None)
    new = SealedDay(table, day, 1 if old is None else old.generation + 1, 0, 0)
    folder = new.folder(data)
    try:
        with store.long_transaction() as transaction:
            _write_part(transaction, _day_query(table, day, None if old is None else old.folder(data)), folder)
            sealed = _measured(transaction, new, folder)
            transaction.execute(f'DELETE FROM "{table}" WHERE {time_of(table)}::DATE = ?', [day])
            transaction.execute(
                "INSERT OR REPLACE INTO sealed_day VALUES (?, ?, ?, ?, ?, now()::TIMESTAMP)",
                [table, day, sealed.generation, sealed.row_count, sealed.file_bytes],
            )
        if old is not None:
            os.utime(old.folder(data))  # it is replaced from now on: readers that began earlier keep it for their time
    except OSError as cause:
        raise StoreError(f"{folder}: the day could not be sealed, it stays in the hot file ({cause})") from cause
    return sealed


def write_anew(store: Store, day: SealedDay, query: str) -> SealedDay:
    """Replace a sealed day by what a query gives of it, as a new generation.

    Raises:
        StoreError, OSError: it could not be written; the day is as before.

    """
    with store.long_transaction() as transaction:
        return write_again(transaction, store.data, day, query)


def write_again(transaction: Transaction, data: Path, day: SealedDay, query: str) -> SealedDay:
    """Replace a sealed day as ``write_anew`` does, within a transaction that changes other things with it."""
    new = SealedDay(day.table, day.date, day.generation + 1, 0, 0)
    folder = new.folder(data)
    _write_part(transaction, f"SELECT * FROM ({query}) ORDER BY {ORDER.get(day.table, 'ALL')}", folder)
    written = _measured(transaction, new, folder)
    transaction.execute(
        "UPDATE sealed_day SET generation = ?, row_count = ?, file_bytes = ?, sealed_at = now()::TIMESTAMP "
        "WHERE table_name = ? AND date = ?",
        [written.generation, written.row_count, written.file_bytes, day.table, day.date],
    )
    return written


def publish(store: Store, data: Path) -> None:
    """Write fresh snapshots of the keyed tables and replace the manifest: what engines of other machines read."""
    generation = 1 + max((_generation(folder) for folder in _snapshot_folders(data)), default=0)
    for table in SNAPSHOTS:
        folder = data / layout.FOLDER / table / f"gen={generation}"
        with store.long_transaction() as transaction:
            _write_part(transaction, f'SELECT * FROM "{table}"', folder)
    days = [
        {
            "table": day.table,
            "date": day.date.isoformat(),
            "path": str(day.folder(data).relative_to(data / layout.FOLDER)),
            "rows": day.row_count,
            "bytes": day.file_bytes,
        }
        for day in sealed_days(store)
    ]
    snapshots = {table: f"{table}/gen={generation}" for table in SNAPSHOTS}
    replace_durably(
        data / layout.FOLDER / layout.MANIFEST,
        json.dumps({"version": 1, "days": days, "snapshots": snapshots, "rolled_hours": _rolled(store)}, indent=1),
    )


def _rolled(store: Store) -> list[list[object]]:
    """Give the hours whose roll-ups lie in the lake and are up to date, as rows of ``rolled_hour``."""
    with store.cursor() as cursor:
        current = {hour.hour_at for hour in rolled_hours(cursor)}
    rows = store.read(
        f"SELECT epoch(hour_at) AS hour_at, * EXCLUDE (hour_at) FROM rolled_hour WHERE hour_at::DATE IN "
        f"(SELECT date FROM sealed_day WHERE table_name = '{HOUR}') ORDER BY hour_at"
    )
    return [list(row.values()) for row in rows.to_pylist() if row["hour_at"] in current]


def tidy(store: Store, data: Path, older_than_seconds: float) -> list[Path]:
    """Remove files that neither the store nor the manifest names: of crashes, and generations that were replaced.

    Those younger than ``older_than_seconds`` stay: a reader that began earlier may still want them. Call it from the
    thread that seals. Gives what was removed.
    """
    valid = {day.folder(data) for day in sealed_days(store)}
    manifest = named_in_manifest(data)
    valid |= {data / layout.FOLDER / path for path in manifest}
    root = data / layout.FOLDER
    found = [*root.glob("*/date=*/gen=*"), *root.glob("*/date=*/tmp-*"), *root.glob("*/tmp-*"), *root.glob("*/gen=*")]
    latest = time.time() - older_than_seconds
    orphans = [folder for folder in found if folder not in valid and folder.stat().st_mtime <= latest]
    for folder in orphans:
        shutil.rmtree(folder)
    return orphans


def drop_day(transaction: Transaction, day: SealedDay) -> None:
    """Forget a sealed day of a table; ``tidy`` removes its files after the next ``publish``."""
    transaction.execute("DELETE FROM sealed_day WHERE table_name = ? AND date = ?", [day.table, day.date])


def _day_query(table: str, day: date, old: Path | None) -> str:
    hot = f"SELECT * FROM \"{table}\" WHERE {time_of(table)}::DATE = DATE '{day.isoformat()}'"
    if old is not None:
        hot = f"{_without_sealed(table, hot, old)} UNION ALL BY NAME SELECT * FROM {layout.read(old / layout.PART)}"
    return f"SELECT * FROM ({hot}) ORDER BY {ORDER[table]}"


def _without_sealed(table: str, hot: str, old: Path) -> str:
    """Give the SQL of hot rows but those that are sealed already, value for value.

    Batches come a second time as new ones where the ledger was lost with the hot file.
    """
    time = time_of(table)
    empty = f'SELECT * FROM "{table}" LIMIT 0'  # a column that came after the day was sealed is absent in it
    sealed = f"({empty}) UNION ALL BY NAME SELECT * FROM {layout.read(old / layout.PART)}"
    beside = f"SELECT * FROM ({sealed}) WHERE {time} IN (SELECT {time} FROM ({hot}))"
    return f"SELECT * FROM ({hot} EXCEPT ALL {beside})"


def _write_part(transaction: Transaction, query: str, folder: Path) -> None:
    """Write a query's rows as one durable file in a folder that appears complete or not at all."""
    fresh = folder.parent / f"tmp-{folder.name}"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.mkdir(parents=True)
    transaction.execute(f"COPY ({query}) TO {layout.quoted(fresh / layout.PART)} (FORMAT parquet, COMPRESSION zstd)")
    make_durable(fresh / layout.PART)
    make_durable(fresh)
    fresh.rename(folder)
    make_durable(folder.parent)


def _measured(transaction: Transaction, day: SealedDay, folder: Path) -> SealedDay:
    rows = transaction.execute(f"SELECT count(*) FROM {layout.read(folder / layout.PART)}")
    return SealedDay(day.table, day.date, day.generation, int(str(rows[0][0])), (folder / layout.PART).stat().st_size)


def _snapshot_folders(data: Path) -> Iterator[Path]:
    for table in SNAPSHOTS:
        yield from (data / layout.FOLDER / table).glob("gen=*")


def _generation(folder: Path) -> int:
    return int(folder.name.removeprefix("gen="))


def named_in_manifest(data: Path) -> set[str]:
    """Give the folders that the manifest names, below the lake."""
    try:
        content = json.loads((data / layout.FOLDER / layout.MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return set()
    return {day["path"] for day in content["days"]} | set(content["snapshots"].values())


def replace_durably(path: Path, text: str) -> None:
    """Put a text into a file so that there is the old or the new one at any moment, and the new one from now on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(text, encoding="utf-8")
    make_durable(fresh)
    fresh.replace(path)
    make_durable(path.parent)


def make_durable(path: Path) -> None:
    """Have what was written to a file or folder on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
