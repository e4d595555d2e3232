"""The lake on an engine: the same tables, and so the same answers, from DuckDB or from Spark.

An engine reads what ``lake/manifest.json`` names and nothing else: whole sealed days of samples, and the snapshots of
the keyed tables that were published with them. Rows that are still hot are not visible here: answers end where the last
sealed day ends (``Tables.samples_end_at``). No server has to run, and a running one is not disturbed.
"""

from __future__ import annotations

import json
import re
import uuid
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa

from warehouse import aliases, lake_copy, layout, queries
from warehouse.contract.errors import StoreError
from warehouse.contract.node_keys import UNKNOWN
from warehouse.contract.rollups import HOUR, RolledHour, Rule
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.due import SAMPLES
from warehouse.files import LocalFiles
from warehouse.settings import (
    COPY_ENDPOINT_URL,
    COPY_REGION,
    SPARK_DRIVER_HOST,
    SPARK_DRIVER_MEMORY_BYTES,
    SPARK_EXECUTOR_MEMORY_BYTES,
    SPARK_MASTER,
    SPARK_SHUFFLE_PARTITIONS,
)
from warehouse.stored import STORED_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ibis.backends.sql import SQLBackend
    from ibis.expr.types import Table

    from warehouse.client import Answer, Document, Parameters
    from warehouse.contract.settings import Settings
    from warehouse.files import Files

_EPOCH = date(1970, 1, 1)
_VERSION = 1


class Engine(StrEnum):
    """What runs the expressions."""

    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is valid in a lake: the files of each table, and the instant at which the sealed samples end.

    ``sealed_until_at`` is the end of the last sealed day of device samples or their roll-ups, in seconds since the
    epoch; None: no day is sealed.
    """

    files: Mapping[str, Sequence[str]]
    sealed_until_at: float | None
    rolled: Sequence[RolledHour] = ()


class Lake:
    """A lake on an engine, as answers read it (``sight.Sight``). Who can read the files sees everything."""

    def __init__(self, tables: queries.Tables) -> None:
        """Take over bound tables; use ``open_lake``."""
        self._tables = tables
        self._version = uuid.uuid4().hex

    @contextmanager
    def snapshot(self) -> Iterator[queries.Tables]:
        """Give the tables of the manifest that was read at opening."""
        yield self._tables

    def data_version(self) -> str:
        """Give a text of this opening alone: what it reads never changes."""
        return self._version

    def fleet_version(self) -> str:
        """Give the data version."""
        return self._version


def read_manifest(data: Path) -> Manifest:
    """Read what is valid in a data directory's lake; see ``manifest_of``."""
    return manifest_of(LocalFiles(data / layout.FOLDER))


def manifest_of(files: Files) -> Manifest:
    """Read what is valid in a lake, or in its copy at another address.

    Raises:
        StoreError: nothing was sealed and published there yet, or the manifest cannot be used.

    """
    path = f"{files.address}/{layout.MANIFEST}"
    try:
        text = files.read(layout.MANIFEST)
    except FileNotFoundError as cause:
        raise StoreError(
            f"{path}: no lake here yet; a running `trueload serve` seals days that ended and publishes them"
        ) from cause
    except OSError as cause:
        raise StoreError(str(cause)) from cause
    try:
        content = json.loads(text)
        _require_version(content["version"])
        parts = content.get("parts", {})

        def named(folder: str) -> str:
            return files.for_engines(f"{folder}/{parts.get(folder, layout.PART)}")

        read = {table: [named(folder)] for table, folder in content["snapshots"].items()}
        last = _EPOCH
        for day in content["days"]:
            read.setdefault(day["table"], []).append(named(day["path"]))
            if day["table"] in (SAMPLES, HOUR):
                last = max(last, date.fromisoformat(day["date"]) + timedelta(days=1))
        rolled = tuple(map(_rolled_hour, content.get("rolled_hours", ())))
    except (ValueError, LookupError, TypeError, AttributeError) as cause:
        raise StoreError(f"{path}: cannot be used as a lake's manifest ({cause})") from cause
    until = (last - _EPOCH).days * SECONDS_PER_DAY
    return Manifest(read, until if last > _EPOCH else None, rolled)


def _require_version(version: object) -> None:
    if version != _VERSION:
        raise ValueError(f"version {version}, expected {_VERSION}")


def _rolled_hour(row: Sequence[Any]) -> RolledHour:
    at, threshold, cadences, pause, longest, _, samples_gone, minutes_gone = row
    return RolledHour(at, Rule(threshold, cadences, pause), longest, samples_gone, minutes_gone)


@contextmanager
def open_lake(data: Path, engine: Engine, settings: Settings) -> Iterator[Lake]:
    """Open a data directory's lake, or its copy where ``lake.copy_address`` names one, on an engine.

    Leaving ends the engine's session.

    Raises:
        StoreError: there is no lake, or the engine cannot be started.

    """
    files = lake_copy.copy_of(settings) or LocalFiles(data / layout.FOLDER)
    manifest = manifest_of(files)
    with ExitStack() as stack:
        if engine is Engine.DUCKDB:
            backend = _on_duckdb(stack, manifest, files)
        else:
            backend = _on_spark(stack, manifest, settings)
        views = _name_attempts(backend, manifest)
        known = {
            name: _complete(backend, name, views.get(name, name), name in manifest.files)
            for name in queries.TABLE_NAMES
        }
        yield Lake(queries.Tables(**known, samples_end_at=manifest.sealed_until_at, rolled=manifest.rolled))


