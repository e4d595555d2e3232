"""Which hours are summed up, and which changed since: noted with the samples, read with the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from warehouse.contract.rollups import RolledHour, Rule

if TYPE_CHECKING:
    import duckdb

    from warehouse.store import Transaction

SAMPLES = "device_sample"
"""The table that roll-ups are made of."""


def note(transaction: Transaction, rows: pa.Table) -> None:
    """Write down which hours samples were written into, in their transaction.

    Always as new rows: the transaction that sums an hour up removes the notes that it sees, so that one which came
    meanwhile stays.
    """
    if rows.num_rows:
        hours = pc.unique(pc.floor_temporal(rows["sampled_at"], unit="hour"))
        transaction.execute_with(pa.table({"hour_at": hours}), "INSERT INTO rollup_due SELECT hour_at FROM incoming")


def rolled_hours(cursor: duckdb.DuckDBPyConnection) -> tuple[RolledHour, ...]:
    """Give the hours to be read from roll-ups, in order; all others are read from samples.

    An hour with new samples is not among them, nor are its neighbours, whose first and last row those decide on. One
    whose samples are gone always is, whatever came in too late.
    """
    rows = cursor.execute(
        """
        SELECT epoch(hour_at), threshold_ratio, continuous_cadences, pause_seconds, longest_cadence_seconds,
               samples_gone, minutes_gone
        FROM rolled_hour AS rolled
        WHERE samples_gone OR NOT EXISTS (
            SELECT 1 FROM (SELECT DISTINCT hour_at FROM rollup_due) AS due
            WHERE due.hour_at IN (rolled.hour_at, rolled.hour_at - INTERVAL 1 HOUR, rolled.hour_at + INTERVAL 1 HOUR)
        ) ORDER BY hour_at
        """
    ).fetchall()
    return tuple(
        RolledHour(at, Rule(threshold, cadences, pause), longest, samples_gone, minutes_gone)
        for at, threshold, cadences, pause, longest, samples_gone, minutes_gone in rows
    )
