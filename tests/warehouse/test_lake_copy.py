"""The lake's copy at another address: whole at any moment, whatever breaks when, on a folder, in memory and over S3."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import fsspec
import pytest

from warehouse import engines, lake, lake_copy, layout, purge
from warehouse.contract import wire
from warehouse.contract.errors import SettingsError, StoreError
from warehouse.contract.settings import Settings
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.engines import Engine, open_lake
from warehouse.files import Files, Found, LocalFiles, ObjectFiles, open_files
from warehouse.keeper import keep
from warehouse.settings import SPARK_DRIVER_MEMORY_BYTES, SPARK_MASTER, SPARK_SHUFFLE_PARTITIONS
from warehouse.store import Store, open_store

FIRST = date(1970, 1, 1)
LATER = 10 * SECONDS_PER_DAY
SENDING = ("create", "listed", "size", "put", "replace")
"""What a round asks of the address, in order; then it deletes."""


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Give the address of an S3 server on the loopback address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


over_s3 = pytest.mark.parametrize("settings", ["folder", "memory", "s3"], indirect=True)
"""For what a real exchange by HTTP may change; the rest is tried on a folder and in memory, where it takes no time."""


@pytest.fixture(params=["folder", "memory"])
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Give settings with an address of one kind, at which nothing lies yet."""
    name = tmp_path.name
    values: dict[str, object] = {"lake.keep_days": 0, "lake.keep_replaced_seconds": 100.0}
    if request.param == "folder":
        return Settings(values | {"lake.copy_address": f"file://{tmp_path}/elsewhere"})
    if request.param == "memory":
        return Settings(values | {"lake.copy_address": f"memory://{name}/lake"})
    endpoint = request.getfixturevalue("s3_server")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    bucket = name.replace("_", "-").lower()[:60].strip("-")
    fsspec.filesystem("s3", endpoint_url=endpoint, skip_instance_cache=True).mkdir(bucket)
    address = {"lake.copy_address": f"s3://{bucket}/lake", "lake.copy_region": "us-east-1"}
    return Settings(values | address | {"lake.copy_endpoint_url": endpoint})


@pytest.fixture
def files(settings: Settings) -> Files:
    found = lake_copy.copy_of(settings)
    assert found is not None
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def store(data: Path) -> Iterator[Store]:
    """Give a store with two samples on the first day."""
    opened = open_store(data, create=True)
    add(opened, [20.0, 10.0])
    yield opened
    opened.close()


def add(store: Store, times: list[float]) -> None:
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": times,
        "power_watts": times,
    }
    with store.transaction() as transaction:
        transaction.write({"device_sample": wire.Table(len(times), columns)})


def copied(data: Path, settings: Settings, engine: Engine = Engine.DUCKDB) -> list[float]:
    """Give what an engine of another machine sees: it has no data directory."""
    with open_lake(data / "nowhere", engine, settings) as opened, opened.snapshot() as tables:
        return sorted(tables.device_sample.power_watts.to_pyarrow().to_pylist())


def parts(files: Files) -> list[str]:
    """Give the paths of sealed samples at the address."""
    return sorted(found.path for found in files.listed() if found.path.startswith("device_sample/"))


class Failing:
    """An address at which the ``turn``-th call of one operation fails: before it is done, or after."""

    def __init__(self, files: Files, operation: str, turn: int = 1, *, is_done: bool = False) -> None:
        self._files = files
        self._fails = (operation, is_done)
        self._left = turn

    def __getattr__(self, name: str) -> Any:
        known = getattr(self._files, name)
        operation, is_done = self._fails
        if name != operation:
            return known

        def call(*arguments: Any) -> Any:
            self._left -= 1
            if self._left:
                return known(*arguments)
            if is_done:
                known(*arguments)
            raise ConnectionResetError("the connection was lost")

        return call


@over_s3
def test_engines_elsewhere_read_from_the_copy_what_the_lake_holds(
    store: Store, data: Path, settings: Settings, files: Files
) -> None:
    keep(store, data, settings, LATER)
    assert copied(data, settings) == [10.0, 20.0]
    assert {found.path for found in files.listed()} >= {"manifest.json", "owner.json"}


def test_a_second_round_sends_nothing(store: Store, data: Path, settings: Settings, files: Files) -> None:
    keep(store, data, settings, LATER)
    before = files.read(layout.MANIFEST)
    assert lake_copy.renew(data, files, 100.0, LATER) == 0
    assert lake_copy.renew(data, Failing(files, "replace"), 100.0, LATER) == 0
    assert files.read(layout.MANIFEST) == before


