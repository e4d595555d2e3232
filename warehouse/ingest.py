"""Rows of foreign files: each record's content once, all of a chunk or nothing (docs/decisions/0002)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from warehouse import tombstones
from warehouse.contract.wire import LEDGER_ONLY
from warehouse.importer import ImportedTables, PastAttempt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.client import RecordId
    from warehouse.contract.wire import Table
    from warehouse.store import Store


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


def load_tables(store: Store, format_name: str, given: ImportedTables) -> int:
    """Load those of many records that were never loaded and remember them, all or nothing; gives how many."""
    with store.transaction() as transaction:
        new = transaction.new_records(format_name, given.records)
        if len(new):
            tables = {name: table.take(new) for name, table in given.tables.items()}
            for name in tombstones.in_order(tables):
                transaction.write_arrow(name, tables[name])
            transaction.remember_records(format_name, given.records.take(new))
    return len(new)


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
