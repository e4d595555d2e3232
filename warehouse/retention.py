"""What goes when: samples, roll-ups by minute, roll-ups by hour, each after its own time; summaries of attempts stay.

Nothing goes before its coarser form is there, and each day goes in one transaction with the note of it, so that a
crash between any two steps leaves a day that is read from one form alone. Files follow when nobody reads them
(``lake.tidy``).
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from warehouse import lake
from warehouse.contract.rollups import HOUR, MINUTE, SOURCES
from warehouse.due import SAMPLES
from warehouse.settings import KEEP_DAYS, KEEP_HOURS_DAYS, KEEP_MINUTES_DAYS

if TYPE_CHECKING:
    from warehouse.contract.settings import Setting, Settings
    from warehouse.store import Store, Transaction

LOG = logging.getLogger("trueload.retention")


def forget(store: Store, settings: Settings, now: float) -> int:
    """Let go what is past its time; gives the number of days of tables. ``now`` is in seconds since the epoch."""
    drop_late(store)
    samples, minutes, hours = (_before(settings, rule, now) for rule in (KEEP_DAYS, KEEP_MINUTES_DAYS, KEEP_HOURS_DAYS))
    count = 0
    for day in lake.sealed_days(store):
        if day.table not in (MINUTE, HOUR, SOURCES) and samples is not None and day.date < samples:
            count += _forget_samples(store, day)
    for day in lake.sealed_days(store):
        if day.table == MINUTE and minutes is not None and day.date < minutes:
            count += _forget_minutes(store, day)
    for day in lake.sealed_days(store):
        if day.table == HOUR and hours is not None and day.date < hours:
            count += _forget_hours(store, day)
    return count


def drop_late(store: Store) -> int:
    """Drop samples of hours whose samples are gone: their roll-up stands, and cannot be made again of a part."""
    late = f"FROM {SAMPLES} WHERE date_trunc('hour', sampled_at)::TIMESTAMP IN ({_GONE})"
    if not store.read("SELECT 1 FROM rolled_hour WHERE samples_gone LIMIT 1").num_rows:
        return 0
    with store.transaction() as transaction:
        ((count,),) = transaction.execute(f"SELECT count(*) {late}")
        if count:
            transaction.execute(f"DELETE {late}")
            LOG.warning("%s samples came after the samples of their hour had gone (lake.keep_days); dropped", count)
        transaction.execute(f"DELETE FROM rollup_due WHERE hour_at IN ({_GONE})")
    return int(str(count))


_GONE = "SELECT hour_at FROM rolled_hour WHERE samples_gone"


def _before(settings: Settings, rule: Setting[int], now: float) -> date | None:
    """Give the first day that is kept by a rule; None: all are."""
    days = settings[rule]
    return datetime.fromtimestamp(now, tz=UTC).date() - timedelta(days=days) if days else None


def _forget_samples(store: Store, day: lake.SealedDay) -> int:
    if day.table == SAMPLES and not _is_rolled(store, day.date):
        LOG.warning("%s of %s stay: they are not summed up yet", day.table, day.date)
        return 0
    with store.transaction() as transaction:
        lake.drop_day(transaction, day)
        if day.table == SAMPLES:
            _note(transaction, "samples_gone", day.date)
    return _said(day)


def _forget_minutes(store: Store, day: lake.SealedDay) -> int:
    with store.transaction() as transaction:
        lake.drop_day(transaction, day)
        _note(transaction, "minutes_gone", day.date)
    return _said(day)


def _forget_hours(store: Store, day: lake.SealedDay) -> int:
    """Forget the last form of a day but what attempts were; not while finer ones are there, which it answers for."""
    others = {one.table: one for one in lake.sealed_days(store) if one.date == day.date}
    if SAMPLES in others or MINUTE in others:
        return 0
    with store.transaction() as transaction:
        lake.drop_day(transaction, day)
        if SOURCES in others:
            lake.drop_day(transaction, others[SOURCES])
        transaction.execute("DELETE FROM rolled_hour WHERE hour_at::DATE = ?", [day.date])
    return _said(day)


def _is_rolled(store: Store, day: date) -> bool:
    """Say whether a day is summed up as it is, and that lies in the lake."""
    found = store.read(
        """
        SELECT (SELECT count(*) FROM rolled_hour WHERE hour_at::DATE = ?) AS rolled,
               (SELECT count(*) FROM rollup_due WHERE hour_at::DATE = ?) AS due,
               (SELECT count(*) FROM sealed_day WHERE table_name = ? AND date = ?) AS sealed
        """,
        [day, day, HOUR, day],
    ).to_pylist()[0]
    return bool(found["rolled"] and not found["due"] and found["sealed"])


def _note(transaction: Transaction, what: str, day: date) -> None:
    transaction.execute(f"UPDATE rolled_hour SET {what} = true WHERE hour_at::DATE = ?", [day])


def _said(day: lake.SealedDay) -> int:
    LOG.info("%s of %s are past their time: %d rows, %d bytes", day.table, day.date, day.row_count, day.file_bytes)
    return 1
