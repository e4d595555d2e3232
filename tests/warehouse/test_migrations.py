"""Stores of every earlier schema are brought up to date, lose nothing, and end like a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from warehouse import backup
from warehouse.contract.errors import StoreError
from warehouse.opening import FILE_FORMAT
from warehouse.store import FILE_NAME, Store, open_store

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("schema_*.sql"))
KEPT = ("job", "attempt", "device_sample", "batch_ledger", "import_ledger", "kernel_profile", "credential")


def lay_down(fixture: Path, data: Path) -> dict[str, list[Any]]:
    """Make the store of a fixture; gives the rows of its tables."""
    data.mkdir()
    config: dict[str, Any] = {"storage_compatibility_version": FILE_FORMAT}
    with duckdb.connect(str(data / FILE_NAME), config=config) as connection:
        connection.execute(fixture.read_text(encoding="utf-8"))
        there = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        return {name: connection.execute(f"FROM {name}").fetchall() for name in KEPT if name in there}


def columns(store: Store) -> set[tuple[object, ...]]:
    """Give every column of the store with its type."""
    rows = store.read(
        "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() "
        "WHERE database_name = current_database() AND NOT internal"
    )
    return {tuple(row.values()) for row in rows.to_pylist()}


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_a_store_of_an_earlier_schema_keeps_its_rows_and_becomes_like_a_new_one(fixture: Path, tmp_path: Path) -> None:
    before = lay_down(fixture, tmp_path / "old")
    fresh = open_store(tmp_path / "new", create=True)
    expected = columns(fresh)
    fresh.close()
    for _ in ("migrated", "opened again"):
        store = open_store(tmp_path / "old")
        assert columns(store) == expected
        for name, rows in before.items():
            found = store.read(f'SELECT * FROM "{name}"').to_pylist()
            assert [tuple(row.values())[: len(rows[0])] for row in found] == rows
        assert backup.verify(store)["ok"]
        store.close()


def test_there_is_a_store_of_each_schema_from_the_first_on() -> None:
    assert [int(path.stem.removeprefix("schema_")) for path in FIXTURES] == [1, 2, 3, 4, 5, 6]


def test_a_store_of_a_later_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    lay_down(FIXTURES[-1], tmp_path / "data")
    with duckdb.connect(str(tmp_path / "data" / FILE_NAME)) as connection:
        connection.execute("INSERT INTO schema_version VALUES (9999, now()::TIMESTAMP)")
    before = (tmp_path / "data" / FILE_NAME).read_bytes()
    with pytest.raises(StoreError, match="newer than this version"):
        open_store(tmp_path / "data")
    assert (tmp_path / "data" / FILE_NAME).read_bytes() == before
