"""A question that may take long, such as one to a kubelet that hangs: nobody who asks it waits for long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from warehouse.contract.errors import UnreachableError

T = TypeVar("T")


class Aside(Generic[T]):
    """One question, asked on a thread of its own: one at a time. An answer that comes late is whoever's asks next."""

    def __init__(self, who: str, ask: Callable[[], T], patience_seconds: float) -> None:
        """Ask ``who``; nothing is asked yet."""
        self._who = who
        self._ask = ask
        self._patience_seconds = patience_seconds
        self._asked: Future[T] | None = None

    def __call__(self) -> T:
        """Give the answer, or raise what asking raised.

        Raises:
            UnreachableError: there is none yet.

        """
        if self._asked is None:
            self._asked = Future()
            thread = threading.Thread(
                target=self._work, args=(self._asked,), name=f"ask {self._who}", daemon=True
            )  # a daemon: the agent can end while the question is still out
            thread.start()
        asked = self._asked
        try:
            asked.exception(self._patience_seconds)
        except TimeoutError:
            text = f"{self._who} does not answer within {self._patience_seconds:g} s; the rest goes on"
            raise UnreachableError(text) from None
        self._asked = None
        return asked.result()

    def _work(self, asked: Future[T]) -> None:
        try:
            asked.set_result(self._ask())
        except BaseException as error:  # noqa: BLE001 - carried over to whoever asked
            asked.set_exception(error)
