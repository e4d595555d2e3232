"""Housekeeping of a running server: ended days go to the lake, old days go away, the manifest follows."""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Self

from warehouse import lake, lake_copy, retention, rollups, summaries
from warehouse.contract.errors import StoreError, TrueloadError
from warehouse.settings import KEEP_REPLACED_SECONDS, KEEPER_INTERVAL_SECONDS, SEAL_AFTER_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.contract.settings import Settings
    from warehouse.store import Store

START_DELAY_SECONDS = 60.0
"""A server that has just started first answers people; housekeeping can wait this long."""

LOG = logging.getLogger("trueload.keeper")


def keep(store: Store, data: Path, settings: Settings, now: float) -> int:
    """Do one round: sum up, seal days that ended, forget those past their time, publish, tidy. Gives what was changed.

    A day is sealed ``lake.seal_after_seconds`` after it ended, so that late batches find it still hot. A day that
    cannot be sealed stays where it is and is tried again next time.
    """
    retention.drop_late(store)
    changed = rollups.roll(store, settings, now) + summaries.summarise(store)
    for table, day in lake.days_to_seal(store, _day(now - settings[SEAL_AFTER_SECONDS])):
        try:
            sealed = lake.seal(store, data, table, day)
        except StoreError:
            LOG.exception("%s of %s stays hot", table, day)
            continue
        LOG.info("sealed %s of %s: %d rows, %d bytes", table, day, sealed.row_count, sealed.file_bytes)
        changed += 1
    changed += retention.forget(store, settings, now)
    if changed:
        lake.publish(store, data)
    lake.tidy(store, data, settings[KEEP_REPLACED_SECONDS])
    try:
        lake_copy.follow(data, settings, now)
    except TrueloadError:  # the lake itself is up to date, and the next round tries again
        LOG.exception("the lake's copy is not up to date")
    return changed


def _day(at: float) -> date:
    return datetime.fromtimestamp(at, tz=UTC).date()


class Keeper:
    """A thread that keeps house in regular rounds. Use as a context manager."""

    def __init__(self, store: Store, data: Path, settings: Settings) -> None:
        """Prepare; the thread starts on entering the context."""
        self._work = (store, data, settings)
        self._interval_seconds = settings[KEEPER_INTERVAL_SECONDS]
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper")

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Let the present round end, then end the thread."""
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        pause_seconds = min(START_DELAY_SECONDS, self._interval_seconds)
        while not self._enough.wait(pause_seconds):
            try:
                with self._work[0].housekeeping:
                    keep(*self._work, now=time.time())
            except Exception:  # a round that fails is said, and the next one is tried
                LOG.exception("a round of housekeeping failed")
            pause_seconds = self._interval_seconds
