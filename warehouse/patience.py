"""How long somebody waits for an answer: a query that nobody waits for any more is stopped.

Whoever asks sets a ``Patience`` for the context; the store registers what would stop its cursors with it. An end is
final: DuckDB's interrupt stops only what runs at that moment, so it is repeated until the work has noticed.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_present: ContextVar[Patience | None] = ContextVar("patience", default=None)


class Patience:
    """One asking. Safe to use from several threads."""

    def __init__(self) -> None:
        """Begin to wait."""
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        """Say whether nobody waits any more."""
        return self._over.is_set()

    def end(self) -> None:
        """Stop what runs for this asking; call it again while the work goes on."""
        self._over.set()
        with self._lock:
            for stop in self._stops:
                stop()

    @contextmanager
    def applies(self) -> Iterator[None]:
        """Have cursors that are opened meanwhile, in this context, belong to this asking."""
        token = _present.set(self)
        try:
            yield
        finally:
            _present.reset(token)

    def add(self, stop: Callable[[], None]) -> None:
        """Have something stopped when the waiting ends."""
        with self._lock:
            self._stops.append(stop)

    def remove(self, stop: Callable[[], None]) -> None:
        """Take back what ``add`` was given: it ended by itself."""
        with self._lock:
            self._stops.remove(stop)


@contextmanager
def watched(stop: Callable[[], None]) -> Iterator[None]:
    """Have ``stop`` called, while the block runs, when the one who asks in this context waits no more."""
    patience = _present.get()
    if patience is None:
        yield
        return
    patience.add(stop)
    try:
        yield
    finally:
        patience.remove(stop)
