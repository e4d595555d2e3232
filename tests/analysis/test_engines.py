"""DuckDB and Spark give the same documents over one lake, and a window beyond the sealed days is refused."""

from __future__ import annotations

import math
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from analysis import pipeline
from analysis.benchmarks._fleet import Fleet, write_fleet
from analysis.benchmarks._same import count_values, differences
from analysis.benchmarks.engines import SMALL, WHOLE, ask_all, make_lake, questions
from tests.conftest import NEEDS_PACKAGE
from warehouse.contract.errors import BadUseError
from warehouse.contract.settings import Settings
from warehouse.engines import Engine, open_lake
from warehouse.settings import SPARK_EXECUTOR_MEMORY_BYTES, SPARK_MASTER, SPARK_SHUFFLE_PARTITIONS
from warehouse.store import open_store

LOCAL = Settings({SPARK_MASTER.name: "local[2]", SPARK_SHUFFLE_PARTITIONS.name: 2})
UNTIL = {"until": "2026-11-09"}
READY_SECONDS = 60.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a small lake in which everything is sealed."""
    folder = tmp_path_factory.mktemp("lake")
    make_lake(folder, SMALL)
    return folder


@pytest.fixture
def java() -> None:
    """Skip where Spark cannot run."""
    pytest.importorskip("pyspark", reason="needs PySpark: pip install 'trueload[spark]'")
    if shutil.which("java") is None:
        pytest.skip(f"{NEEDS_PACKAGE} openjdk-17-jre-headless")


def different(data: Path, fleet: Fleet, settings: Settings) -> tuple[list[str], int]:
    """Give where the engines' answers differ, and how many values were compared."""
    asked = questions(fleet)
    found = {}
    for engine in Engine:
        with open_lake(data, engine, settings) as opened:
            found[engine], _ = ask_all(opened, asked, pipeline.ANSWERS, settings)
    pairs = zip(asked, found[Engine.DUCKDB], found[Engine.SPARK], strict=True)
    places = [place for question, one, other in pairs for place in differences(one, other, str(question))]
    return places, sum(map(count_values, found[Engine.DUCKDB]))


def test_the_lake_answers_as_the_store_does(data: Path) -> None:
    # Some jobs go on after the last sample: in the lake time ends with the sealed days, in the store with the last job.
    asked = [
        (name, parameters if "week" in parameters else parameters | UNTIL) for name, parameters in questions(SMALL)
    ]
    with open_lake(data, Engine.DUCKDB, LOCAL) as opened:
        from_lake, _ = ask_all(opened, asked, pipeline.ANSWERS, LOCAL)
    store = open_store(data)
    try:
        from_store, _ = ask_all(store, asked, pipeline.ANSWERS, LOCAL)
    finally:
        store.close()
    places = list(differences(from_lake, from_store))
    assert [place for place in places if ".as_of: " not in place] == []


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("java")
def test_spark_gives_the_same_documents_as_duckdb(data: Path) -> None:
    places, compared = different(data, SMALL, LOCAL)
    assert places == []
    assert compared > 1000


def test_a_window_beyond_the_sealed_days_is_refused(data: Path) -> None:
    with open_lake(data, Engine.DUCKDB, LOCAL) as opened:
        with pytest.raises(BadUseError, match="2026-11-09T00:00:00"):
            pipeline.ANSWERS["waste"](opened, LOCAL, {"until": "2026-11-10"})
        with pytest.raises(BadUseError, match="whole sealed days"):
            pipeline.ANSWERS["weekly"](opened, LOCAL, {"week": "2026-W46"})
        document = pipeline.ANSWERS["waste"](opened, LOCAL, {})
    assert document["until"] == "2026-11-09T00:00:00Z"


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ({"a": [1.0, "x", None]}, {"a": [1.0 + 1e-9, "x", None]}, 0),
        ({"a": 1.0}, {"a": 1.00001}, 1),
        ({"a": 1e-11}, {"a": 4e-11}, 0),
        ({"a": None}, {"a": 0.0}, 1),
        ({"a": 1}, {"b": 1}, 1),
        ([1], [1, 2], 1),
        ("x", "y", 1),
        ({"a": math.inf}, {"a": 1.0}, 1),
    ],
)
def test_a_comparison_tells_what_differs(one: object, other: object, count: int) -> None:
    assert len(list(differences(one, other))) == count


def test_the_benchmarks_fleet_is_the_same_each_time(tmp_path: Path) -> None:
    fleet = Fleet(gpus=2, seconds=7200.0, cadence_seconds=60.0)
    tables = []
    for name in ("a", "b"):
        store = open_store(tmp_path / name, create=True)
        write_fleet(store, fleet)
        tables.append(store.read("SELECT * FROM device_sample ORDER BY ALL"))
        store.close()
    assert tables[0].equals(tables[1])
    assert tables[0].num_rows == fleet.samples == 240


# By hand: `pytest -m spark_cluster tests/analysis/test_engines.py`; with TRUELOAD_BENCH_WHOLE=1 the whole size of P9.


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Start a standalone master and two workers of one core on the loopback address; gives the master's address."""
    import pyspark

    launch = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port = _free_port()
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_WORKER_DIR": str(folder),
        "PYSPARK_PYTHON": sys.executable,
    }
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    workers = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "3g"]
    commands += [[*workers, master]] * 2
    log = folder / "cluster.log"
    started: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as stream:
        try:
            started += [
                subprocess.Popen([str(launch), *command], env=environment, stdout=stream, stderr=stream)
                for command in commands
            ]
            deadline = time.monotonic() + READY_SECONDS
            while log.read_text(errors="replace").count("Registering worker") < 2:
                assert time.monotonic() < deadline, log.read_text(errors="replace")
                assert all(process.poll() is None for process in started), log.read_text(errors="replace")
                time.sleep(0.1)
            yield master
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(timeout=30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.spark_cluster
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("java")
def test_a_cluster_of_two_workers_gives_the_same_documents(tmp_path: Path) -> None:
    fleet = WHOLE if os.environ.get("TRUELOAD_BENCH_WHOLE") == "1" else SMALL
    make_lake(tmp_path / "data", fleet)
    with cluster(tmp_path) as master:
        settings = Settings({SPARK_MASTER.name: master, SPARK_EXECUTOR_MEMORY_BYTES.name: 2 * 1024**3})
        places, compared = different(tmp_path / "data", fleet, settings)
    assert places == []
    assert compared > 1000
