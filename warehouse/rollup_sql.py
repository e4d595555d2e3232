"""The statements that write roll-ups: the expressions of ``rolling`` as DuckDB's SQL, each made once."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa

from warehouse import rolling
from warehouse.contract.rollups import BUCKET_SECONDS, MEASURES, MINUTE, SOURCE_COUNTS
from warehouse.due import SAMPLES
from warehouse.stored import STORED_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from warehouse.contract.rollups import Rule

READ, PIECES = "rolling_sample", "rolling_piece"
"""The view of samples and the table of pieces that the statements read."""

_COUNTED = {
    name: "gpu_bound_seconds" if name == "gpu_bound_count" else name.replace("_count", "_ratio")
    for name in SOURCE_COUNTS
}
SOURCE_ROWS = (
    "SELECT device_uuid, attempt_key, source, date_trunc('hour', sampled_at)::TIMESTAMP AS bucket_at, "
    + ", ".join(f"count({column}) AS {name}" for name, column in _COUNTED.items())
    + f" FROM {READ}"
)
"""Rows of ``rollup_source``; a condition on ``sampled_at`` and ``GROUP BY ALL`` follow."""


def inside(column: str, begin: datetime, end: datetime) -> str:
    """Give the condition that an instant lies in ``[begin, end)``."""
    return (
        f"WHERE {column} >= TIMESTAMP '{begin.isoformat(sep=' ')}' AND {column} < TIMESTAMP '{end.isoformat(sep=' ')}'"
    )


@lru_cache(8)
def statements(rule: Rule, *, several: bool) -> tuple[str, Mapping[str, str]]:
    """Give the query of the pieces, and by roll-up that of its rows; a condition on ``bucket_at`` may follow."""
    how = rolling.Rolling(rule, several=several)
    columns = pa.schema([(column, kind) for column, (kind, _) in STORED_TYPES[SAMPLES].items()])
    finest = BUCKET_SECONDS[MINUTE]
    pieces = rolling.pieces(ibis.table(ibis.Schema.from_pyarrow(columns), name=READ), finest, how)
    kept = ibis.table(pieces.schema(), name=PIECES)
    found = {
        table: kept if seconds == finest else rolling.coarser(kept, seconds // finest)
        for table, seconds in BUCKET_SECONDS.items()
    }
    rows = {table: _as_stored(rolling.rows(found[table], how), seconds) for table, seconds in BUCKET_SECONDS.items()}
    return _sql(pieces), rows


def _as_stored(found: Any, seconds: int) -> str:
    """Give the SQL of rows as their table has them."""
    told = {
        "bucket_at": f"make_timestamp(bucket * {seconds * rolling.MICROSECONDS})",
        "start_at": 'make_timestamp("start")',
        "end_at": 'make_timestamp("end")',
        "seen_start_at": "make_timestamp(seen_start)",
        "seen_end_at": "make_timestamp(seen_end)",
        "attempt_key": "nullif(owner, '')",
        "activity_code": "code",
    }
    kept = ("cluster", "node", "device_uuid", "lasting", "sample_count", "covered_seconds", *MEASURES)
    columns = ", ".join([*(f"{sql} AS {name}" for name, sql in told.items()), *(f'"{name}"' for name in kept)])
    return f"SELECT * FROM (SELECT {columns} FROM ({_sql(found)}) AS found) AS stored"


def _sql(expression: Any) -> str:
    return str(ibis.to_sql(expression, dialect="duckdb"))
