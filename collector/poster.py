"""One connection to the server: posts, what each answer means, and how long to wait after a bad one."""

from __future__ import annotations

import email.utils
import gzip
import json
import logging
import random
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import urllib3

from collector.files import replace_file
from warehouse.contract import exchange
from warehouse.contract.clocks import AHEAD_AT_MOST_HEADER, SENT_AT_HEADER, Offset, offset_between
from warehouse.contract.errors import BadInputError, BadUseError, RefusedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOG = logging.getLogger("trueload.ship")
BATCHES_PATH: Final = "/v1/batches"
HELD_PATH: Final = "/v1/held"
DETAIL_PATH: Final = "/v1/detail"
ENROL_PATH: Final = "/v1/enrol"
CONTENT_TYPE: Final = "application/vnd.trueload.batch+json"
OK: Final = 200
UNAUTHORISED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = (404, 405)
TOO_LARGE: Final = 413
NEVER_TAKEN: Final = (400, 422)
"""Answers about the batch itself: it would get them again for ever."""

MOST_DOUBLINGS: Final = 20
"""Any wait has reached its longest by then."""


class BatchRefusedError(RefusedError):
    """The server will never take this batch; others may go on."""


class TooLargeError(BatchRefusedError):
    """The server takes no batch of this size; parts of it may go."""


class TokenRefusedError(RefusedError):
    """The server knows no such token, or one that may not write. Nothing goes until that is mended."""


class NotOfferedError(RefusedError):
    """The server does not know this request: it is older."""


