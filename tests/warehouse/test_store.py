"""The store: keyed records are renewed, samples added, nothing half-written, one owner."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from warehouse.contract import model, wire
from warehouse.contract.errors import BadInputError, StoreBusyError, StoreError
from warehouse.contract.metrics import METRIC_COLUMNS
from warehouse.store import FILE_NAME, Store, open_store
from warehouse.stored import STORED_TYPES


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = open_store(tmp_path, create=True)
    yield opened
    opened.close()


def write(store: Store, *records: model.Record) -> int:
    """Write records in one transaction."""
    with store.transaction() as transaction:
        return transaction.write(wire.from_records(records))


def job(**words: object) -> model.Job:
    """Give a job with the fewest words."""
    return model.Job(**{"job_key": "c/1#0", "cluster": "c", "scheduler_job_id": "1", "source": "test", **words})  # type: ignore[arg-type]


def test_a_record_written_again_is_renewed_and_absent_values_keep_what_was_known(store: Store) -> None:
    write(store, job(name="old", user="u1"))
    write(store, job(name="new"))
    rows = store.read('SELECT name, "user" FROM job').to_pylist()
    assert rows == [{"name": "new", "user": "u1"}]


def test_of_two_rows_with_one_key_in_a_batch_the_last_wins(store: Store) -> None:
    write(store, job(name="first"), job(name="second"))
    assert store.read("SELECT name FROM job").to_pylist() == [{"name": "second"}]


def test_a_key_with_an_absent_part_is_still_one_key(store: Store) -> None:
    event = model.Event(cluster="c", node="n", kind="agent_gap", happened_at=5.0)
    write(store, event)
    write(store, event)
    assert store.read("SELECT count(*) AS n FROM event").to_pylist() == [{"n": 1}]


def test_instants_are_kept_to_the_microsecond_in_utc(store: Store) -> None:
    write(store, job(submit_at=1.000001))
    assert store.read("SELECT epoch_us(submit_at) AS us FROM job").to_pylist() == [{"us": 1000001}]


def test_a_failing_transaction_leaves_nothing(store: Store) -> None:
    def fail() -> None:
        with store.transaction() as transaction:
            transaction.write(wire.from_records([job()]))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert store.read("SELECT count(*) AS n FROM job").to_pylist() == [{"n": 0}]


def test_the_data_version_changes_with_every_write_and_with_nothing_else(store: Store) -> None:
    before = store.data_version()
    store.read("SELECT 1 AS one")
    assert store.data_version() == before
    write(store, job())
    assert store.data_version() != before


@pytest.mark.parametrize(
    ("column", "value"),
    [("requested_cpu_count", "many"), ("name", 5), ("submit_at", 1e300), ("submit_at", float("nan"))],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_column(store: Store, column: str, value: object) -> None:
    table = wire.Table(1, {"job_key": "k", "cluster": "c", "scheduler_job_id": "1", "source": "s", column: value})  # type: ignore[dict-item]
    with pytest.raises(BadInputError, match=column), store.transaction() as transaction:
        transaction.write({"job": table})


def test_a_missing_required_value_is_refused(store: Store) -> None:
    with pytest.raises(BadInputError, match="cluster"), store.transaction() as transaction:
        transaction.write({"job": wire.Table(1, {"job_key": "k", "scheduler_job_id": "1", "source": "s"})})


def test_a_store_is_not_made_unasked(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store here"):
        open_store(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_second_owner_is_told_who_the_first_is(tmp_path: Path, repository: Path) -> None:
    code = (
        "import sys, pathlib; from warehouse.store import open_store;"
        "s = open_store(pathlib.Path(sys.argv[1]), create=True); print('ready', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=repository
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        with pytest.raises(StoreBusyError, match=f"process {holder.pid} owns the store"):
            open_store(tmp_path)
    finally:
        holder.communicate()


def test_opening_again_keeps_everything(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    write(store, job())
    store.close()
    again = open_store(tmp_path)
    assert again.read("SELECT count(*) AS n FROM job").to_pylist() == [{"n": 1}]
    again.close()


def test_the_schema_has_exactly_the_columns_that_travel(store: Store) -> None:
    for name, types in STORED_TYPES.items():
        if name == "import_record":
            continue
        found = store.read(
            "SELECT column_name, is_nullable FROM information_schema.columns WHERE table_name = ?", [name]
        ).to_pylist()
        assert {row["column_name"]: row["is_nullable"] for row in found} == {
            column: "NO" if required else "YES" for column, (_, required) in types.items()
        }, name


def test_a_new_metric_becomes_a_column_of_an_old_store(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    store.close()
    with duckdb.connect(str(tmp_path / FILE_NAME)) as connection:
        connection.execute(f"ALTER TABLE device_sample DROP COLUMN {METRIC_COLUMNS[-1]}")
    again = open_store(tmp_path)
    with again.snapshot() as tables:
        assert METRIC_COLUMNS[-1] in tables.device_sample.columns
    again.close()


def test_a_transaction_may_begin_with_rows_of_its_own(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    with store.transaction() as transaction:
        assert transaction.execute_with(pa.table({"x": [1, 2]}), "SELECT sum(x)::INTEGER FROM incoming") == [(3,)]
    store.close()