@pytest.mark.parametrize(
    ("settings", "operation", "is_done"),
    [
        *((kind, operation, done) for kind in ("folder", "memory") for operation in SENDING for done in (False, True)),
        ("s3", "put", True),
    ],
    indirect=["settings"],
)
def test_a_round_that_breaks_at_any_step_leaves_the_old_or_the_new_and_the_next_goes_on(
    store: Store, data: Path, settings: Settings, files: Files, operation: str, is_done: bool
) -> None:
    keep(store, data, settings, LATER)
    add(store, [15.0])
    lake.seal(store, data, "device_sample", FIRST)
    lake.publish(store, data)
    with pytest.raises(ConnectionResetError):
        lake_copy.renew(data, Failing(files, operation, is_done=is_done), 0.0, LATER)
    is_new = operation == "replace" and is_done
    assert copied(data, settings) == ([10.0, 15.0, 20.0] if is_new else [10.0, 20.0])
    lake_copy.renew(data, files, 100.0, LATER)
    assert copied(data, settings) == [10.0, 15.0, 20.0]


@over_s3
def test_what_was_replaced_goes_after_its_time_and_a_lost_deletion_is_done_again(
    store: Store, data: Path, settings: Settings, files: Files
) -> None:
    keep(store, data, settings, LATER)
    add(store, [15.0])
    keep(store, data, settings, LATER)
    assert len(parts(files)) == 2
    lake_copy.renew(data, files, 100.0, LATER + 99)
    assert len(parts(files)) == 2
    with pytest.raises(ConnectionResetError):
        lake_copy.renew(data, Failing(files, "delete"), 100.0, LATER + 100)
    lake_copy.renew(data, files, 100.0, LATER + 101)
    assert len(parts(files)) == 1
    assert copied(data, settings) == [10.0, 15.0, 20.0]


def test_an_upload_that_arrived_in_part_is_no_part_of_the_copy_and_is_sent_again(
    store: Store, data: Path, settings: Settings, files: Files, tmp_path: Path
) -> None:
    keep(store, data, Settings({"lake.keep_days": 0}), LATER)  # without a copy

    class Cut(Failing):
        def put(self, path: str, source: Path) -> None:
            cut = tmp_path / "cut"
            cut.write_bytes(source.read_bytes()[:100])
            self._files.put(path, cut)

    with pytest.raises(OSError, match="has 100 bytes after it was written"):
        lake_copy.renew(data, Cut(files, ""), 100.0, LATER)
    with pytest.raises(StoreError, match="no lake here yet"):
        copied(data, settings)
    lake_copy.renew(data, files, 100.0, LATER)
    assert copied(data, settings) == [10.0, 20.0]


def test_a_listing_that_is_late_costs_questions_and_sends_and_deletes_nothing_wrong(
    store: Store, data: Path, settings: Settings, files: Files
) -> None:
    keep(store, data, settings, LATER)

    class Late(Failing):
        def listed(self) -> list[Found]:
            return []

    assert lake_copy.renew(data, Late(files, ""), 0.0, LATER) == 0
    assert copied(data, settings) == [10.0, 20.0]


def test_purged_rows_leave_the_copy_with_the_rounds_that_follow(
    store: Store, data: Path, settings: Settings, files: Files
) -> None:
    job: dict[str, wire.Column] = {"job_key": "j", "cluster": "c", "scheduler_job_id": "1", "user": "alice"}
    attempt: dict[str, wire.Column] = {"attempt_key": "a", "job_key": "j", "cluster": "c"}
    job |= {"source": "sacct", "submit_at": 1.0}
    attempt |= {"source": "sacct", "start_at": 1.0, "state": "COMPLETED"}
    sample: dict[str, wire.Column] = {
        "cluster": "c", "node": "n", "device_uuid": "GPU-1", "cadence_seconds": 10.0, "source": "nvml",
        "sampled_at": 30.0, "power_watts": 30.0, "attempt_key": "a",
    }  # fmt: skip
    with store.transaction() as transaction:
        transaction.write({"job": wire.Table(1, job), "attempt": wire.Table(1, attempt)})
        transaction.write({"device_sample": wire.Table(1, sample)})
    keep(store, data, settings, LATER)
    assert copied(data, settings) == [10.0, 20.0, 30.0]
    purge.purge(store, purge.Whom("user", "alice"))
    keep(store, data, settings, LATER)
    assert copied(data, settings) == [10.0, 20.0]
    keep(store, data, settings, LATER + 100)
    assert len(parts(files)) == 1


