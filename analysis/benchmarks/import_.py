"""P6: how long five million jobs take to come in, with how much memory, and that a second time changes nothing."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_least, at_most
from analysis.benchmarks._philly import PHILLY
from analysis.benchmarks._sources import files
from warehouse import loading
from warehouse.contract.units import SECONDS_PER_HOUR
from warehouse.importer import ImportOptions
from warehouse.layout import quoted
from warehouse.store import open_store

if TYPE_CHECKING:
    from warehouse.client import Client
    from warehouse.loading import ImportReport

SOURCE, FILE = "philly_jobs", "philly.csv.gz"
COPIES, SMALL_COPIES = 75, 5
SHIFT_DAYS = 60
MOST_SECONDS, MOST_BYTES = 60.0, 4e9
LEAST_RECORDS_A_SECOND = 80_000.0


def run(request: BenchRequest) -> BenchResult:
    """Write the trace several times over, each copy later than the one before, and import it twice."""
    not_shown = [
        "importers that read line by line (sacct and others): they make each record by itself",
        "the trace's own oddities: its jobs have no user, no name and no state",
    ]
    sources = files(request.data_root, SOURCE, FILE)
    if not sources:
        return BenchResult({}, (), [*not_shown, f"{SOURCE}: not below {request.data_root}"])
    copies = COPIES if request.full else SMALL_COPIES
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as folder:
        trace = Path(folder) / "philly.csv"
        gpu_seconds = _write_copies(sources, trace, copies)
        client = request.open_client(Path(folder) / "data", True)  # noqa: FBT003 - create the store
        try:
            first, seconds = _timed(client, trace)
            again, again_seconds = _timed(client, trace)
        finally:
            client.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        allocated = _allocated_seconds(Path(folder) / "data")
    figures: dict[str, object] = {
        "jobs": first.read,
        "seconds": seconds,
        "jobs_per_second": first.read / seconds,
        "second_time_seconds": again_seconds,
        "peak_memory_bytes": peak,
        "gpu_hours": allocated / SECONDS_PER_HOUR,
        "gpu_hours_expected": gpu_seconds / SECONDS_PER_HOUR,
    }
    off = abs(allocated - gpu_seconds) / gpu_seconds
    bars = [
        Bar("P6: jobs kept", float(first.kept), f"{first.read}", holds=first.kept == first.read > 0),
        Bar("P6: jobs kept the second time", float(again.kept), "0", holds=again.kept == 0),
        at_most("P6: GPU-hours that differ from the file's, share", off, 1e-6),
        at_least("P6: jobs per second", first.read / seconds, LEAST_RECORDS_A_SECOND),
        at_most("P6: peak memory, bytes", float(peak), MOST_BYTES),
    ]
    if request.full:
        bars.append(at_most("P6: seconds for 5 M jobs", seconds, MOST_SECONDS))
    else:
        not_shown.append(f"all {COPIES} copies: --full")
    return BenchResult(figures, bars, not_shown)


def _write_copies(sources: list[Path], target: Path, copies: int) -> float:
    """Write the jobs of all parts, shifted by a whole number of days for each copy; gives their GPU-seconds."""
    listed = ", ".join(map(quoted, sources))
    with duckdb.connect() as connection:
        connection.execute(
            f"""
            CREATE TABLE shifted AS
            SELECT "timestamp"::TIMESTAMP + to_days(({SHIFT_DAYS} * copy)::INTEGER) AS "timestamp", duration, num_gpus,
                   gpu_time, cluster
            FROM read_csv([{listed}]), range({copies}) AS copies(copy)
            """  # noqa: S608 - whole numbers and quoted paths
        )
        connection.execute(f"COPY shifted TO {quoted(target)} (HEADER)")
        row = connection.execute("SELECT sum(duration * num_gpus) FROM shifted").fetchone()
    return float(row[0]) if row else 0.0


def _allocated_seconds(data: Path) -> float:
    store = open_store(data)
    try:
        rows = store.read("SELECT sum(gpu_count * share_ratio * epoch(end_at - start_at)) AS seconds FROM allocation")
    finally:
        store.close()
    return float(rows["seconds"][0].as_py() or 0.0)


def _timed(client: Client, trace: Path) -> tuple[ImportReport, float]:
    began = time.perf_counter()
    report = loading.load_files(client, PHILLY, [trace], ImportOptions("philly", "UTC"))
    return report, time.perf_counter() - began


BENCHMARK = Benchmark(
    name="import",
    description="P6: the Philly trace 75 times over, imported twice: time, memory, nothing doubled.",
    run=run,
)
