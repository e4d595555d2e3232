"""Remembering what was worked out, while it holds: the same thing asked by many at once is worked out once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Result = TypeVar("Result")


class Memory(Generic[Result]):
    """The last ``size`` results by key. A failure is told to all who wait for it, and forgotten."""

    def __init__(self, size: int) -> None:
        """Start empty."""
        self._size = size
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Future[Result]] = OrderedDict()

    def get(self, key: Hashable, work: Callable[[], Result]) -> Result:
        """Give the result of a key, from memory or by doing the work; what the work raises is raised here."""
        with self._lock:
            known = self._results.get(key)
            mine = known is None
            result = known or Future()
            self._results[key] = result
            self._results.move_to_end(key)
            while len(self._results) > self._size:
                self._results.popitem(last=False)
        if mine:
            self._do(key, result, work)
        return result.result()

    def at_hand(self, key: Hashable) -> Result | None:
        """Give the result of a key if it is known; waits for nothing."""
        with self._lock:
            known = self._results.get(key)
            if known is None or not known.done() or known.exception() is not None:
                return None
            self._results.move_to_end(key)
        return known.result()

    def _do(self, key: Hashable, result: Future[Result], work: Callable[[], Result]) -> None:
        try:
            result.set_result(work())
        except BaseException as cause:
            with self._lock:
                self._results.pop(key, None)
            result.set_exception(cause)
            raise