def test_retention_reaches_the_copy_and_what_is_not_ours_stays(
    store: Store, data: Path, settings: Settings, files: Files
) -> None:
    keep(store, data, settings, LATER)
    files.replace("device_sample/notes.txt", b"of somebody else")
    short = Settings({**settings.values, "lake.keep_days": 3, "lake.keep_replaced_seconds": 0.0})
    keep(store, data, short, LATER)
    keep(store, data, short, LATER)
    assert parts(files) == ["device_sample/notes.txt"]


def test_two_data_directories_do_not_undo_each_others_copy(
    store: Store, data: Path, settings: Settings, files: Files, tmp_path: Path
) -> None:
    keep(store, data, settings, LATER)
    other = tmp_path / "other"
    other.mkdir()
    with closing(open_store(other, create=True)) as second:
        add(second, [99.0])
        keep(second, other, Settings({"lake.keep_days": 0}), LATER)
        with pytest.raises(StoreError, match="another data directory"):
            lake_copy.follow(other, settings, LATER)
        assert copied(data, settings) == [10.0, 20.0]
        files.delete(lake_copy.OWNER)  # it takes over: as after a restore, generations of the same number differ
        lake_copy.follow(other, settings, LATER)
        assert copied(data, settings) == [99.0]


def test_an_address_that_does_not_answer_is_said_and_the_lake_itself_goes_on(
    store: Store, data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object, **_options: object) -> Files:
        return Failing(open_files("memory://broken"), "create")

    monkeypatch.setattr(lake_copy, "open_files", broken)
    keep(store, data, Settings({"lake.keep_days": 0, "lake.copy_address": "memory://broken"}), LATER)
    assert "the lake's copy is not up to date" in caplog.text
    assert [day.row_count for day in lake.sealed_days(store) if day.table == "device_sample"] == [2]


@pytest.mark.parametrize("address", ["s3://KEY:SECRET@bucket/lake", "s3://bucket/lake?secret=SECRET"])
def test_an_address_with_credentials_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(SettingsError, match="credentials come from the environment") as refused:
        open_files(address)
    assert "SECRET" not in str(refused.value)


def test_an_unknown_kind_of_address_is_said() -> None:
    with pytest.raises(SettingsError, match="no address of a kind that is known"):
        open_files("gopher://bucket/lake")


def test_errors_of_a_store_are_told_with_address_and_file(files: Files, tmp_path: Path) -> None:
    if isinstance(files, LocalFiles):
        pytest.skip("the system's own errors name the file")
    with pytest.raises(FileNotFoundError):
        files.read("nothing")
    broken = ObjectFiles("s3://b/lake", object(), "b/lake")
    with pytest.raises(OSError, match="s3://b/lake/x: could not be read"):
        broken.read("x")


@over_s3
def test_putting_if_absent_happens_once(files: Files) -> None:
    assert (files.create("one", b"1"), files.create("one", b"2"), files.read("one")) == (True, False, b"1")
    assert (files.size("one"), files.size("two")) == (1, None)


def test_spark_is_told_where_a_store_of_s3_answers() -> None:
    settings = Settings({"lake.copy_endpoint_url": "http://127.0.0.1:9000", "lake.copy_region": "r"})
    options = engines.spark_options(settings)
    assert options["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert options["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert not [name for name in engines.spark_options(Settings()) if "s3a" in name]


@pytest.mark.spark_cluster  # by hand: starting Spark once more takes CI half a minute
def test_spark_reads_the_copy_in_a_folder(store: Store, data: Path, tmp_path: Path) -> None:
    settings = Settings(
        {
            "lake.keep_days": 0,
            "lake.copy_address": f"file://{tmp_path}/elsewhere",
            SPARK_MASTER.name: "local[2]",
            SPARK_SHUFFLE_PARTITIONS.name: 2,
            SPARK_DRIVER_MEMORY_BYTES.name: 512 * 1024**2,
        }
    )
    keep(store, data, settings, LATER)
    assert copied(data, settings, Engine.SPARK) == [10.0, 20.0]


def test_the_note_of_a_copy_that_is_lost_costs_no_data(
    store: Store, data: Path, settings: Settings, files: Files
) -> None:
    keep(store, data, settings, LATER)
    note = json.loads((data / lake_copy.NOTE).read_text())
    (data / lake_copy.NOTE).write_text(json.dumps(note | {"names": {}, "unnamed_since": {}}))
    assert lake_copy.renew(data, files, 100.0, LATER) == 0
    assert copied(data, settings) == [10.0, 20.0]
