"""From wire tables to Arrow tables with the store's types, checking every value's type on the way."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from warehouse.contract import model
from warehouse.contract.errors import BadInputError
from warehouse.contract.metrics import METRIC_COLUMNS
from warehouse.contract.wire import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.contract.wire import Column, Value

_INSTANT = pa.timestamp("us")
_NARROW = pa.float32()
_TYPES = {"str": pa.string(), "AttemptState": pa.string(), "float": pa.float64(), "int": pa.int64(), "bool": pa.bool_()}
OUTSIDE = "an instant lies outside the years that can be kept"
_NUMBERS = frozenset({float, int})
_MICROSECONDS = 1_000_000
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)
MOST_ROWS_REMEMBERED = 1024
"""Columns of one value are remembered up to this length, 256 of them: 10 MB at most where texts are short."""
_LATEST = 253_402_300_799.0
"""The last second of the year 9999, the latest instant that every reader of the store can show."""


def _record_types(kind: type[model.Record | model.Sample]) -> dict[str, tuple[pa.DataType, bool]]:
    types = {}
    for item in fields(kind):
        text, _, absent = str(item.type).partition(" | ")
        types[item.name] = (_INSTANT if item.name.endswith("_at") else _TYPES[text], not absent)
    return types


COLUMN_TYPES: dict[str, dict[str, tuple[pa.DataType, bool]]] = {
    **{name: _record_types(kind) for name, kind in model.RECORDS.items()},
    **{name: _record_types(kind) for name, kind in model.SAMPLES.items()},
    "device_sample": {
        "cluster": (pa.string(), True),
        "node": (pa.string(), True),
        "device_uuid": (pa.string(), True),
        "sampled_at": (_INSTANT, True),
        "cadence_seconds": (pa.float32(), True),
        "source": (pa.string(), True),
        "attempt_key": (pa.string(), False),
        "share_ratio": (pa.float32(), False),
        "attribution": (pa.string(), False),
        **{column: (pa.float32(), False) for column in METRIC_COLUMNS},
    },
    "import_record": {"record_key": (pa.string(), True), "content_hash": (pa.int64(), True)},
}
"""Type of every column that may travel, and whether it must be present in every row."""


def to_arrow(name: str, table: Table) -> pa.Table:
    """Give a wire table as an Arrow table of the store's types. Columns left out become absent values.

    Raises:
        BadInputError: a value has the wrong type, an instant is out of range, a required value is missing.

    """
    columns = columns_of(name, table)
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def columns_of(name: str, table: Table) -> dict[str, pa.Array]:
    """Give every column of a wire table, as ``to_arrow`` does."""
    types = COLUMN_TYPES[name]
    measured = _measured(table, types)
    columns = {}
    for column, (kind, required) in types.items():
        array = measured.get(column)
        if array is None:
            array = _array(f"{name}.{column}", table.columns.get(column), table.rows, kind)
        if required and array.null_count:
            raise BadInputError(name, column, "a value is missing, and every row must have one")
        columns[column] = array
    return columns


def to_wire(rows: pa.Table) -> Table:
    """Give an Arrow table of the store's types as a wire table; instants become seconds."""
    columns: dict[str, Column] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            column = pc.divide(column.cast(pa.int64()).cast(pa.float64()), _MICROSECONDS)  # noqa: PLW2901 - the same column
        columns[field.name] = column.to_pylist()
    return Table(rows.num_rows, columns)


def _measured(table: Table, types: Mapping[str, tuple[pa.DataType, bool]]) -> dict[str, pa.Array]:
    """Give the columns of narrow numbers all at once: a sample has dozens, and each call costs as much as its values.

    Gives none where any is not as it should be; one by one it shows which.
    """
    lists = {
        name: values for name, values in table.columns.items() if types[name][0] == _NARROW and type(values) is list
    }
    if not lists or set(map(len, lists.values())) != {table.rows}:
        return {}
    try:
        numbers = pa.array(list(chain.from_iterable(lists.values())), pa.float64())
    except _REFUSED:
        return {}
    narrow = numbers.cast(_NARROW, safe=False)
    return {name: narrow.slice(at * table.rows, table.rows) for at, name in enumerate(lists)}


def _array(where: str, values: Column, rows: int, kind: pa.DataType) -> pa.Array:
    if values is None or isinstance(values, (str, int, float, bool)):
        repeat = _repeated if rows <= MOST_ROWS_REMEMBERED else _repeated.__wrapped__
        return repeat(where, values, rows, kind)
    target = _read_as(kind)
    try:
        if target == pa.float64() and _NUMBERS.issuperset(map(type, values)):
            # Nearly every column of a batch is this, and Arrow's own way costs several times as much for few rows.
            return _of_numbers(where, np.array(values, np.float64), kind)
        array = pa.array(values, type=target)
    except _REFUSED as cause:
        raise _wrong(where, target, cause) from cause
    return _typed(where, array, kind)


@lru_cache(256, typed=True)
def _repeated(where: str, value: Value, rows: int, kind: pa.DataType) -> pa.Array:
    """Give a column that has one value in every row; batches of one sender have the same ones each time."""
    if value is None:
        return pa.nulls(rows, kind)
    target = _read_as(kind)
    try:
        array = pa.repeat(pa.scalar(value, type=target), rows)
    except _REFUSED as cause:
        raise _wrong(where, target, cause) from cause
    return _typed(where, array, kind)


def _read_as(kind: pa.DataType) -> pa.DataType:
    # Narrow numbers are read wide first: Arrow refuses a whole number that a narrow one cannot hold to the last digit.
    return pa.float64() if kind in (_INSTANT, _NARROW) else kind


def _typed(where: str, array: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind == array.type:
        return array
    return _instants(where, array) if kind == _INSTANT else array.cast(kind, safe=False)


def _wrong(where: str, target: pa.DataType, cause: Exception) -> BadInputError:
    return BadInputError(where, None, f"expected values of type {target} ({str(cause).splitlines()[0]})")


def _of_numbers(where: str, numbers: npt.NDArray[np.float64], kind: pa.DataType) -> pa.Array:
    if kind == _INSTANT:
        if not (np.abs(numbers) <= _LATEST).all():
            raise BadInputError(where, None, OUTSIDE)
        return pa.array(np.rint(numbers * _MICROSECONDS).astype("datetime64[us]"))
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is set aside as impossible later
        return pa.array(numbers.astype(np.float32) if kind == _NARROW else numbers)


def _instants(where: str, seconds: pa.Array) -> pa.Array:
    inside = pc.and_(pc.greater_equal(seconds, -_LATEST), pc.less_equal(seconds, _LATEST))
    if pc.all(inside).as_py() not in (True, None):
        raise BadInputError(where, None, OUTSIDE)
    return pc.round(pc.multiply(seconds, _MICROSECONDS)).cast(pa.int64()).cast(_INSTANT)
