"""Rows of foreign files: a content is loaded once, and what is known of a job's starts can be asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from warehouse import ingest
from warehouse.arrow import to_arrow, to_wire
from warehouse.client import LocalClient, RecordId
from warehouse.contract import model, wire
from warehouse.contract.settings import Settings
from warehouse.importer import Imported, ImportedTables, Importer, ImportOptions, Rejected
from warehouse.ingest import load_import, past_attempts, which_are_new
from warehouse.loading import load_files
from warehouse.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = open_store(tmp_path, create=True)
    yield opened
    opened.close()


def test_an_imported_content_is_new_once_and_an_old_content_stays_known(store: Store) -> None:
    first, second = RecordId("1", 11), RecordId("1", 22)
    assert which_are_new(store, "sacct", [first, second]) == [True, True]
    load_import(store, "sacct", [first], wire.from_records([model.Job("k", "c", "1", "s", name="running")]))
    load_import(store, "sacct", [second], wire.from_records([model.Job("k", "c", "1", "s", name="ended")]))
    assert which_are_new(store, "sacct", [first, second]) == [False, False]
    assert which_are_new(store, "other", [first]) == [True]


def test_past_attempts_come_in_order_of_start(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.write(
            wire.from_records(
                [
                    model.Job("c/7#0", "c", "7", "s"),
                    model.Attempt("c/7#0:b", "c/7#0", model.AttemptState.COMPLETED, None, 20.0, None, "s"),
                    model.Attempt("c/7#0:a", "c/7#0", model.AttemptState.REQUEUED, None, 10.0, 15.0, "s"),
                ]
            )
        )
    found = past_attempts(store, "c", ["6", "7"])
    assert [(past.attempt_key, past.state, past.end_at) for past in found] == [
        ("c/7#0:a", "requeued", 15.0),
        ("c/7#0:b", "completed", None),
    ]


def records_of(keys: list[str], hashes: list[int], users: list[str]) -> ImportedTables:
    """Give records by column: one job each."""
    job = {
        "job_key": keys,
        "cluster": ["c"] * len(keys),
        "scheduler_job_id": keys,
        "source": ["t"] * len(keys),
        "user": users,
    }
    return ImportedTables(
        pa.table({"record_key": keys, "content_hash": pa.array(hashes, pa.int64())}),
        {"job": to_arrow("job", wire.Table(len(keys), job))},
    )


@pytest.mark.parametrize("many_rows", [1, 1_000_000])
def test_records_by_column_are_loaded_once_and_renewed(
    store: Store, many_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.store.MANY_ROWS", many_rows)
    assert ingest.load_tables(store, "t", records_of(["a", "b"], [1, 2], ["ada", "bob"])) == 2
    assert ingest.load_tables(store, "t", records_of(["a", "b"], [1, 2], ["ada", "bob"])) == 0
    assert ingest.load_tables(store, "t", records_of(["b", "c"], [3, 4], ["eve", "cy"])) == 2
    rows = store.read("SELECT job_key, user FROM job ORDER BY job_key").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("a", "ada"), ("b", "eve"), ("c", "cy")]


def test_a_record_that_stands_twice_in_one_part_is_one(store: Store) -> None:
    assert ingest.load_tables(store, "t", records_of(["a", "a"], [1, 1], ["ada", "ada"])) == 1
    assert store.read("SELECT count(*) AS n FROM job")["n"][0].as_py() == 1


def test_records_by_column_are_counted_like_others(store: Store) -> None:
    def read(_path: Path, _options: ImportOptions) -> Iterator[Imported | ImportedTables | Rejected]:
        yield Imported(1, "x", "x", ())
        yield records_of(["a", "b"], [1, 2], ["ada", "bob"])
        yield Rejected(4, "bad", "worse")

    client = LocalClient(store, {}, Settings())
    options = ImportOptions("c", "UTC")
    report = load_files(client, Importer("t", "", "", read), [Path("f")], options)
    assert (report.read, report.kept, report.unchanged) == (4, 3, 0)
    assert load_files(client, Importer("t", "", "", read), [Path("f")], options).unchanged == 3


def test_rows_survive_the_way_to_the_wire_and_back() -> None:
    attempt = model.Attempt("a", "j", model.AttemptState.COMPLETED, None, 1.5, None, "s", exit_code=3)
    rows = to_arrow("attempt", wire.from_records([attempt])["attempt"])
    assert to_arrow("attempt", to_wire(rows)).equals(rows)
