"""Asking a Prometheus server over its HTTP API: within time limits, again after a while, in parts it can answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

import urllib3

from warehouse.contract.errors import BadInputError
from warehouse.imports._prom_remote import Series, read_request, read_response

CONNECT_SECONDS: Final = 10.0
TRIES: Final = 3
"""A server that restarts or is busy answers within seconds; whoever waits longer can start the import again."""

WAIT_SECONDS: Final = 1.0
REMOTE_PATH: Final = "/api/v1/read"
REMOTE_HEADERS: Final = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}
_SAMPLE_LIMIT: Final = "sample limit"
"""What a server says to a remote read that is too much (storage.remote.read-sample-limit)."""

_OK, _UNPROCESSABLE, _TOO_MANY, _FIRST_SERVER_ERROR = 200, 422, 429, 500


class TooMuchError(Exception):
    """The server will not answer so much at once: ask for less."""


@dataclass(frozen=True, slots=True)
class Server:
    """One server: its address without a password, how to identify, and how long to wait."""

    address: str
    headers: Mapping[str, str]
    timeout_seconds: float
    pool: urllib3.PoolManager
    sleep: Callable[[float], None] = time.sleep

    @property
    def is_remote_read(self) -> bool:
        """Say whether the address is that of a remote read."""
        return self.address.endswith(REMOTE_PATH)

    def series(self, matchers: Sequence[str], since_at: float, until_at: float) -> list[dict[str, str]]:
        """Give the labels of every series that matches.

        Raises:
            BadInputError: the server does not answer, or is none.
            TooMuchError: it will not answer so much.

        """
        fields = [("match[]", matcher) for matcher in matchers]
        data = self._ask("series", [*fields, ("start", f"{since_at:.3f}"), ("end", f"{until_at:.3f}")])
        if not isinstance(data, list):
            raise self._strange()
        return [{str(key): str(value) for key, value in labels.items()} for labels in data if isinstance(labels, dict)]

    def values(self, selector: str, since_at: float, until_at: float) -> Iterator[tuple[dict[str, str], list[Any]]]:
        """Give the raw values of each series in a stretch of time, both ends included.

        Raises:
            BadInputError, TooMuchError: see ``series``.

        """
        seconds = int(until_at - since_at) + 1  # from Prometheus 3 on the first instant is left out
        fields = [("query", f"{selector}[{seconds}s]"), ("time", f"{until_at:.3f}")]
        data = self._ask("query", [*fields, ("timeout", f"{self.timeout_seconds:g}s")])
        for labels, values in matrix(data, self.address):
            yield labels, [value for value in values if not _is_before(value, since_at)]

    def remote(self, matchers: Sequence[tuple[str, str]], since_at: float, until_at: float) -> list[Series]:
        """Give the raw values of series by remote read, both ends included; the address is that of the route.

        Raises:
            BadInputError, TooMuchError: see ``series``.

        """
        body = self._post(self.address, {"body": read_request(matchers, since_at, until_at)}, REMOTE_HEADERS)
        return list(read_response(body, self.address))

    def _ask(self, route: str, fields: Sequence[tuple[str, str]]) -> object:
        what = {"fields": fields, "encode_multipart": False}
        return self._data(self._post(f"{self.address}/api/v1/{route}", what, {}))

    def _post(self, url: str, what: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        trouble = ""
        for number in range(TRIES):
            if number:
                self.sleep(WAIT_SECONDS * 2 ** (number - 1))
            try:
                answer = self.pool.request(
                    "POST",
                    url,
                    **what,
                    headers={**self.headers, **headers},
                    timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=self.timeout_seconds + CONNECT_SECONDS),
                )
            except urllib3.exceptions.ReadTimeoutError as cause:
                raise TooMuchError(f"no answer within {self.timeout_seconds:g} s") from cause
            except urllib3.exceptions.HTTPError as cause:
                trouble = f"does not answer ({cause.__class__.__name__})"
                continue
            if answer.status == _OK:
                return bytes(answer.data)
            told = _told(answer.data)
            if answer.status in (_UNPROCESSABLE, 503) or _SAMPLE_LIMIT in told:
                raise TooMuchError(told or f"HTTP {answer.status}")
            trouble = f"answered {answer.status} {told}".strip()
            if answer.status != _TOO_MANY and answer.status < _FIRST_SERVER_ERROR:
                break
        raise BadInputError(self.address, None, f"{trouble}; expected a Prometheus server's HTTP API at {url}")

    def _data(self, body: bytes) -> object:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise self._strange() from None
        if not isinstance(document, dict) or document.get("status") != "success":
            raise self._strange()
        return document.get("data")

    def _strange(self) -> BadInputError:
        return BadInputError(self.address, None, "answered something that is no answer of Prometheus' HTTP API")


def open_server(url: str, token_file: str, timeout_seconds: float) -> Server:
    """Read the address of a server.

    Raises:
        BadInputError: the file with the token cannot be read.

    """
    parts = urlsplit(url)
    bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
    headers: dict[str, str] = {}
    if token_file:
        try:
            token = Path(token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as cause:
            raise BadInputError(token_file, None, f"cannot be read ({cause}); import.prometheus_token_file") from cause
        headers["Authorization"] = f"Bearer {token}"
    elif parts.username is not None:
        who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers |= urllib3.make_headers(basic_auth=who)
    return Server(bare, headers, timeout_seconds, urllib3.PoolManager(retries=False))


def matrix(data: object, origin: str) -> Iterator[tuple[dict[str, str], list[Any]]]:
    """Give labels and values of each series of an answer: ``[time, "value"]`` each.

    Raises:
        BadInputError: it is no matrix or vector.

    """
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list):
        raise BadInputError(origin, "data.result", "expected a matrix or vector of Prometheus' HTTP API")
    for series in result:
        labels = series.get("metric") if isinstance(series, dict) else None
        if not isinstance(labels, dict):
            raise BadInputError(origin, "data.result", "expected series with labels under metric")
        values = series.get("values")
        if values is None and "value" in series:
            values = [series["value"]]
        yield (
            {str(key): str(value) for key, value in labels.items()},
            values if isinstance(values, list) else [],
        )


def _is_before(value: object, since_at: float) -> bool:
    """Say whether a value surely lies before an instant: from Prometheus 3 on a range begins just behind its begin."""
    at = value[0] if isinstance(value, list) and value else None
    return isinstance(at, (int, float)) and at < since_at


def _told(body: bytes) -> str:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body[:200].decode("utf-8", "replace").strip()
    return str(document.get("error", ""))[:200] if isinstance(document, dict) else ""
