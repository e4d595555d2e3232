"""Sealed days and records come back from the lake when the hot file was lost.

The manifest says what was valid when it was written. A day that was sealed after that has a generation which it does
not name yet; where the hot file is gone those files are all there is of it, so the newest whole generation counts. It
appeared by a rename when it was complete, and holds all rows of the generations before it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse import aliases, lake, layout
from warehouse.contract.model import RECORDS
from warehouse.due import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from warehouse.store import Store, Transaction

LOG = logging.getLogger("trueload.comeback")


def restore(store: Store, data: Path) -> int:
    """Bring sealed days and snapshots of keyed tables back into a store that lost them, from the lake.

    For a hot file that had to be set aside: does nothing where the store knows of sealed days, and leaves records be
    that it has. Gives the number of days.
    """
    if lake.sealed_days(store):
        return 0
    content = _manifest(data)
    named = [_named(day) for day in content["days"]]
    days = _newest(store, data, named)
    if not days and not content["snapshots"]:
        return 0
    with store.transaction() as transaction:
        for table, path in content["snapshots"].items():
            file = data / layout.FOLDER / path / layout.PART
            transaction.execute(
                f'INSERT INTO "{table}" BY NAME SELECT old.* FROM {layout.read(file)} AS old WHERE {_is_lacking(table)}'
            )
        for day in days:
            transaction.execute(
                "INSERT INTO sealed_day VALUES (?, ?, ?, ?, ?, now()::TIMESTAMP)",
                [day.table, day.date, day.generation, day.row_count, day.file_bytes],
            )
        for hour_at, *known in content.get("rolled_hours", ()):
            transaction.execute(
                "INSERT INTO rolled_hour VALUES (to_timestamp(?)::TIMESTAMP, ?, ?, ?, ?, ?, ?, ?)", [hour_at, *known]
            )
        _take_note_of_hours(transaction, data, days, set(days) - set(named))
    if aliases.TABLE not in content["snapshots"]:
        store.take_note_of_node_keys()
    store.look_for_files()
    LOG.warning("%s: %d sealed days and the last snapshots were taken from the lake", data, len(days))
    return len(days)


def _manifest(data: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((data / layout.FOLDER / layout.MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:  # the first day was sealed, and not published
        return {"days": [], "snapshots": {}}
    return content


def _named(day: Mapping[str, Any]) -> lake.SealedDay:
    generation = int(day["path"].rpartition("gen=")[2])
    return lake.SealedDay(day["table"], date.fromisoformat(day["date"]), generation, day["rows"], day["bytes"])


def _newest(store: Store, data: Path, named: list[lake.SealedDay]) -> list[lake.SealedDay]:
    """Give the days of the manifest, each in its newest whole generation, and days that it does not name yet.

    Not those of which the store has rows: then it was not lost, and a newer generation may hold the same rows.
    """
    found = {(day.table, day.date): day for day in named}
    hot = set(lake.days_to_seal(store, date.max))
    for table in lake.ORDER:
        for file in (data / layout.FOLDER / table).glob(f"date=*/gen=*/{layout.PART}"):
            day = date.fromisoformat(file.parent.parent.name.removeprefix("date="))
            generation = int(file.parent.name.removeprefix("gen="))
            known = found.get((table, day))
            if (table, day) not in hot and (known is None or generation > known.generation):
                unnamed = _measured(store, file, lake.SealedDay(table, day, generation, 0, file.stat().st_size))
                if unnamed is not None:
                    found[table, day] = unnamed
    return sorted(found.values(), key=lambda day: (day.table, day.date))


def _measured(store: Store, file: Path, day: lake.SealedDay) -> lake.SealedDay | None:
    try:
        (row,) = store.read(f"SELECT count(*) AS n FROM {layout.read(file)}").to_pylist()
    except duckdb.Error:
        LOG.exception("%s: cannot be read and stays where it is", file)
        return None
    LOG.warning("%s: was sealed after the last manifest; it counts, with %d rows", file, row["n"])
    return replace(day, row_count=int(row["n"]))


def _take_note_of_hours(
    transaction: Transaction, data: Path, days: list[lake.SealedDay], unnamed: set[lake.SealedDay]
) -> None:
    """Have those hours summed up again whose roll-ups were not up to date, or came with a day not named."""
    changed = {day.date for day in unnamed}
    for day in days:
        if day.table == SAMPLES:
            file = layout.read(day.folder(data) / layout.PART)
            transaction.execute(
                f"INSERT INTO rollup_due SELECT DISTINCT date_trunc('hour', sampled_at)::TIMESTAMP AS hour FROM {file} "
                "WHERE ? OR date_trunc('hour', sampled_at)::TIMESTAMP NOT IN (SELECT hour_at FROM rolled_hour)",
                [day.date in changed],
            )


def _is_lacking(table: str) -> str:
    """Say in SQL that a row ``old`` of a snapshot is not in the table: by its key, or because nothing is."""
    if table not in RECORDS:
        return f'NOT EXISTS (SELECT 1 FROM "{table}")'
    same = " AND ".join(f'known."{key}" IS NOT DISTINCT FROM old."{key}"' for key in RECORDS[table].KEY)
    return f'NOT EXISTS (SELECT 1 FROM "{table}" AS known WHERE {same})'
