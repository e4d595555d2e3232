"""Getting batches to the server: one post per batch, in order, until the server says that it has it.

A batch may be posted any number of times (the server knows its name), so every doubt is resolved by posting again.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import urllib3

from warehouse.contract.errors import RefusedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from collector.spool import Spool

LOG = logging.getLogger("trueload.ship")
BATCHES_PATH: Final = "/v1/batches"
CONTENT_TYPE: Final = "application/vnd.trueload.batch+json"
OK: Final = 200
UNAUTHORISED: Final = (401, 403)
MOST_DOUBLINGS: Final = 20
"""Any wait has reached its longest by then."""

NEVER_TAKEN: Final = (400, 413, 422)
"""Answers about the batch itself: it would get them again for ever."""


class BatchRefusedError(RefusedError):
    """The server will never take this batch; others may go on."""


class TokenRefusedError(RefusedError):
    """The server knows no such token, or one that may not write. Nothing goes until that is mended."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said about a batch that it has now."""

    duplicate: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where batches go. The token is read from its file for every post, so it may be replaced at any time.

    Waits: ``first_wait_seconds`` after a failure, doubling up to ``longest_wait_seconds``, each shortened by up to a
    half at random so that a thousand agents do not return at once.
    """

    url: str
    token_file: Path | None
    timeout_seconds: float = 10.0
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 60.0


class Poster:
    """Posts encoded batches to one server over a connection that is kept."""

    def __init__(self, endpoint: Endpoint, connections: int = 1) -> None:
        """Prepare for so many posts at a time; nothing is connected yet."""
        self.endpoint: Final = endpoint
        timeout = urllib3.Timeout(endpoint.timeout_seconds)
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout, maxsize=connections, block=True)

    def post(self, body: bytes) -> Answer:
        """Post one batch.

        Raises:
            UnreachableError: no answer, or one that says "later" (429, 5xx).
            TokenRefusedError: the token is missing or not accepted (401, 403).
            BatchRefusedError: the batch itself is not accepted (400, 413, 422).

        """
        url = self.endpoint.url.rstrip("/") + BATCHES_PATH
        headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": "gzip", "Authorization": f"Bearer {self._token()}"}
        try:
            response = self._pool.request("POST", url, body=body, headers=headers)
        except (urllib3.exceptions.HTTPError, OSError) as cause:
            raise UnreachableError(f"{url}: no answer ({type(cause).__name__}); data wait in the spool") from cause
        if response.status == OK:
            return _acknowledgement(url, response.data)
        text = f"{url}: answered {response.status} {response.data[:300].decode(errors='replace')!r}"
        if response.status in UNAUTHORISED:
            raise TokenRefusedError(f"{text}; check the token in {self.endpoint.token_file}")
        if response.status in NEVER_TAKEN:
            raise BatchRefusedError(text)
        raise UnreachableError(text)

    def post_until_taken(self, body: bytes, stop: threading.Event) -> Answer | None:
        """Post until the server has the batch; None when stopped before.

        Raises:
            BatchRefusedError: the server will never take it.

        """
        wait = Backoff(self.endpoint)
        while not stop.is_set():
            try:
                return self.post(body)
            except BatchRefusedError:
                raise
            except (UnreachableError, TokenRefusedError) as error:
                wait.fail(error, stop)
        return None

    def close(self) -> None:
        """Let the connection go."""
        self._pool.clear()

    def _token(self) -> str:
        if self.endpoint.token_file is None:
            raise TokenRefusedError("no token: set agent.token_file to a file that holds one")
        try:
            return self.endpoint.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as cause:
            raise TokenRefusedError(f"{self.endpoint.token_file}: the token cannot be read ({cause})") from cause


def _acknowledgement(url: str, content: bytes) -> Answer:
    try:
        document = json.loads(content)
        if document["acknowledged"] is True:
            return Answer(duplicate=bool(document.get("duplicate", False)))
    except (ValueError, KeyError, TypeError):
        pass
    raise UnreachableError(f"{url}: answered 200 without an acknowledgement; is this a trueload server?")


class Backoff:
    """Waits between failures, longer each time, and says each new kind of failure once."""

    def __init__(self, endpoint: Endpoint, draw: Callable[[], float] = random.random) -> None:
        """Begin with the first wait. ``draw`` gives numbers in [0, 1)."""
        self._endpoint = endpoint
        self._draw = draw
        self._failures = 0
        self._said: str | None = None

    def seconds(self) -> float:
        """Give the next wait: between half and all of the present one."""
        full = min(
            self._endpoint.longest_wait_seconds, self._endpoint.first_wait_seconds * 2.0 ** min(self._failures, 20)
        )
        return full * (1 - self._draw() / 2)

    def fail(self, error: Exception, stop: threading.Event) -> None:
        """Report a failure, if it is a new one, and wait."""
        if str(error) != self._said:
            LOG.warning("%s", error)
            self._said = str(error)
        stop.wait(self.seconds())
        self._failures += 1

    def succeed(self) -> None:
        """Begin anew."""
        if self._failures:
            LOG.info("%s answers again", self._endpoint.url)
        self._failures, self._said = 0, None


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
    """Sends what is in a spool, oldest first, from a thread of its own."""

    def __init__(self, spool: Spool, endpoint: Endpoint) -> None:
        """Prepare; ``start`` begins."""
        self.shipped_total = 0
        self.refused_total = 0
        self._spool = spool
        self._poster = Poster(endpoint)
        self._backoff = Backoff(endpoint)
        self._stop = threading.Event()
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)

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
        for batch in self._spool.waiting():
            try:
                self._poster.post(batch.path.read_bytes())
                self._spool.acknowledge(batch)
                self.shipped_total += 1
                self._backoff.succeed()
            except FileNotFoundError:
                continue  # a bound of the spool dropped it meanwhile
            except BatchRefusedError as error:
                LOG.error("%s; %s is set aside and not sent again", error, batch.path.name)  # noqa: TRY400 - the line says it all
                self._spool.set_aside(batch)
                self.refused_total += 1
            except (UnreachableError, TokenRefusedError, OSError) as error:
                self._backoff.fail(error, self._stop)
                return False
        return True
