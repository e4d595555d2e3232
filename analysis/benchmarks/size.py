"""P8: how many bytes a sample takes on the way, in the lake and in the hot file, against a plain Parquet file."""

from __future__ import annotations

import tempfile
import time
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.benchmark import Benchmark, BenchRequest, BenchResult, at_most
from analysis.benchmarks._fleet import Fleet, write_fleet
from warehouse import lake
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.store import FILE_NAME, open_store

SMALL = Fleet(gpus=40, seconds=SECONDS_PER_DAY)
WHOLE = Fleet(gpus=400, seconds=SECONDS_PER_DAY)
MOST_BYTES = 26.0
MOST_AGAINST_PLAIN = 1.05
_AFTER_ALL = date(2100, 1, 1)


def run(request: BenchRequest) -> BenchResult:
    """Write one day of a fleet, measure the hot file, seal it, measure the lake."""
    fleet = WHOLE if request.full else SMALL
    not_shown = [
        "real measurements: the samples are made up (a noisy busy share in every job), and an idle fleet packs better",
    ]
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as folder:
        data = Path(folder) / "data"
        store = open_store(data, create=True)
        try:
            write_fleet(store, fleet)
            rows = store.read("SELECT * FROM device_sample ORDER BY device_uuid, sampled_at, source")
            store.read("CHECKPOINT")
            hot = (data / FILE_NAME).stat().st_size
            used = time.process_time()
            for table, day in lake.days_to_seal(store, _AFTER_ALL):
                lake.seal(store, data, table, day)
            used = time.process_time() - used
            sealed = sum(day.file_bytes for day in lake.sealed_days(store) if day.table == "device_sample")
            plain = _plain_bytes(rows, Path(folder) / "plain.parquet")
        finally:
            store.close()
    samples = rows.num_rows
    figures: dict[str, object] = {
        "samples": samples,
        "columns": rows.num_columns,
        "bytes_per_sample": {
            "lake": sealed / samples,
            "parquet_zstd": plain / samples,
            "hot_file": hot / samples,
            "arrow_in_memory": rows.nbytes / samples,
        },
        "seal_cpu_seconds_per_million_samples": 1e6 * used / samples,
        "gib_per_day_of_1000_gpus_at_10_s": sealed / samples * 1000 * SECONDS_PER_DAY / 10 / 1024**3,
    }
    bars = [
        at_most("P8: bytes per sample in the lake", sealed / samples, MOST_BYTES),
        at_most("P8: lake over plain Parquet zstd", sealed / plain, MOST_AGAINST_PLAIN),
    ]
    return BenchResult(figures, bars, not_shown)


def _plain_bytes(rows: pa.Table, path: Path) -> int:
    """Write the same rows in the same order with Arrow's writer and no choices of ours."""
    pq.write_table(rows, path, compression="zstd")
    return path.stat().st_size


BENCHMARK = Benchmark(
    name="size",
    description="P8: bytes per sample in the lake and the hot file, against plain Parquet.",
    run=run,
)
