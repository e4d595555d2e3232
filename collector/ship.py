"""Getting batches to the server: one post per batch, in order, until the server says that it has it.

A batch may be posted any number of times (the server knows its name), so every doubt is resolved by posting again.
When many wait, several are under way together, each acknowledged by itself: the server stores what arrives within its
commit window at once, and would let a single sender wait out that window for every batch.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from collector.poster import (
    Backoff,
    BatchRefusedError,
    Endpoint,
    NotOfferedError,
    Poster,
    TokenRefusedError,
    TooLargeError,
)
from warehouse.contract import wire
from warehouse.contract.errors import BadInputError, UnreachableError
from warehouse.contract.model import RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from collector.spool import Spool, SpooledBatch
    from warehouse.contract.clocks import Offset
    from warehouse.contract.exchange import Acknowledgement, DetailAsk, Series

LOG = logging.getLogger("trueload.ship")
TOGETHER: Final = 8
"""Batches of one sender under way at a time: thirty a second, and not so many that a thousand senders that come back
together fill the server's queue at once."""


class ParallelSender:
    """Sends batches that need not arrive in order, several at a time: a server stores what arrives together at once."""

    def __init__(self, endpoint: Endpoint, stop: threading.Event, at_a_time: int) -> None:
        """Send until ``stop``, so many at a time, and hold no more than twice as many."""
        self._poster = Poster(endpoint, connections=at_a_time)
        self._stop = stop
        self._pool = ThreadPoolExecutor(at_a_time, thread_name_prefix="sender")
        self._room = threading.Semaphore(2 * at_a_time)
        self._sent: list[Future[None]] = []

    def send(self, body: bytes) -> None:
        """Have a batch sent; waits while too many are under way."""
        self._room.acquire()
        self._sent.append(self._pool.submit(self._send, body))

    def settle(self) -> None:
        """Wait until the server has all batches.

        Raises:
            BatchRefusedError: the server will never take one of them.
            UnreachableError: told to stop before.

        """
        sent, self._sent = self._sent, []
        for future in sent:
            future.result()

    def close(self) -> None:
        """Send nothing more."""
        self._pool.shutdown(cancel_futures=True)
        self._poster.close()

    def _send(self, body: bytes) -> None:
        try:
            if self._poster.post_until_taken(body, self._stop) is None:
                raise UnreachableError("told to stop before everything was sent; the next start goes on")
        finally:
            self._room.release()


