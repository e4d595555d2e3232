"""Type of every column of every table that analyses read: what travels, and what the store makes of it."""

from __future__ import annotations

import pyarrow as pa

from warehouse.arrow import COLUMN_TYPES
from warehouse.contract import rollups

_TYPES = {
    "str": pa.string(),
    "instant": pa.timestamp("us"),
    "int": pa.int64(),
    "bool": pa.bool_(),
    "float": pa.float64(),
}

STORED_TYPES: dict[str, dict[str, tuple[pa.DataType, bool]]] = COLUMN_TYPES | {
    table: {column: (_TYPES[kind], required) for column, (kind, required) in columns.items()}
    for table, columns in rollups.COLUMNS.items()
}
"""Type of every column, and whether each row has a value. Roll-ups do not travel: no batch may hold them."""
