"""Notices that DuckDB has given its database up, and ends the process: nothing but a new start brings it back.

After a fatal or internal error (a checkpoint that could not be written, a broken invariant) DuckDB answers every later
statement with ``FatalException`` until the database is opened anew. What was acknowledged before is in its log. So the
server says what happened, lets open requests end with a refusal, and leaves with exit code 1; whoever supervises it
(systemd, Kubernetes, ``Restart=on-failure``) starts it again, and it opens from the log.

A file with damaged blocks ends the process, too: the new start brings over what can be read (``warehouse.salvage``).

It is asked on a timer rather than at each place that uses the database, so that no place can be forgotten.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Self

import duckdb

if TYPE_CHECKING:
    from collections.abc import Callable

    from warehouse.store import Store

PROBE_SECONDS = 0.5
"""How often it is asked; a probe costs a tenth of a millisecond, and until it fails senders are only refused."""

LEAVE_SECONDS = 20.0
"""How long the process may take to end in good order; then it ends at once, for it can do nothing useful any more."""

LOG = logging.getLogger("trueload.pulse")


def last_words(store: Store) -> str | None:
    """Give what DuckDB says of a database that it has given up, or that has damaged blocks; None while it lives."""
    if store.damage is not None:
        return f"{store.damage}; a new start copies what can be read"
    with store.cursor() as cursor:
        try:
            cursor.execute("SELECT 1")
        except duckdb.FatalException as error:
            return " ".join(str(error).split())
        except duckdb.Error:
            return None  # one statement failed, as any may
    return None


def leave_within(seconds: float) -> None:
    """Have this process end by itself, with exit code 1, if it is still there after so many seconds.

    What keeps it may be a long question, or a day that is being sealed; for the store this is a kill, which loses
    nothing that was acknowledged.
    """

    def leave() -> None:
        LOG.critical("the process did not end within %g s; it ends now", seconds)
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


class Pulse:
    """A thread that asks the database whether it lives. Use as a context manager."""

    def __init__(self, store: Store, on_death: Callable[[], object]) -> None:
        """Prepare; ``on_death`` is called once, from the thread, and has the process end."""
        self._store = store
        self._on_death = on_death
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self.cause: str | None = None
        """What DuckDB said when it gave up."""

    def __enter__(self) -> Self:
        """Start to ask."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Ask no more."""
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._enough.wait(PROBE_SECONDS):
            self.cause = last_words(self._store)
            if self.cause is not None:
                LOG.critical("%s: the database gave up: %s", self._store.data, self.cause)
                leave_within(LEAVE_SECONDS)
                self._on_death()
                return
