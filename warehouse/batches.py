"""Batches of agents and collectors: checked and written in groups, each judged by itself, each once and whole.

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
from warehouse.arrow import as_table, columns_of
from warehouse.contract.errors import BadInputError
from warehouse.contract.metrics import CATALOGUE, Metric
from warehouse.contract.wire import LEDGER_ONLY, stacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.contract.wire import Batch, Table
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
Truths = npt.NDArray[np.bool_]
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


PARTS = 8
"""Where something is wrong among batches they are looked at in so many parts, and these in turn, until it is alone."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What became of a batch: whether it was here before, rows taken, values set aside as impossible."""

    duplicate: bool
    rows: int
    rejected_values: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one batch within a table that holds its group's: cutting them out would cost as much as writing them."""

    whole: pa.Table
    begin: int
    rows: int

    @property
    def table(self) -> pa.Table:
        """Cut it out."""
        return self.whole.slice(self.begin, self.rows)


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch whose every value has the right type and can be true: ready to be written."""

    agent: str
    boot_id: str
    sequence: int
    part: int
    pieces: dict[str, Piece]
    rejected: Counter[str]

    @property
    def tables(self) -> dict[str, pa.Table]:
        """Give its rows by table."""
        return {name: piece.table for name, piece in self.pieces.items()}

    @property
    def name(self) -> tuple[str, str, int, int]:
        """Give what names the batch for ever."""
        return self.agent, self.boot_id, self.sequence, self.part

    @property
    def rows(self) -> int:
        """Give the number of rows over all tables."""
        return sum(piece.rows for piece in self.pieces.values())

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


def check_all(batches: Sequence[Batch | Checked]) -> list[Checked | BadInputError]:
    """Check each batch that is not, with the same outcome as ``check``: what it gives, or why the batch is refused.

    All at once where nothing is wrong, for a small batch by itself costs several times what its values do.
    """
    if len(batches) > 1:
        together = _check_together(batches)
        if together is None:
            part = -(-len(batches) // PARTS)
            pieces = (check_all(batches[at : at + part]) for at in range(0, len(batches), part))
            return [outcome for piece in pieces for outcome in piece]
        return together
    found: list[Checked | BadInputError] = []
    for batch in batches:
        try:
            found.append(batch if isinstance(batch, Checked) else check(batch))
        except BadInputError as error:
            found.append(error)
    return found


def _check_together(batches: Sequence[Batch | Checked]) -> list[Checked | BadInputError] | None:
    """Check batches as if they were one, or give None where any of them is to be refused."""
    given: dict[str, list[tuple[int, Table]]] = {}
    for at, batch in enumerate(batches):
        if not isinstance(batch, Checked):
            for name, table in batch.tables.items():
                if table.rows:
                    given.setdefault(name, []).append((at, table))
    found = [batch if isinstance(batch, Checked) else _nothing_of(batch) for batch in batches]
    for name, owned in given.items():
        try:
            columns, impossible = _possible(columns_of(name, stacked([table for _, table in owned])))
        except BadInputError:
            return None
        if name == LEDGER_ONLY:
            return None
        rows, begin = as_table(columns), 0
        for at, table in owned:
            end = begin + table.rows
            counts = {column: int(np.count_nonzero(places[begin:end])) for column, places in impossible.items()}
            found[at].rejected.update({column: count for column, count in counts.items() if count})
            found[at].pieces[name] = Piece(rows, begin, table.rows)
            begin = end
    return [*found]


def _nothing_of(batch: Batch) -> Checked:
    return Checked(batch.agent, batch.boot_id, batch.sequence, batch.part, {}, Counter())


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
    checked = _nothing_of(batch)
    for name, columns in given.items():
        possible, impossible = _possible(columns)
        rows = as_table(possible)
        checked.pieces[name] = Piece(rows, 0, rows.num_rows)
        checked.rejected.update({column: int(np.count_nonzero(places)) for column, places in impossible.items()})
    return checked


def commit(store: Store, batches: Sequence[Checked]) -> list[Acceptance]:
    """Write batches together, in the given order; those that are here already, or twice in the group, add nothing.

    Raises:
        StoreError: the store refused; nothing of any of them is kept.

    """
    first = {batch.name: at for at, batch in reversed(list(enumerate(batches)))}
    with store.transaction(at_once=False) as transaction:
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
    found: dict[str, list[Piece]] = {}
    for batch in batches:
        for name, piece in batch.pieces.items():
            row = found.setdefault(name, [])
            last = row[-1] if row else None
            if last is not None and last.whole is piece.whole and last.begin + last.rows == piece.begin:
                row[-1] = Piece(last.whole, last.begin, last.rows + piece.rows)
            else:
                row.append(piece)
    # One piece of each: the database reads thousands of small ones several times slower.
    return {name: pa.concat_tables([piece.table for piece in row]).combine_chunks() for name, row in found.items()}


def _count_rejected(transaction: Transaction, batches: Sequence[Checked]) -> None:
    for batch in batches:
        for column, count in batch.rejected.items():
            transaction.execute(
                "INSERT INTO rejected_value VALUES (?, ?, now()::TIMESTAMP, ?)", [batch.agent, column, count]
            )


def _possible(columns: Columns) -> tuple[Columns, dict[str, Truths]]:
    """Set impossible metric values of samples to absent, and say by column in which rows they were."""
    cadence = columns.get("cadence_seconds")
    if cadence is None or _all_possible(columns, cadence):
        return columns, {}
    cleaned, impossible = dict(columns), {}
    for metric in CATALOGUE:
        for column in metric.columns:
            values = columns.get(column)
            if values is None or values.null_count == len(values):
                continue
            good = pc.fill_null(_is_possible(metric, values, cadence), fill_value=True)
            if not pc.all(good).as_py():
                impossible[column] = ~good.to_numpy(zero_copy_only=False)
                cleaned[column] = pc.if_else(good, values, pa.scalar(None, values.type))
    return cleaned, impossible


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
def _bounds_of(columns: tuple[str, ...]) -> tuple[list[str], Numbers, Numbers, Truths]:
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
