"""Batches of agents and collectors: checked one by one, written in groups, each once and whole.

Ledger and rows of a group are written in one transaction, so a batch that is sent again adds nothing, and a batch
that was acknowledged is there. Values that cannot be true are set aside and counted by sender and column; the rest of
the row is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from warehouse import tombstones
from warehouse.arrow import columns_of
from warehouse.contract.errors import BadInputError
from warehouse.contract.metrics import CATALOGUE, Metric
from warehouse.contract.wire import LEDGER_ONLY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.contract.wire import Batch
    from warehouse.store import Store, Transaction

_LEDGER = pa.schema(
    [
        ("agent", pa.string()),
        ("boot_id", pa.string()),
        ("sequence", pa.int64()),
        ("part", pa.int64()),
        ("row_count", pa.int64()),
        ("rejected_count", pa.int64()),
    ]
)


Numbers = npt.NDArray[np.float64]
Array: TypeAlias = "pa.Array | pa.ChunkedArray"
Columns = Mapping[str, Array]

_LARGEST = float(np.finfo(np.float32).max)
_BOUNDS = {
    column: (
        -_LARGEST if metric.lowest is None else metric.lowest,
        _LARGEST if metric.highest is None else metric.highest,
        metric.is_time_within_cadence,
    )
    for metric in CATALOGUE
    for column in metric.columns
}
"""By column: least and greatest possible value, and whether it may not exceed the cadence either."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What became of a batch: whether it was here before, rows taken, values set aside as impossible."""

    duplicate: bool
    rows: int
    rejected_values: int


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch whose every value has the right type and can be true: ready to be written."""

    agent: str
    boot_id: str
    sequence: int
    part: int
    tables: Mapping[str, pa.Table]
    rejected: Mapping[str, int]

    @property
    def name(self) -> tuple[str, str, int, int]:
        """Give what names the batch for ever."""
        return self.agent, self.boot_id, self.sequence, self.part

    @property
    def rows(self) -> int:
        """Give the number of rows over all tables."""
        return sum(table.num_rows for table in self.tables.values())

    @property
    def nodes(self) -> set[str]:
        """Give the nodes that any row speaks of."""
        columns = (table["node"] for table in self.tables.values() if "node" in table.column_names)
        return {node for column in columns for node in pc.unique(column).to_pylist() if node is not None}


def check(batch: Batch) -> Checked:
    """Turn a decoded batch into Arrow tables of the store's types, impossible values set aside.

    Raises:
        BadInputError: a value has the wrong type, or a table does not belong into batches.

    """
    return _check(batch, {name: columns_of(name, table) for name, table in batch.tables.items() if table.rows})


def check_arrow(batch: Batch, given: Mapping[str, pa.Table]) -> Checked:
    """Set impossible values of tables aside that have the store's types; ``batch`` tells who sends.

    Raises:
        BadInputError: a table does not belong into batches.

    """
    columns = {
        name: dict(zip(rows.column_names, rows.columns, strict=True)) for name, rows in given.items() if len(rows)
    }
    return _check(batch, columns)


def _check(batch: Batch, given: Mapping[str, Columns]) -> Checked:
    if LEDGER_ONLY in given:
        raise BadInputError(batch.agent, LEDGER_ONLY, "belongs to imports, not to batches")
    tables: dict[str, pa.Table] = {}
    rejected: Counter[str] = Counter()
    for name, columns in given.items():
        possible, counts = _possible(columns)
        tables[name] = pa.Table.from_arrays(list(possible.values()), list(possible))
        rejected.update(counts)
    return Checked(batch.agent, batch.boot_id, batch.sequence, batch.part, tables, rejected)


def commit(store: Store, batches: Sequence[Checked]) -> list[Acceptance]:
    """Write batches together, in the given order; those that are here already, or twice in the group, add nothing.

    Raises:
        StoreError: the store refused; nothing of any of them is kept.

    """
    first = {batch.name: at for at, batch in reversed(list(enumerate(batches)))}
    with store.transaction() as transaction:
        new = _enter(transaction, [batches[at] for at in sorted(first.values())])
        taken = [at for at, batch in enumerate(batches) if first[batch.name] == at and batch.name in new]
        tables = _by_table([batches[at] for at in taken])
        for name in tombstones.in_order(tables):
            transaction.write_arrow(name, tables[name])
        _count_rejected(transaction, [batches[at] for at in taken])
    done = set(taken)
    return [
        Acceptance(duplicate=False, rows=batch.rows, rejected_values=sum(batch.rejected.values()))
        if at in done
        else Acceptance(duplicate=True, rows=0, rejected_values=0)
        for at, batch in enumerate(batches)
    ]


def _enter(transaction: Transaction, batches: Sequence[Checked]) -> set[tuple[str, str, int, int]]:
    """Write the ledger and give the names that were not in it."""
    values = [(*batch.name, batch.rows, sum(batch.rejected.values())) for batch in batches]
    columns = zip(*values, strict=True) if values else ([] for _ in _LEDGER)
    rows = pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, _LEDGER, strict=True)], _LEDGER
    )
    found = transaction.execute_with(
        rows,
        """
        INSERT INTO batch_ledger
        SELECT agent, boot_id, sequence, part, now()::TIMESTAMP, row_count, rejected_count FROM incoming
        ON CONFLICT DO NOTHING RETURNING agent, boot_id, sequence, part
        """,
    )
    return {(str(agent), str(boot), int(str(sequence)), int(str(part))) for agent, boot, sequence, part in found}


def _by_table(batches: Sequence[Checked]) -> dict[str, pa.Table]:
    pieces: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for name, table in batch.tables.items():
            pieces.setdefault(name, []).append(table)
    # One piece of each: the database reads thousands of small ones several times slower.
    return {name: pa.concat_tables(tables).combine_chunks() for name, tables in pieces.items()}


def _count_rejected(transaction: Transaction, batches: Sequence[Checked]) -> None:
    for batch in batches:
        for column, count in batch.rejected.items():
            transaction.execute(
                "INSERT INTO rejected_value VALUES (?, ?, now()::TIMESTAMP, ?)", [batch.agent, column, count]
            )


def _possible(columns: Columns) -> tuple[Columns, dict[str, int]]:
    """Set impossible metric values of samples to absent and count them by column."""
    cadence = columns.get("cadence_seconds")
    if cadence is None or _all_possible(columns, cadence):
        return columns, {}
    cleaned, rejected = dict(columns), {}
    for metric in CATALOGUE:
        for column in metric.columns:
            values = columns.get(column)
            if values is None or values.null_count == len(values):
                continue
            good = pc.fill_null(_is_possible(metric, values, cadence), fill_value=True)
            bad = len(values) - (pc.sum(good).as_py() or 0)
            if bad:
                rejected[column] = bad
                cleaned[column] = pc.if_else(good, values, pa.scalar(None, values.type))
    return cleaned, rejected


def _all_possible(columns: Columns, cadence: Array) -> bool:
    """Say whether surely every value is possible: all columns at once, for a batch has few rows and many columns."""
    names, lowest, highest, within_cadence = _bounds_of(tuple(columns))
    if not names:
        return True
    measured = [columns[name] for name in names]
    together = pa.concat_arrays([piece for array in measured for piece in getattr(array, "chunks", (array,))])
    values = together.to_numpy(zero_copy_only=False).reshape(len(names), len(cadence))
    good = (values >= lowest) & (values <= highest)
    good[within_cadence] &= values[within_cadence] <= cadence.to_numpy(zero_copy_only=False)
    # Absent values have come as NaN, which is never good: where nothing else is wrong there are as many of both.
    return bool(good.size - np.count_nonzero(good) == together.null_count)


@lru_cache(64)
def _bounds_of(columns: tuple[str, ...]) -> tuple[list[str], Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Give a table's measured columns, and their bounds, one row a column."""
    names = [name for name in columns if name in _BOUNDS]
    lowest, highest, within_cadence = np.array([_BOUNDS[name] for name in names]).reshape(-1, 3).T
    return names, lowest[:, None], highest[:, None], within_cadence.astype(bool)


def _is_possible(metric: Metric, values: Array, cadence: Array) -> Array:
    """Apply ``metrics.is_possible`` to whole columns."""
    good = pc.is_finite(values)
    if metric.lowest is not None:
        good = pc.and_(good, pc.greater_equal(values, metric.lowest))
    if metric.is_time_within_cadence:
        return pc.and_(good, pc.less_equal(values, cadence))
    return good if metric.highest is None else pc.and_(good, pc.less_equal(values, metric.highest))