class BusyError(UnreachableError):
    """The server said when to come back."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        """Take the message, and the wait that the server asks for."""
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class Trust:
    """TLS: whom to believe, and who we are. None: the system's authorities, no certificate of our own."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where batches go. The token is read from its file for every post, so it may be replaced at any time.

    With ``join_token_file`` the token is this ``node``'s own: it is asked for with the join secret when the file is
    not there, or when the server does not know it any more, and replaced when it is older than
    ``token_max_age_seconds`` (0: never).

    Waits: ``first_wait_seconds`` after a failure, doubling up to ``longest_wait_seconds``, each shortened by up to a
    half at random so that a thousand agents do not return at once.
    """

    url: str
    token_file: Path | None
    timeout_seconds: float = 10.0
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 60.0
    trust: Trust = Trust()
    join_token_file: Path | None = None
    node: str = ""
    token_max_age_seconds: float = 0.0


def open_pool(endpoint: Endpoint, connections: int) -> urllib3.PoolManager:
    """Prepare connections: directly, or through the proxy that the environment names for this host.

    Raises:
        BadUseError: a file of a certificate or key cannot be used.

    """
    trust, scheme = endpoint.trust, urlsplit(endpoint.url).scheme
    options: dict[str, object] = {
        "retries": False,
        "timeout": urllib3.Timeout(endpoint.timeout_seconds),
        "maxsize": connections,
        "block": True,
    }
    if scheme == "https":
        context = urllib3.util.create_urllib3_context()
        try:
            if trust.ca_file is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(str(trust.ca_file))
            if trust.certificate_file is not None:
                context.load_cert_chain(
                    str(trust.certificate_file), None if trust.key_file is None else str(trust.key_file)
                )
        except OSError as cause:  # ssl.SSLError is one
            raise BadUseError(
                f"TLS for {endpoint.url}: {cause}; check agent.tls_ca_file, agent.tls_certificate_file and "
                "agent.tls_key_file"
            ) from cause
        options["ssl_context"] = context
    proxy = None if urllib.request.proxy_bypass(urlsplit(endpoint.url).hostname or "") else _proxies().get(scheme)
    if proxy:
        return urllib3.ProxyManager(proxy, **options)  # type: ignore[arg-type]
    return urllib3.PoolManager(**options)  # type: ignore[arg-type]


def _proxies() -> dict[str, str]:
    found = urllib.request.getproxies()
    return {scheme: found.get(scheme) or found.get("all", "") for scheme in ("http", "https")}


class Poster:
    """Posts encoded batches to one server over a connection that is kept."""

    def __init__(self, endpoint: Endpoint, connections: int = 1) -> None:
        """Prepare for so many posts at a time; nothing is connected yet."""
        self.endpoint: Final = endpoint
        self._pool = open_pool(endpoint, connections)
        self._enrolment = threading.Lock()
        self._token_in_memory: str | None = None
        self.clock: Offset | None = None
        """How far our clock is ahead of the server's, as the last batch told; None before the first, or untold."""

    def post(self, body: bytes) -> exchange.Acknowledgement:
        """Post one batch.

        Raises:
            UnreachableError: no answer, or one that says "later" (429, 5xx).
            TokenRefusedError: the token is missing or not accepted (401, 403).
            BatchRefusedError: the batch itself is not accepted (400, 413, 422).

        """
        clock = self.clock  # posts may be under way on several threads
        said = {} if clock is None else {AHEAD_AT_MOST_HEADER: repr(clock.high)}
        sent_at = time.time()
        answer = exchange.acknowledgement(self._ask(BATCHES_PATH, body, {**said, SENT_AT_HEADER: repr(sent_at)}))
        heard_at = time.time()
        if answer is None:
            text = f"{self._url(BATCHES_PATH)}: answered 200 without an acknowledgement; is this a trueload server?"
            raise UnreachableError(text)
        found = None
        if answer.taken_at is not None and answer.answered_at is not None:
            found = offset_between(sent_at, heard_at, answer.taken_at, answer.answered_at)
        self.clock = found
        return answer

    def compare(self, agent: str, holdings: Sequence[exchange.Holdings]) -> tuple[str, list[exchange.Position]]:
        """Tell the server what it has acknowledged; gives its run and what it lacks. Raises as ``post``."""
        try:
            return exchange.read_positions(self._ask(HELD_PATH, _packed(exchange.holdings_document(agent, holdings))))
        except BadInputError as cause:
            raise UnreachableError(f"{self._url(HELD_PATH)}: {cause}") from cause

    def post_detail(self, agent: str, ask_id: str, series: Sequence[exchange.Series]) -> None:
        """Post what was asked for. Raises as ``post``."""
        self._ask(DETAIL_PATH, _packed(exchange.detail_document(agent, ask_id, series)))

    def get(self, path: str) -> object:
        """Ask for a document. Raises as ``post``."""
        return self._ask(path, None)

    def send(self, path: str, body: bytes, *, gzipped: bool = True) -> object:
        """Post something that is no batch, and give the answer. Raises as ``post``."""
        return self._ask(path, body, gzipped=gzipped)

    def post_until_taken(self, body: bytes, stop: threading.Event) -> exchange.Acknowledgement | None:
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

    # ---------------------------------------------------------------------------------------------------- posts

    def _url(self, path: str) -> str:
        return self.endpoint.url.rstrip("/") + path

    def _ask(
        self, path: str, body: bytes | None, more: Mapping[str, str] | None = None, *, gzipped: bool = True
    ) -> object:
        token, gzipped = self._token(), gzipped and body is not None
        status, document, text, wait_seconds = self._request(path, body, token, more, gzipped=gzipped)
        if status == OK:
            return document
        enrols = self.endpoint.join_token_file is not None
        if status == UNAUTHORISED and enrols:
            self._enrol_again(token)
            raise UnreachableError(f"{text}; enrolled anew")
        if status in (UNAUTHORISED, FORBIDDEN) and not (enrols and status == FORBIDDEN):
            raise TokenRefusedError(f"{text}; check the token in {self.endpoint.token_file}")
        if status == TOO_LARGE:
            raise TooLargeError(text)
        if status in NEVER_TAKEN or status == FORBIDDEN:  # a node's own token may always post: it is about the batch
            raise BatchRefusedError(text)
        if status in NOT_FOUND and path != BATCHES_PATH:
            raise NotOfferedError(text)
        if wait_seconds is not None:
            raise BusyError(text, wait_seconds)
        raise UnreachableError(text)

    def _request(
        self, path: str, body: bytes | None, token: str, more: Mapping[str, str] | None = None, *, gzipped: bool
    ) -> tuple[int, object, str, float | None]:
        """Post, or get where there is no body; gives status, JSON document, what to say, and the wait asked for."""
        url = self._url(path)
        headers = {"Content-Type": CONTENT_TYPE if gzipped else "application/json", "Authorization": f"Bearer {token}"}
        headers |= more or {}
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        try:
            response = self._pool.request("GET" if body is None else "POST", url, body=body, headers=headers)
        except (urllib3.exceptions.HTTPError, OSError) as cause:
            raise UnreachableError(f"{url}: no answer ({type(cause).__name__}); is the server up?") from cause
        text = f"{url}: answered {response.status} {response.data[:300].decode(errors='replace')!r}"
        try:
            document = json.loads(response.data)
        except ValueError:
            document = None
        return response.status, document, text, retry_after_seconds(response.headers.get("Retry-After"), time.time())

    # --------------------------------------------------------------------------------------------------- tokens

    def _token(self) -> str:
        path = self.endpoint.token_file
        if path is None:
            raise TokenRefusedError("no token: set agent.token_file to a file that holds one")
        if self.endpoint.join_token_file is not None:
            return self._node_token(path)
        return _read_token(path)

    def _node_token(self, path: Path) -> str:
        if self._token_in_memory is not None:
            return self._token_in_memory
        try:
            token, age_seconds = _read_token(path), time.time() - path.stat().st_mtime
        except (TokenRefusedError, OSError):
            return self._enrol_again(None)
        if 0 < self.endpoint.token_max_age_seconds < age_seconds:
            return self._enrol(token)
        return token

    def _enrol_again(self, refused: str | None) -> str:
        """Ask with the join secret for a token of this node, unless another thread just did."""
        path, join = self.endpoint.token_file, self.endpoint.join_token_file
        if path is None or join is None:
            raise TokenRefusedError("no token: set agent.token_file to a file that holds one")
        with self._enrolment:
            if refused is not None and path.exists() and (now := _read_token(path)) != refused:
                return now
            return self._enrol(_read_token(join))

    def _enrol(self, secret: str) -> str:
        """Exchange the join secret, or this node's own token, for a new token, and keep it (mode 600)."""
        endpoint = self.endpoint
        body = json.dumps({"node": endpoint.node}).encode()
        status, document, text, wait_seconds = self._request(ENROL_PATH, body, secret, gzipped=False)
        token = document.get("token") if isinstance(document, dict) else None
        if status != OK or not isinstance(token, str):
            if wait_seconds is not None:
                raise BusyError(text, wait_seconds)
            if status in (UNAUTHORISED, FORBIDDEN, *NEVER_TAKEN):
                raise TokenRefusedError(
                    f"{text}; enrolling failed: check the join secret in {endpoint.join_token_file}"
                )
            raise UnreachableError(text)
        self._keep_token(token)
        LOG.info("%s: enrolled as node %s", endpoint.url, endpoint.node)
        return token

    def _keep_token(self, token: str) -> None:
        path = self.endpoint.token_file
        self._token_in_memory = None
        try:
            if path is not None:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(path, token.encode())
        except OSError as error:
            LOG.warning("%s: the node's token cannot be kept (%s); it is asked for anew at the next start", path, error)
            self._token_in_memory = token


