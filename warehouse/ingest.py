"""Rows of foreign files: each record's content once, all of a chunk or nothing (docs/decisions/0002)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from warehouse import layout, tombstones
from warehouse.arrow import to_arrow
from warehouse.contract.wire import LEDGER_ONLY
from warehouse.importer import ImportedTables, PastAttempt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.client import RecordId
    from warehouse.contract.wire import Table
    from warehouse.store import Store, Transaction

SAMPLES = "device_sample"
SAMPLE_KEY = ("cluster", "node", "device_uuid", "source", "sampled_at", "attempt_key")
"""What makes two imported samples the same."""


def which_are_new(store: Store, format_name: str, records: Sequence[RecordId]) -> list[bool]:
    """Say for each record of a foreign file whether this content of it was never loaded."""
    if not records:
        return []
    known = store.known_records(format_name, _as_arrow(records))
    return [(record.record_key, record.content_hash) not in known for record in records]


def load_import(store: Store, format_name: str, records: Sequence[RecordId], tables: Mapping[str, Table]) -> None:
    """Load the rows of new records of a foreign file and remember the records, all or nothing.

    A sample of a device is written where none of the same source, instant and owner is there, hot or sealed: exports
    overlap, and what was measured does not change.
    """
    with store.transaction() as transaction:
        transaction.write({name: table for name, table in tables.items() if name not in (LEDGER_ONLY, SAMPLES)})
        if SAMPLES in tables and tables[SAMPLES].rows:
            transaction.write_arrow(SAMPLES, _not_there(store, transaction, to_arrow(SAMPLES, tables[SAMPLES])))
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


def _not_there(store: Store, transaction: Transaction, rows: pa.Table) -> pa.Table:
    """Give the samples that are not in the store yet, each once."""
    within = [pc.min(rows["sampled_at"]).as_py(), pc.max(rows["sampled_at"]).as_py()]
    keys = ", ".join(SAMPLE_KEY)
    parts = [f"SELECT {keys} FROM {SAMPLES} WHERE sampled_at BETWEEN '{within[0]}' AND '{within[1]}'"]
    sealed = transaction.execute(
        "SELECT date, generation FROM sealed_day WHERE table_name = ? AND date BETWEEN ?::DATE AND ?::DATE",
        [SAMPLES, *within],
    )
    if sealed:
        files = [layout.part(store.data, SAMPLES, day, generation) for day, generation in sealed]  # type: ignore[arg-type]
        parts.append(f"SELECT {keys} FROM {layout.read(*files)}")
    same = " AND ".join(f"known.{name} IS NOT DISTINCT FROM incoming.{name}" for name in SAMPLE_KEY)
    numbered = rows.select(list(SAMPLE_KEY)).append_column("position", pa.array(range(rows.num_rows), pa.int64()))
    found = transaction.execute_with(
        numbered,
        f"SELECT min(position) FROM incoming ANTI JOIN ({' UNION ALL '.join(parts)}) AS known ON {same} "
        f"GROUP BY {keys} ORDER BY 1",
    )
    return rows.take(pa.array([position for (position,) in found], pa.int64()))


def past_attempts(store: Store, cluster: str, scheduler_job_ids: Sequence[str]) -> tuple[PastAttempt, ...]:
    """Give the attempts already known of some of a scheduler's job ids, in order of start.

    A pod is known by its ``namespace/name`` too, which is not its job's id.
    """
    rows = store.read(
        """
        SELECT attempt.job_key, attempt_key, state, epoch(attempt.submit_at) AS submit_at,
               epoch(start_at) AS start_at, epoch(end_at) AS end_at
        FROM attempt JOIN job USING (job_key)
        WHERE cluster = ? AND (scheduler_job_id IN (SELECT unnest(?::VARCHAR[]))
                               OR other_id IN (SELECT unnest(?::VARCHAR[])))
        ORDER BY start_at, attempt_key
        """,
        [cluster, list(scheduler_job_ids), list(scheduler_job_ids)],
    )
    return tuple(PastAttempt(**row) for row in rows.to_pylist())


def _as_arrow(records: Sequence[RecordId]) -> pa.Table:
    return pa.table(
        {
            "record_key": pa.array([record.record_key for record in records], pa.string()),
            "content_hash": pa.array([record.content_hash for record in records], pa.int64()),
        }
    )
