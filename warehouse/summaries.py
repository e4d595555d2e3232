"""One row that tells what an attempt did, made of roll-ups when it has ended, and again when late data change them.

An attempt is summed up when its end is known and the hours until then are. ``summarised`` says from which records that
was; summing up an hour again (``rollups``) removes the notes of the attempts that ran in it, in the same transaction.
So whatever breaks when, what is out of date has no note and is made again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from warehouse.contract.rollups import HOUR, RUNGS, SUMMARY_SOURCE

if TYPE_CHECKING:
    import pyarrow as pa

    from warehouse.store import Store

LOG = logging.getLogger("trueload.summaries")
AT_ONCE = 20_000
"""Attempts that are summed up in one transaction."""

_WHOLE = 1.0 - 1e-6
"""What is known of this share of the covered time is known of all of it: the rest is rounding."""

_DUE = f"""
    WITH held AS (
        SELECT attempt_key, device_uuid, allocation.start_at, coalesce(allocation.end_at, attempt.end_at) AS end_at,
               attempt.start_at AS began_at, attempt.end_at AS ended_at
        FROM allocation JOIN attempt USING (attempt_key)
        WHERE device_uuid IS NOT NULL AND attempt.end_at <= (SELECT max(hour_at) + INTERVAL 1 HOUR FROM rolled_hour)
    ),
    told AS (
        SELECT attempt_key, min(start_at) AS first_at, max(end_at) AS last_at,
               hash(min(began_at), max(ended_at), count(*), sum(hash(device_uuid, start_at, end_at)))::VARCHAR
               AS made_of
        FROM held WHERE end_at > start_at GROUP BY attempt_key
    )
    SELECT told.* FROM told ANTI JOIN summarised USING (attempt_key, made_of)
    ORDER BY attempt_key LIMIT {AT_ONCE}
"""


def _made(rollup: str) -> str:
    """Give the SQL that sums rows of an hourly roll-up up over the attempts of ``due_attempt``."""
    sums = ", ".join(
        f"sum({name}_seconds * share) AS {name}, sum({name}_known_seconds * share) AS {name}_known"
        for name in (*RUNGS, "sm_active")
    )
    return f"""
        WITH held AS (
            SELECT attempt_key, device_uuid, allocation.start_at, coalesce(allocation.end_at, attempt.end_at) AS end_at
            FROM allocation JOIN attempt USING (attempt_key) SEMI JOIN due_attempt USING (attempt_key)
            WHERE device_uuid IS NOT NULL
        ),
        allocated AS (SELECT attempt_key, sum(epoch(end_at - start_at)) AS seconds FROM held GROUP BY attempt_key),
        parts AS (
            SELECT rows.*, epoch(least(rows.end_at, held.end_at) - greatest(rows.start_at, held.start_at))
                / epoch(rows.end_at - rows.start_at) AS share
            FROM {rollup} AS rows JOIN held ON rows.attempt_key = held.attempt_key
            AND rows.device_uuid = held.device_uuid AND rows.start_at < held.end_at AND rows.end_at > held.start_at
            WHERE rows.bucket_at BETWEEN (SELECT min(first_at) - INTERVAL 1 HOUR FROM due_attempt)
            AND (SELECT max(last_at) FROM due_attempt)
        )
        SELECT attempt_key, any_value(allocated.seconds) AS allocated, sum(covered_seconds * share) AS covered, {sums},
               max(memory_used_bytes_max) AS peak, sum(memory_byte_seconds * share) / nullif(sum(memory_known_seconds
               * share), 0) AS memory, sum(power_joules * share) / nullif(sum(power_known_seconds * share), 0) AS watts,
               sum(energy_joules * share) AS joules
        FROM parts JOIN allocated USING (attempt_key) GROUP BY attempt_key
    """


_UNKNOWN_HERE = ("cpu_load_count", "host_memory_used_bytes")
"""Columns of a summary that no sample of a device tells."""


def _columns(kept: str, source: str, covered: str, *, is_main: bool) -> str:
    """Give the SQL of rows of ``attempt_summary`` from what was summed up."""
    ratios = ", ".join(
        f"CASE WHEN {kept.format(name=name)} THEN least({name} / nullif({name}_known, 0), 1) END AS {name}_ratio"
        for name in (*RUNGS, "sm_active")
    )
    rest = "memory, peak, watts, joules" if is_main else "NULL, NULL, NULL, NULL"
    rest += ", NULL, NULL"
    names = ("gpu_memory_used_bytes", "gpu_memory_peak_bytes", "power_watts", "energy_joules", *_UNKNOWN_HERE)
    others = ", ".join(f"{value} AS {name}" for value, name in zip(rest.split(", "), names, strict=True))
    return (
        f"SELECT attempt_key, '{source}' AS source, least({covered} / allocated, 1) AS coverage_ratio, "
        f"false AS coverage_assumed, {ratios}, {others} FROM made WHERE {covered} > 0"
    )


def summarise(store: Store) -> int:
    """Sum up attempts that have ended and are not summed up, or not from what is known now; gives their number."""
    count = 0
    while True:
        done = _summarise_some(store)
        count += done
        if done < AT_ONCE:
            return count


def _summarise_some(store: Store) -> int:
    with store.reading() as (cursor, sources):
        due = cursor.sql(_DUE).to_arrow_table()
        if not due.num_rows:
            return 0
        cursor.register("due_attempt", due)
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE made AS {_made(sources.get(HOUR, HOUR))}")
        main = _columns(f"{{name}}_known >= {_WHOLE} * covered", SUMMARY_SOURCE, "covered", is_main=True)
        parts = [
            _columns(f"'{{name}}' = '{name}'", f"{SUMMARY_SOURCE}:{name}", f"{name}_known", is_main=False)
            + f" AND {name}_known < {_WHOLE} * covered"
            for name in (*RUNGS, "sm_active")
        ]
        found = cursor.sql(" UNION ALL BY NAME ".join([main, *parts])).to_arrow_table()
    _write(store, due, found)
    return int(due.num_rows)


def _write(store: Store, due: pa.Table, found: pa.Table) -> None:
    """Put new summaries in the place of old ones; where nothing is known any more the old one stays."""
    with store.transaction() as transaction:
        transaction.execute_with(
            found,
            f"DELETE FROM attempt_summary WHERE starts_with(source, '{SUMMARY_SOURCE}') "
            "AND attempt_key IN (SELECT attempt_key FROM incoming)",
        )
        transaction.write_arrow("attempt_summary", found)
        transaction.execute_with(due, "DELETE FROM summarised WHERE attempt_key IN (SELECT attempt_key FROM incoming)")
        transaction.execute_with(due, "INSERT INTO summarised SELECT attempt_key, made_of FROM incoming")
