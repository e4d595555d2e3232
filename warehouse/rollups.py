"""Keeping roll-ups: hours whose samples changed are summed up anew, each in one transaction with the note of it.

Which hours are due is written with the samples (``warehouse.due``), so nothing has to be looked for and nothing is
missed: the transaction that sums an hour up removes exactly the notes it sees, and so sees their samples. An hour is
read from its roll-up or from its samples, never from both. The samples of the hours beside it decide on its first and
last row: a late sample makes its neighbours due, too.
"""

from __future__ import annotations

import itertools
import logging
import os
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from warehouse import lake, layout, rollup_sql
from warehouse.contract.errors import StoreError
from warehouse.contract.rollups import COLUMNS, HOUR, SOURCES, Rule
from warehouse.due import SAMPLES
from warehouse.rollup_sql import PIECES, READ, inside
from warehouse.settings import ROLL_AFTER_SECONDS
from warehouse.stored import STORED_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warehouse.contract.settings import Settings
    from warehouse.store import Store, Transaction

LOG = logging.getLogger("trueload.rollups")
CHUNK_SAMPLES = 4_000_000
"""Samples that are summed up at a time, by whole hours: what bounds memory, at some 300 bytes each."""

HOURS_A_DAY = 24

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)


def roll(store: Store, settings: Settings, now: float) -> int:
    """Sum up what is due and over; gives the number of hours. Days that cannot be summed up are tried again next time.

    ``now`` is in seconds since the epoch.
    """
    until = _EPOCH + timedelta(seconds=now - settings[ROLL_AFTER_SECONDS]) - _HOUR
    rule, count = Rule.of(settings), 0
    for day, hours in itertools.groupby(pending(store, rule, until.replace(tzinfo=None)), key=datetime.date):
        due = list(hours)
        try:
            count += roll_hours(store, day, due, rule)
        except (StoreError, OSError):
            LOG.exception("%s: %d hours stay as samples", day, len(due))
    return count


def pending(store: Store, rule: Rule, until: datetime) -> list[datetime]:
    """Give the hours to sum up, in order, of those that begin at ``until`` (UTC) or before.

    Those with new samples and their neighbours, those by another rule, and all hours of sealed days that never were.
    """
    found = store.read(
        """
        WITH due AS (SELECT DISTINCT hour_at FROM rollup_due),
        near AS (
            SELECT hour_at FROM due
            UNION SELECT rolled.hour_at FROM rolled_hour AS rolled JOIN due
            ON rolled.hour_at IN (due.hour_at - INTERVAL 1 HOUR, due.hour_at + INTERVAL 1 HOUR)
            UNION SELECT hour_at FROM rolled_hour
            WHERE NOT samples_gone AND (threshold_ratio, continuous_cadences, pause_seconds) != (?, ?, ?)
        )
        SELECT hour_at FROM near
        WHERE hour_at <= ? AND hour_at NOT IN (SELECT hour_at FROM rolled_hour WHERE samples_gone)
        """,
        [rule.threshold_ratio, rule.continuous_cadences, rule.pause_seconds, until],
    )
    hours = set(found["hour_at"].to_pylist())
    known = set(store.read("SELECT DISTINCT hour_at::DATE AS day FROM rolled_hour")["day"].to_pylist())
    for day in lake.sealed_days(store):
        part = day.folder(store.data) / layout.PART
        if day.table == SAMPLES and day.date not in known and part not in store.missing:
            file = layout.read(part)
            rows = store.read(f"SELECT DISTINCT date_trunc('hour', sampled_at)::TIMESTAMP AS hour_at FROM {file}")
            hours |= {hour for hour in rows["hour_at"].to_pylist() if hour <= until}
    return sorted(hours)


def roll_hours(store: Store, day: date, hours: Sequence[datetime], rule: Rule) -> int:
    """Sum some hours of one day up, all or none; gives their number.

    Raises:
        StoreError, OSError: it could not be written; everything is as before.

    """
    sealed = {one.table: one for one in lake.sealed_days(store) if one.date == day}
    with store.long_transaction() as transaction:
        longest = dict.fromkeys(hours, 0.0)
        for table in COLUMNS:
            transaction.execute(f'CREATE OR REPLACE TEMP TABLE "{_fresh(table)}" AS FROM "{table}" LIMIT 0')
        for chunk in _chunks(hours, _most_hours(transaction, store, hours)):
            longest |= _roll_chunk(transaction, store, chunk, rule)
        for table in COLUMNS:
            old = sealed.get(table)
            if old is None:
                transaction.execute(
                    f'DELETE FROM "{table}" WHERE bucket_at::DATE = ? AND '
                    "date_trunc('hour', bucket_at)::TIMESTAMP IN (SELECT unnest(?::TIMESTAMP[]))",
                    [day, list(hours)],
                )
                transaction.execute(f'INSERT INTO "{table}" BY NAME FROM "{_fresh(table)}"')
            else:
                listed = ", ".join(f"TIMESTAMP '{hour.isoformat(sep=' ')}'" for hour in hours)
                source = layout.read(old.folder(store.data) / layout.PART)
                lake.write_again(
                    transaction,
                    store.data,
                    old,
                    f"SELECT * FROM {source} WHERE date_trunc('hour', bucket_at)::TIMESTAMP NOT IN ({listed}) "
                    f'UNION ALL BY NAME FROM "{_fresh(table)}"',
                )
        _take_note(transaction, hours, rule, longest)
    for one in sealed.values():
        if one.table in COLUMNS:
            os.utime(one.folder(store.data))  # replaced from now on: readers that began earlier keep it for their time
    return len(hours)