def ask(
    data: Path, engine: Engine, question: str, parameters: Parameters, answers: Mapping[str, Answer], settings: Settings
) -> Document:
    """Have an engine answer one question from a data directory's lake.

    Raises:
        BadUseError: a parameter cannot be used, or the window ends after the last sealed day.
        NotFoundError: the thing asked for is not there.
        StoreError: there is no lake, or the engine cannot be started.

    """
    with open_lake(data, engine, settings) as lake:
        return answers[question](lake, settings, parameters)


def _name_attempts(backend: Any, manifest: Manifest) -> dict[str, str]:
    """Make a view of each table in which node keys are the attempts that they mean; gives their names."""
    if aliases.TABLE not in manifest.files:
        return {}
    known = backend.table(aliases.TABLE).filter(ibis._.certainty != UNKNOWN)
    count, timed = known.aggregate(all=known.count(), timed=known.since_at.count()).to_pyarrow().to_pylist()[0].values()
    views: dict[str, str] = {}
    for table in queries.TABLE_NAMES if count else ():
        columns = backend.table(table).columns if table in manifest.files and table != "attempt" else ()
        if "attempt_key" in columns:
            views[table] = f"named_{table}"
            query = aliases.naming(table, columns, table, timed=timed > 0)
            backend.raw_sql(f"CREATE OR REPLACE TEMPORARY VIEW named_{table} AS {query}")
    return views


def _complete(backend: SQLBackend, name: str, view: str, has_files: bool) -> Table:  # noqa: FBT001 - one call, above
    """Give a table with every column that the store has: one that came after all files were written is absent there."""
    schema = ibis.Schema.from_pyarrow(pa.schema([(column, kind) for column, (kind, _) in STORED_TYPES[name].items()]))
    if not has_files:
        return ibis.memtable([], schema=schema)
    table = backend.table(view)
    missing = {column: ibis.null(kind) for column, kind in schema.items() if column not in table.columns}
    return table.mutate(**missing) if missing else table


def _on_duckdb(stack: ExitStack, manifest: Manifest, files: Files) -> SQLBackend:
    backend = ibis.duckdb.connect()
    stack.callback(backend.disconnect)
    files.register(backend.con)
    backend.raw_sql("SET TimeZone = 'UTC'")
    for table, named in manifest.files.items():
        backend.raw_sql(f'CREATE TEMP VIEW "{table}" AS SELECT * FROM {layout.read(*named)}')
    return backend


def _on_spark(stack: ExitStack, manifest: Manifest, settings: Settings) -> SQLBackend:
    session = start_spark(settings)
    stack.callback(session.stop)
    backend = ibis.pyspark.connect(session)
    for table, named in manifest.files.items():
        files = [re.sub("^s3://", "s3a://", file) for file in named]  # what Hadoop calls it
        # Files of several days may differ by columns that came later: as in DuckDB, a missing one is absent.
        session.read.option("mergeSchema", "true").parquet(*files).createOrReplaceTempView(table)
    return backend


def start_spark(settings: Settings) -> Any:
    """Start a Spark session, or join the cluster of ``spark.master``.

    Raises:
        StoreError: PySpark or Java is missing, or the master cannot be reached.

    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as cause:
        raise StoreError("the engine spark needs PySpark: pip install 'trueload[spark]', and Java 17") from cause
    builder = SparkSession.builder.appName("trueload").master(settings[SPARK_MASTER])
    # It speaks of its own pandas API, which is not used here: rows come and go as plain frames of plain columns.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    for name, value in spark_options(settings).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as cause:
        raise StoreError(
            f"Spark could not be started on {settings[SPARK_MASTER]!r} ({str(cause).splitlines()[0]}); "
            "it needs Java 17 or newer (Debian package openjdk-17-jre-headless) and a master that answers"
        ) from cause


def spark_options(settings: Settings) -> dict[str, str]:
    """Give the options of a session: Spark's names with values as text."""
    host = settings[SPARK_DRIVER_HOST]
    store = {
        "spark.hadoop.fs.s3a.endpoint": settings[COPY_ENDPOINT_URL],
        "spark.hadoop.fs.s3a.endpoint.region": settings[COPY_REGION],
        # Stores other than Amazon's have their buckets in the path and not in the host's name.
        "spark.hadoop.fs.s3a.path.style.access": "true" if settings[COPY_ENDPOINT_URL] else "",
    }
    return {name: value for name, value in store.items() if value} | {
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.driver.memory": _mebibytes(settings[SPARK_DRIVER_MEMORY_BYTES]),
        "spark.executor.memory": _mebibytes(settings[SPARK_EXECUTOR_MEMORY_BYTES]),
        "spark.sql.shuffle.partitions": str(settings[SPARK_SHUFFLE_PARTITIONS]),
        "spark.sql.session.timeZone": "UTC",
        # Whether rows of one key come from one file or several must not matter; statistics decide the joins.
        "spark.sql.adaptive.enabled": "true",
        # Our rows come here as Arrow, not one Python object a cell.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }


def _mebibytes(count: int) -> str:
    return f"{count // 1024**2}m"
