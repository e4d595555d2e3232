"""What comes in: batches of agents and rows of foreign files, each once and whole.

The ledger row and the rows of a batch are written in one transaction, so a batch that is sent again adds nothing.
Values that cannot be true are set aside and counted by sender and column; the rest of the row is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from warehouse.arrow import to_arrow
from warehouse.contract.errors import BadInputError
from warehouse.contract.metrics import CATALOGUE, Metric
from warehouse.importer import PastAttempt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.client import RecordId
    from warehouse.contract.wire import Batch, Table
    from warehouse.store import Store, Transaction

LEDGER_ONLY = "import_record"
"""A table that travels with imported rows and names the records they came from; it has no table in the store."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What became of a batch: whether it was here before, rows taken, values set aside as impossible."""

    duplicate: bool
    rows: int
    rejected_values: int


def accept_batch(store: Store, batch: Batch) -> Acceptance:
    """Take a batch of an agent or collector.

    Raises:
        BadInputError: a value has the wrong type; nothing of the batch is kept.
        StoreError: the store refused; nothing of the batch is kept.

    """
    if LEDGER_ONLY in batch.tables:
        raise BadInputError(batch.agent, LEDGER_ONLY, "belongs to imports, not to batches")
    checked = {name: _possible(to_arrow(name, table)) for name, table in batch.tables.items() if table.rows}
    rejected = sum((Counter(counts) for _, counts in checked.values()), Counter[str]())
    rows = sum(table.num_rows for table, _ in checked.values())
    with store.transaction() as transaction:
        if not _first_time(transaction, batch, rows, sum(rejected.values())):
            return Acceptance(duplicate=True, rows=0, rejected_values=0)
        for name, (table, _) in checked.items():
            transaction.write_arrow(name, table)
        for column, count in rejected.items():
            transaction.execute(
                "INSERT INTO rejected_value VALUES (?, ?, now()::TIMESTAMP, ?)", [batch.agent, column, count]
            )
    return Acceptance(duplicate=False, rows=rows, rejected_values=sum(rejected.values()))


def which_are_new(store: Store, format_name: str, records: Sequence[RecordId]) -> list[bool]:
    """Say for each record of a foreign file whether this content of it was never loaded."""
    if not records:
        return []
    known = store.known_records(format_name, _as_arrow(records))
    return [(record.record_key, record.content_hash) not in known for record in records]


def load_import(store: Store, format_name: str, records: Sequence[RecordId], tables: Mapping[str, Table]) -> None:
    """Load the rows of new records of a foreign file and remember the records, all or nothing."""
    with store.transaction() as transaction:
        transaction.write({name: table for name, table in tables.items() if name != LEDGER_ONLY})
        transaction.remember_records(format_name, _as_arrow(records))


def past_attempts(store: Store, cluster: str, scheduler_job_ids: Sequence[str]) -> tuple[PastAttempt, ...]:
    """Give the attempts already known of some of a scheduler's job ids, in order of start."""
    rows = store.read(
        """
        SELECT attempt.job_key, attempt_key, state, epoch(attempt.submit_at) AS submit_at,
               epoch(start_at) AS start_at, epoch(end_at) AS end_at
        FROM attempt JOIN job USING (job_key)
        WHERE cluster = ? AND scheduler_job_id IN (SELECT unnest(?::VARCHAR[]))
        ORDER BY start_at, attempt_key
        """,
        [cluster, list(scheduler_job_ids)],
    )
    return tuple(PastAttempt(**row) for row in rows.to_pylist())


def _as_arrow(records: Sequence[RecordId]) -> pa.Table:
    return pa.table(
        {
            "record_key": pa.array([record.record_key for record in records], pa.string()),
            "content_hash": pa.array([record.content_hash for record in records], pa.int64()),
        }
    )


def _first_time(transaction: Transaction, batch: Batch, rows: int, rejected: int) -> bool:
    return bool(
        transaction.execute(
            """
            INSERT INTO batch_ledger VALUES (?, ?, ?, ?, now()::TIMESTAMP, ?, ?)
            ON CONFLICT DO NOTHING RETURNING sequence
            """,
            [batch.agent, batch.boot_id, batch.sequence, batch.part, rows, rejected],
        )
    )


def _possible(rows: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Set impossible metric values of samples to absent and count them by column."""
    rejected: dict[str, int] = {}
    if "cadence_seconds" not in rows.column_names:
        return rows, rejected
    cadence = rows["cadence_seconds"]
    for metric in CATALOGUE:
        for column in metric.columns:
            if column not in rows.column_names:
                continue
            values = rows[column]
            good = pc.fill_null(_is_possible(metric, values, cadence), True)  # noqa: FBT003 - Arrow's signature
            bad = rows.num_rows - (pc.sum(good).as_py() or 0)
            if bad:
                rejected[column] = bad
                cleaned = pc.if_else(good, values, pa.scalar(None, values.type))
                rows = rows.set_column(rows.column_names.index(column), column, cleaned)
    return rows, rejected


def _is_possible(metric: Metric, values: pa.ChunkedArray, cadence: pa.ChunkedArray) -> pa.ChunkedArray:
    """Apply ``metrics.is_possible`` to whole columns."""
    good = pc.is_finite(values)
    if metric.lowest is not None:
        good = pc.and_(good, pc.greater_equal(values, metric.lowest))
    if metric.is_time_within_cadence:
        return pc.and_(good, pc.less_equal(values, cadence))
    return good if metric.highest is None else pc.and_(good, pc.less_equal(values, metric.highest))