def _fresh(table: str) -> str:
    return f"fresh_{table}"


def _most_hours(transaction: Transaction, store: Store, hours: Sequence[datetime]) -> int:
    """Give how many hours to sum up at a time."""
    begin, end = hours[0], hours[-1] + _HOUR
    ((count,),) = transaction.execute(f"SELECT count(*) FROM ({_samples(transaction, store, begin, end)})")
    each = int(str(count)) / ((end - begin) / _HOUR)
    return max(1, min(HOURS_A_DAY, int(CHUNK_SAMPLES / max(each, 1.0))))


def _chunks(hours: Sequence[datetime], most: int) -> Iterable[list[datetime]]:
    """Cut hours into runs of neighbours of at most so many."""
    chunk: list[datetime] = []
    for hour in hours:
        if chunk and (hour - chunk[-1] != _HOUR or len(chunk) == most):
            yield chunk
            chunk = []
        chunk.append(hour)
    if chunk:
        yield chunk


@dataclass(frozen=True, slots=True)
class _Near:
    """Samples around a run of hours: how many sources speak, and the longest cadence."""

    several: bool
    longest_cadence_seconds: float


def _roll_chunk(transaction: Transaction, store: Store, hours: Sequence[datetime], rule: Rule) -> dict[datetime, float]:
    """Sum neighbouring hours up into the fresh tables; gives the longest cadence of each."""
    begin, end = hours[0], hours[-1] + _HOUR
    wide = max(_look(transaction, store, begin - _HOUR, end + _HOUR).longest_cadence_seconds, 0.0)
    margin = timedelta(seconds=rule.margin_seconds(wide))
    near = _look(transaction, store, begin - margin, end + margin)
    pieces, rows_of = rollup_sql.statements(rule, several=near.several)
    transaction.execute(f"CREATE OR REPLACE TEMP TABLE {PIECES} AS {pieces}")
    for table, query in rows_of.items():
        transaction.execute(f'INSERT INTO "{_fresh(table)}" BY NAME {query} {inside("bucket_at", begin, end)}')
    transaction.execute(f"DROP TABLE {PIECES}")
    counts = f"{rollup_sql.SOURCE_ROWS} {inside('sampled_at', begin, end)} GROUP BY ALL"
    transaction.execute(f'INSERT INTO "{_fresh(SOURCES)}" BY NAME {counts}')
    rows = transaction.execute(
        f"SELECT date_trunc('hour', sampled_at)::TIMESTAMP, max(cadence_seconds) FROM {READ} GROUP BY 1"
    )
    return {hour: float(str(cadence)) for hour, cadence in rows if hour in hours and isinstance(hour, datetime)}


def _look(transaction: Transaction, store: Store, begin: datetime, end: datetime) -> _Near:
    """Make the samples of a stretch of time readable as one, hot and sealed."""
    transaction.execute(f"CREATE OR REPLACE TEMP VIEW {READ} AS {_samples(transaction, store, begin, end)}")
    (sources, longest), *_ = transaction.execute(f"SELECT count(DISTINCT source), max(cadence_seconds) FROM {READ}")
    return _Near(int(str(sources)) > 1, 0.0 if longest is None else float(str(longest)))


def _samples(transaction: Transaction, store: Store, begin: datetime, end: datetime) -> str:
    names = ", ".join(f'"{column}"' for column in STORED_TYPES[SAMPLES])
    within = inside("sampled_at", begin, end)
    days = transaction.execute(
        "SELECT date, generation FROM sealed_day WHERE table_name = ? AND date BETWEEN ? AND ?",
        [SAMPLES, begin.date(), end.date()],
    )
    hot = f'SELECT {names} FROM "{SAMPLES}" {within}'
    if not days:
        return hot
    files = [layout.part(store.data, SAMPLES, day, int(str(number))) for day, number in days if isinstance(day, date)]
    empty = f'SELECT {names} FROM "{SAMPLES}" LIMIT 0'  # columns that came after a day was sealed are absent there
    sealed = f"({empty}) UNION ALL BY NAME SELECT * FROM {layout.read(*files)} {within}"
    return f"{hot} UNION ALL BY NAME SELECT {names} FROM ({sealed})"


def _take_note(transaction: Transaction, hours: Sequence[datetime], rule: Rule, longest: dict[datetime, float]) -> None:
    listed = list(hours)
    transaction.execute(
        "DELETE FROM summarised WHERE attempt_key IN "
        "(SELECT attempt_key FROM attempt WHERE start_at < ? AND end_at > ?)",
        [listed[-1] + 2 * _HOUR, listed[0] - _HOUR],
    )
    transaction.execute("DELETE FROM rollup_due WHERE hour_at IN (SELECT unnest(?::TIMESTAMP[]))", [listed])
    transaction.execute("DELETE FROM rolled_hour WHERE hour_at IN (SELECT unnest(?::TIMESTAMP[]))", [listed])
    found = transaction.execute(f"SELECT bucket_at, sum(sample_count)::BIGINT FROM {_fresh(HOUR)} GROUP BY 1")
    counts = {hour: count for hour, count in found}  # noqa: C416 - a row is a tuple of any length to the checker
    for hour in hours:
        transaction.execute(
            "INSERT INTO rolled_hour VALUES (?, ?, ?, ?, ?, ?, false, false)",
            [
                hour,
                rule.threshold_ratio,
                rule.continuous_cadences,
                rule.pause_seconds,
                longest[hour],
                counts.get(hour, 0),
            ],
        )