def _read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as cause:
        why = getattr(cause, "strerror", None) or "no text"
        raise TokenRefusedError(
            f"{path}: the token cannot be read ({why}); name its file by agent.token_file "
            "(`trueload jobs`: --token-file), or let the agent enrol with agent.join_token_file"
        ) from cause
    if not token or not token.isprintable():
        raise TokenRefusedError(f"{path}: holds no token")
    return token


def _packed(document: object) -> bytes:
    return gzip.compress(json.dumps(document, separators=(",", ":"), allow_nan=False).encode(), mtime=0)


def retry_after_seconds(value: str | None, now: float) -> float | None:
    """Read a Retry-After header, seconds or a date (RFC 9110, 10.2.3); None where it says nothing usable."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None


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
            self._endpoint.longest_wait_seconds,
            self._endpoint.first_wait_seconds * 2.0 ** min(self._failures, MOST_DOUBLINGS),
        )
        return full * (1 - self._draw() / 2)

    def fail(self, error: Exception, stop: threading.Event) -> None:
        """Report a failure, if it is a new one, and wait."""
        if str(error) != self._said:
            LOG.warning("%s", error)
            self._said = str(error)
        wait_seconds = self.seconds()
        if isinstance(error, BusyError):
            asked = min(error.retry_after_seconds, self._endpoint.longest_wait_seconds)
            wait_seconds = max(wait_seconds, asked * (1 + self._draw() / 2))
        stop.wait(wait_seconds)
        self._failures += 1

    def succeed(self) -> None:
        """Begin anew."""
        if self._failures:
            LOG.info("%s answers again", self._endpoint.url)
        self._failures, self._said = 0, None
