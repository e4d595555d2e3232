"""A reader of the Philly research trace, for benchmarks: one line is one job, with its one attempt and allocation.

The trace has no ids: a job is named by its line. Columns are read and turned as a whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from warehouse.arrow import COLUMN_TYPES
from warehouse.contract.errors import BadInputError
from warehouse.importer import ImportedTables, Importer, ImportOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME = "philly"
BLOCK_BYTES = 24 * 1024**2
"""Some 600,000 lines: a transaction of this size takes seconds, and its rows a few hundred MB."""

_SECOND = pa.duration("us")


def _read(path: Path, options: ImportOptions) -> Iterator[ImportedTables]:
    types = {
        "timestamp": pa.timestamp("us"),
        "duration": pa.float64(),
        "num_gpus": pa.float64(),
        "cluster": pa.string(),
    }
    convert = csv.ConvertOptions(column_types=types, include_columns=list(types))
    first = 1
    try:
        with csv.open_csv(path, csv.ReadOptions(block_size=BLOCK_BYTES), convert_options=convert) as reader:
            for batch in reader:
                yield _tables(pa.Table.from_batches([batch]), first, options.cluster)
                first += batch.num_rows
    except (OSError, pa.ArrowException) as cause:
        raise BadInputError(str(path), None, f"cannot be read as the Philly trace ({cause})") from cause


def _tables(rows: pa.Table, first: int, cluster: str) -> ImportedTables:
    line = pa.array(range(first, first + rows.num_rows), pa.int64()).cast(pa.string())
    job = pc.binary_join_element_wise(cluster, line, "/")
    job = pc.binary_join_element_wise(job, "#0", "")
    attempt = pc.binary_join_element_wise(job, ":1", "")
    start = rows["timestamp"]
    length = pc.round(pc.multiply(rows["duration"], 1e6)).cast(pa.int64()).cast(_SECOND)
    end = pc.add(start, length)
    hashes = pd.util.hash_pandas_object(rows.to_pandas(), index=False).to_numpy() >> 1
    return ImportedTables(
        pa.table({"record_key": job, "content_hash": pa.array(hashes.astype("int64"))}),
        {
            "job": _complete(
                "job",
                rows.num_rows,
                {
                    "job_key": job,
                    "cluster": cluster,
                    "scheduler_job_id": line,
                    "source": NAME,
                    "account": rows["cluster"],
                    "submit_at": start,
                    "requested_gpu_count": rows["num_gpus"],
                },
            ),
            "attempt": _complete(
                "attempt",
                rows.num_rows,
                {
                    "attempt_key": attempt,
                    "job_key": job,
                    "state": "completed",
                    "start_at": start,
                    "end_at": end,
                    "source": NAME,
                },
            ),
            "allocation": _complete(
                "allocation",
                rows.num_rows,
                {
                    "allocation_key": pc.binary_join_element_wise(attempt, ":0", ""),
                    "attempt_key": attempt,
                    "gpu_count": rows["num_gpus"],
                    "start_at": start,
                    "end_at": end,
                    "source": NAME,
                    "certainty": "scheduler",
                    "share_ratio": 1.0,
                },
            ),
        },
    )


def _complete(table: str, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """Give all columns of a table: those given, a single value for every row, the others absent."""
    found = {}
    for column, (kind, _) in COLUMN_TYPES[table].items():
        value = columns.get(column)
        if isinstance(value, pa.Array | pa.ChunkedArray):
            found[column] = value.cast(kind)
        else:
            found[column] = pa.repeat(pa.scalar(value, kind), rows)
    return pa.table(found)


PHILLY = Importer(NAME, "Jobs of the Philly trace, for benchmarks.", "philly.csv", _read)