class Shipper:
    """Sends what is in a spool, oldest first, from a thread of its own.

    ``on_ask`` gives the last hour of a device as it was read, when the server asks for it.
    """

    def __init__(
        self, spool: Spool, poster: Poster | Endpoint, on_ask: Callable[[DetailAsk], Sequence[Series]] | None = None
    ) -> None:
        """Prepare; ``start`` begins."""
        self.shipped_total = 0
        self.refused_total = 0
        self.lost_by_server_total = 0
        """Batches that the server had acknowledged and asked for again."""
        self.failed_total = 0
        self.last_success_at: float | None = None
        self._spool = spool
        self._poster = Poster(poster, connections=TOGETHER) if isinstance(poster, Endpoint) else poster
        self._on_ask = on_ask
        self._backoff = Backoff(self._poster.endpoint)
        self._server_run: str | None = None
        self._is_known = False
        self._stop = threading.Event()
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)

    @property
    def clock(self) -> Offset | None:
        """Give how far our clock is ahead of the server's, as the last batch told."""
        return self._poster.clock

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there is a new batch."""
        self._work.set()

    def stop(self, grace_seconds: float) -> None:
        """End within the grace period, after one last try to send what waits. What is not sent stays spooled."""
        self._stop.set()
        self._work.set()
        self._thread.join(grace_seconds)
        self._poster.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._work.wait()
            self._work.clear()
            while not self._stop.is_set() and not self._try_all():
                pass
        self._try_all()

    def _try_all(self) -> bool:
        """Send what waits; False after a failure and its wait."""
        while waiting := self._spool.waiting():
            for batches in _in_turn(waiting):
                error = self._send(batches)
                if error is not None:
                    self._is_known = False
                    self._backoff.fail(error, self._stop)
                    return False
                if not self._is_known:
                    break  # the server was started anew: what it lost goes first
        return True

    def _send(self, batches: Sequence[SpooledBatch]) -> Exception | None:
        """Send batches at the same time and take each answer; gives why one of them was not taken, if so."""
        failure: Exception | None = None
        try:
            self._meet()
            answers = [self._ask(batch, aside=len(batches) > 1) for batch in batches]
        except (UnreachableError, TokenRefusedError, OSError) as error:
            self.failed_total += 1
            return error
        for batch, answer in zip(batches, answers, strict=True):
            try:
                self._take(batch, answer)
            except FileNotFoundError:
                continue  # a bound of the spool dropped it meanwhile
            except (UnreachableError, TokenRefusedError, OSError) as error:
                failure = error
                self.failed_total += 1
            except Exception as error:  # without this thread nothing would ever be sent again
                LOG.exception("%s: %s could not be sent", self._poster.endpoint.url, batch.path.name)
                failure = error
                self.failed_total += 1
        return failure

    def _ask(self, batch: SpooledBatch, *, aside: bool) -> Future[Acknowledgement]:
        """Post a batch, on a thread of its own if others go along; it ends with the process, whatever is still out."""
        answer: Future[Acknowledgement] = Future()

        def post() -> None:
            try:
                answer.set_result(self._poster.post(batch.read()))
            except BaseException as error:  # noqa: BLE001 - carried over to the sender's own thread
                answer.set_exception(error)

        if aside:
            threading.Thread(target=post, name="post", daemon=True).start()
        else:
            post()
        return answer

    def _take(self, batch: SpooledBatch, answered: Future[Acknowledgement]) -> None:
        try:
            answer = answered.result()
        except TooLargeError as error:
            self._split(batch, error)
            return
        except BatchRefusedError as error:
            self._give_up(batch, error)
            return
        self._spool.acknowledge(batch, answer.backed_up_until if answer.server_run == self._server_run else None)
        self.shipped_total += 1
        self.last_success_at = time.time()
        self._backoff.succeed()
        self._take_note(answer)

    def _take_note(self, answer: Acknowledgement) -> None:
        if answer.server_run != self._server_run:
            self._server_run, self._is_known = answer.server_run, False
        for ask in answer.asks:
            self._answer(ask)

    def _meet(self) -> None:
        """Tell a server that is met anew what it has acknowledged; what it lacks waits again."""
        if self._is_known:
            return
        holdings = self._spool.holdings()
        if holdings:
            try:
                run, positions = self._poster.compare(self._spool.agent, holdings)
            except (NotOfferedError, BatchRefusedError) as error:
                LOG.debug("%s", error)
                positions = []  # a server that cannot compare: what it says about each batch still stands
            else:
                self._server_run = run
            for position in positions:
                again = self._spool.send_again(position)
                self.lost_by_server_total += again
                if again:
                    LOG.warning(
                        "%s has lost %d batches that it had acknowledged (it has up to %s): they are sent again",
                        *(self._poster.endpoint.url, again, position.stored_until),
                    )
        self._is_known = True

    def _split(self, batch: SpooledBatch, error: TooLargeError) -> None:
        try:
            if self._spool.split(batch):
                LOG.info("%s; %s is sent in halves", error, batch.path.name)
                return
        except BadInputError as cause:
            LOG.error("%s: cannot be cut in two: %s", batch.path, cause)  # noqa: TRY400 - the line says it all
        self._give_up(batch, error)

    def _give_up(self, batch: SpooledBatch, error: BatchRefusedError) -> None:
        LOG.error("%s; %s is set aside and not sent again", error, batch.path.name)
        self._spool.set_aside(batch)
        self.refused_total += 1

    def _answer(self, ask: DetailAsk) -> None:
        """Send the last hour of a device; when that fails the page that asked says so, and nothing is lost."""
        if self._on_ask is None:
            return
        try:
            self._poster.post_detail(self._spool.agent, ask.ask_id, self._on_ask(ask))
        except (UnreachableError, TokenRefusedError, BatchRefusedError, NotOfferedError) as error:
            LOG.warning("the last hour of %s was asked for and not taken: %s", ask.device_uuid, error)


def _in_turn(waiting: Sequence[SpooledBatch]) -> Iterator[list[SpooledBatch]]:
    """Give what is sent next: a few batches of rows that are only added together, any other by itself in its place.

    Of two records with the same key the one that arrives later stands, so none may overtake another.
    """
    together: list[SpooledBatch] = []
    for batch in waiting:
        may_overtake = len(waiting) > 1 and _only_adds(batch)
        if may_overtake:
            together.append(batch)
        if together and (not may_overtake or len(together) == TOGETHER):
            yield together
            together = []
        if not may_overtake:
            yield [batch]
    if together:
        yield together


def _only_adds(batch: SpooledBatch) -> bool:
    try:
        tables = wire.decode(batch.read(), origin=batch.path.name).tables
    except (OSError, BadInputError):
        return False  # it is judged by itself
    return not tables.keys() & RECORDS.keys()


__all__ = ["Backoff", "BatchRefusedError", "Endpoint", "ParallelSender", "Poster", "Shipper", "TokenRefusedError"]
