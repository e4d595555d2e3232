"""The lake on an engine: what the manifest names is read, and what cannot be read is said."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from warehouse import engines, lake, layout
from warehouse.contract import wire
from warehouse.contract.errors import StoreError
from warehouse.contract.settings import Settings
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.engines import Engine, open_lake, read_manifest
from warehouse.settings import SPARK_DRIVER_MEMORY_BYTES
from warehouse.store import open_store
from warehouse.stored import STORED_TYPES

DAY = date(1970, 1, 2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a data directory with one sealed day of two samples, and one sample that is still hot."""
    folder = tmp_path_factory.mktemp("lake")
    store = open_store(folder, create=True)
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": [SECONDS_PER_DAY, SECONDS_PER_DAY + 10, 2 * SECONDS_PER_DAY],
        "power_watts": [1.0, 2.0, 3.0],
    }
    with store.transaction() as transaction:
        transaction.write({"device_sample": wire.Table(3, columns)})
    lake.seal(store, folder, "device_sample", DAY)
    lake.publish(store, folder)
    store.close()
    return folder


def write_manifest(data: Path, text: str) -> Path:
    (data / layout.FOLDER).mkdir()
    (data / layout.FOLDER / layout.MANIFEST).write_text(text, encoding="utf-8")
    return data


def test_only_sealed_days_are_read_and_where_they_end_is_said(data: Path) -> None:
    with open_lake(data, Engine.DUCKDB, Settings()) as opened, opened.snapshot() as tables:
        assert sorted(tables.device_sample.power_watts.execute()) == [1.0, 2.0]
        assert tables.samples_end_at == 2 * SECONDS_PER_DAY


def test_a_lake_is_read_while_a_server_owns_the_store(data: Path) -> None:
    store = open_store(data)
    try:
        with open_lake(data, Engine.DUCKDB, Settings()) as opened, opened.snapshot() as tables:
            assert tables.device_sample.count().execute() == 2
    finally:
        store.close()


def test_a_column_or_table_that_came_after_the_files_is_absent_there(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = STORED_TYPES["device_sample"]
    monkeypatch.setitem(STORED_TYPES, "device_sample", types | {"new_ratio": types["power_watts"]})
    with open_lake(data, Engine.DUCKDB, Settings()) as opened, opened.snapshot() as tables:
        assert tables.device_sample.new_ratio.isnull().all().execute()
        assert tables.process_sample.count().execute() == 0


def test_two_openings_are_never_taken_for_the_same_data(data: Path) -> None:
    with open_lake(data, Engine.DUCKDB, Settings()) as one, open_lake(data, Engine.DUCKDB, Settings()) as other:
        assert one.data_version() != other.data_version()


def test_without_a_lake_it_is_said_who_makes_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no lake here yet"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "snapshots": {}, "days": [{}]}'])
def test_a_manifest_that_cannot_be_used_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"manifest\.json: cannot be used"):
        read_manifest(write_manifest(tmp_path, text))


def test_a_lake_without_sealed_samples_ends_nowhere(tmp_path: Path) -> None:
    content = {"version": 1, "snapshots": {"job": "job/gen=1"}, "days": []}
    manifest = read_manifest(write_manifest(tmp_path, json.dumps(content)))
    assert manifest.sealed_until_at is None
    assert list(manifest.files) == ["job"]


def test_memory_is_said_in_a_unit_that_java_knows() -> None:
    options = engines.spark_options(Settings({SPARK_DRIVER_MEMORY_BYTES.name: 1024**3}))
    assert options["spark.driver.memory"] == "1024m"
