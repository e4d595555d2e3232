"""Samples of foreign files: each once, whether what is there is hot or sealed, near or over a server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.serving import ServerProcess
from warehouse import lake
from warehouse.client import LocalClient
from warehouse.contract.settings import Settings
from warehouse.importer import Imported, Importer, ImportOptions, Sample
from warehouse.loading import importers, load_files
from warehouse.store import Store, open_store

NOON = 1_790_000_000 - 1_790_000_000 % 86_400 + 43_200
DAY = date(2026, 9, 21)
OPTIONS = ImportOptions("c", "UTC")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "data", create=True)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Give a server that answers free questions of operators."""
    server = ServerProcess(tmp_path_factory.mktemp("served") / "data", variables={"TRUELOAD_SQL__OVER_HTTP": "yes"})
    yield server
    server.stop()


def sample(second: int, util: float = 0.5, owner: str | None = None, source: str = "s") -> Sample:
    return Sample("c", "n", "GPU-a", NOON + second, 10.0, source, {"driver_util_ratio": util}, owner)


def load(store: Store, key: str, *samples: Sample) -> None:
    def read(_path: Path, _options: ImportOptions) -> Iterator[Imported]:
        yield Imported(1, key, key, (), samples=samples, count=len(samples))

    report = load_files(LocalClient(store, {}, Settings()), Importer("t", "", "", read), [Path("f")], OPTIONS)
    assert report.kept == len(samples)


def kept(store: Store) -> list[tuple[int, float, str | None]]:
    with store.reading() as (cursor, sources):
        found = cursor.sql(f"SELECT epoch(sampled_at), driver_util_ratio, attempt_key FROM {sources['device_sample']}")
        rows: list[Any] = found.fetchall()
    return sorted(((int(at) - NOON, float(util), owner) for at, util, owner in rows), key=str)


@pytest.mark.parametrize("sealed", [False, True], ids=["hot", "sealed"])
def test_a_sample_that_is_there_stays_as_it_is(store: Store, sealed: bool) -> None:
    load(store, "first", sample(0), sample(10))
    if sealed:
        lake.seal(store, store.data, "device_sample", DAY)
    load(store, "overlapping", sample(10, util=0.9), sample(20))
    assert kept(store) == [(0, 0.5, None), (10, 0.5, None), (20, 0.5, None)]


def test_a_sample_that_stands_twice_in_one_part_is_one(store: Store) -> None:
    load(store, "twice", sample(0), sample(0, util=0.9))
    assert kept(store) == [(0, 0.5, None)]


def test_owners_and_sources_of_one_instant_are_samples_of_their_own(store: Store) -> None:
    load(store, "shared", sample(0, owner="a"), sample(0, owner="b"), sample(0, source="other"))
    load(store, "again", sample(0, owner="a"), sample(0, owner="b"), sample(0, source="other"))
    assert len(kept(store)) == 3


@pytest.mark.parametrize("name", ["nvidia_smi", "prometheus", "prometheus_server", "llview", "clustercockpit_archive"])
def test_over_a_server_comes_what_comes_into_an_open_store(
    store: Store, tmp_path: Path, name: str, running_server: ServerProcess
) -> None:
    path = tmp_path / "example"
    example = importers()[name].example.replace('"cluster": "example"', f'"cluster": "{name}"')
    path.write_text(example, encoding="utf-8")
    near = LocalClient(store, {}, Settings())
    far = running_server.client()
    options = ImportOptions(name, "UTC")
    expected = load_files(near, importers()[name], [path], options).document()
    assert load_files(far, importers()[name], [path], options).document() == expected
    assert load_files(far, importers()[name], [path], options).kept == 0
    columns = (
        "device_uuid, epoch(sampled_at) AS at, cadence_seconds, driver_util_ratio, power_watts, attempt_key, source"
    )
    statement = f"SELECT {columns} FROM device_sample WHERE cluster = '{name}' ORDER BY ALL"
    assert far.sql(statement)["rows"] == near.sql(statement)["rows"] != []
