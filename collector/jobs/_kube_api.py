"""Kubernetes' API server, as far as a collector asks it: lists in pages, watches that go on, single objects.

By plain HTTP and JSON rather than through generated models: what is asked for are a few fields of any kind of object.
What a watch does and means: Kubernetes API concepts, "Efficient detection of changes" (bookmarks, 410 Gone) and
"Retrieving large results sets in chunks".
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import urllib3

from warehouse.contract.errors import BadUseError, UnreachableError

ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE_ITEMS: Final = 500
OK: Final = 200
NOT_FOUND: Final = 404
GONE: Final = 410
NOT_THERE: Final = frozenset({401, 403, 404})
SILENT_SECONDS: Final = 15.0
"""A watch ends by itself after the time that was asked for; a server that says nothing for so much longer is gone."""

_MOST_BYTES: Final = 64 * 1024**2

Object = Mapping[str, Any]


class GoneError(UnreachableError):
    """The version that was asked from is too old: list again (HTTP 410)."""


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects of a kind, and the version from which to watch."""

    items: list[Object]
    version: str


class KubeApi:
    """One API server. ``token_file`` is read for each request: service accounts' tokens are renewed in place."""

    def __init__(
        self,
        url: str,
        token_file: Path | None,
        ca_file: Path | None,
        timeout_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; nothing is connected yet."""
        self._clock = clock
        self.url: Final = url.rstrip("/")
        self._token_file = token_file
        self._timeout_seconds = timeout_seconds
        self.clock_ahead_seconds = 0.0
        """How far the server's clock is ahead of this machine's, as its last answer said."""
        options = {"ca_certs": str(ca_file)} if ca_file is not None else {}
        self._pool = urllib3.PoolManager(retries=False, maxsize=8, **options)  # type: ignore[arg-type]

    @classmethod
    def of_cluster(cls, url: str, timeout_seconds: float, account: Path = ACCOUNT_DIR) -> KubeApi:
        """Give the server of the cluster that this process runs in, or of ``url``.

        Raises:
            BadUseError: this is no pod, and no address was given.

        """
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not url and not host:
            raise BadUseError(
                "no API server: run inside the cluster, or set jobs.kubernetes_url (kubectl proxy serves one)"
            )
        address = url or f"https://{f'[{host}]' if ':' in str(host) else host}:{port}"
        token, authority = account / "token", account / "ca.crt"
        is_inside = address.startswith("https") and token.exists()
        return cls(address, token if is_inside else None, authority if is_inside else None, timeout_seconds)

    def list_all(self, path: str) -> Listed:
        """Give all objects of a kind, in pages.

        Raises:
            UnreachableError: no answer, or a refusal.
            GoneError: the pages changed meanwhile; begin again.

        """
        items: list[Object] = []
        version = ""
        for page in self.pages(path):
            items += page.items
            version = page.version
        return Listed(items, version)

    def pages(self, path: str) -> Iterator[Listed]:
        """Give the objects of a kind page by page, so that one page at a time is held; the last one has the version.

        Raises: as ``list_all``.

        """
        more = ""
        while True:
            page = self._get(path, {"limit": str(PAGE_ITEMS), **({"continue": more} if more else {})})
            told = page.get("metadata") or {}
            yield Listed(page.get("items") or [], str(told.get("resourceVersion", "")))
            more = told.get("continue") or ""
            if not more:
                return

    def get(self, path: str) -> Object | None:
        """Give one object; None where it is not there, or may not be seen.

        Raises:
            UnreachableError: no answer.

        """
        try:
            return self._get(path, {})
        except RefusedByServerError:
            return None

    def watch(self, path: str, version: str, seconds: float) -> Iterator[tuple[str, Object]]:
        """Give what changes after a version, for about so many seconds; ends quietly.

        Raises:
            GoneError: the version is too old.
            UnreachableError: the connection broke, or the server fell silent.

        """
        asked = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(seconds)),
        }
        timeout = urllib3.Timeout(connect=self._timeout_seconds, read=seconds + SILENT_SECONDS)
        response = self._request(f"{path}?{urlencode(asked)}", timeout, streams=True)
        try:
            if response.status == GONE:
                raise GoneError(f"{self.url}{path}: version {version} is too old")
            if response.status != OK:
                message = f"{self.url}{path}: answered {response.status} to a watch"
                if response.status not in NOT_THERE:  # busy, or about to be started anew
                    raise UnreachableError(message)
                raise RefusedByServerError(message, response.status)
            for line in _lines(response):
                event = json.loads(line)
                kind, found = str(event.get("type")), event.get("object") or {}
                if kind == "ERROR":
                    message = f"{self.url}{path}: {found.get('message', 'the watch failed')}"
                    raise GoneError(message) if found.get("code") == GONE else UnreachableError(message)
                yield kind, found
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as cause:
            raise UnreachableError(f"{self.url}{path}: the watch broke off ({type(cause).__name__})") from cause
        finally:
            response.close()
            response.release_conn()

    def close(self) -> None:
        """Let the connections go."""
        self._pool.clear()

    def _get(self, path: str, asked: Mapping[str, str]) -> dict[str, Any]:
        where = f"{path}?{urlencode(asked)}" if asked else path
        response = self._request(where, urllib3.Timeout(self._timeout_seconds), streams=False)
        if response.status == GONE:
            raise GoneError(f"{self.url}{path}: the list changed while it was read")
        if response.status in NOT_THERE:
            raise RefusedByServerError(
                f"{self.url}{path}: answered {response.status}; allow the service account to get, list and watch it",
                response.status,
            )
        if response.status != OK:
            raise UnreachableError(f"{self.url}{path}: answered {response.status}")
        try:
            document = json.loads(response.data)
        except ValueError as cause:
            raise UnreachableError(f"{self.url}{path}: answered no JSON") from cause
        if not isinstance(document, dict):
            raise UnreachableError(f"{self.url}{path}: answered no object")
        return document

    def _request(self, where: str, timeout: urllib3.Timeout, *, streams: bool) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json"}
        try:
            if self._token_file is not None:
                headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='ascii').strip()}"
            response = self._pool.request(
                "GET", self.url + where, headers=headers, timeout=timeout, preload_content=not streams
            )
        except (urllib3.exceptions.HTTPError, OSError) as cause:
            raise UnreachableError(f"{self.url}: no answer ({type(cause).__name__})") from cause
        self._compare_clocks(response.headers.get("Date"))
        return response

    def _compare_clocks(self, date: str | None) -> None:
        """Read how far the server's clock is ahead; where the answer says nothing, what was known stands."""
        try:
            if date is not None:
                self.clock_ahead_seconds = parsedate_to_datetime(date).timestamp() - self._clock()
        except ValueError:
            return


class RefusedByServerError(UnreachableError):
    """The server will not tell: there is no such thing, or the account may not see it. ``status`` is HTTP's."""

    def __init__(self, message: str, status: int) -> None:
        """Keep both."""
        self.status = status
        super().__init__(message)


def object_path(api_version: str, kind: str, namespace: str, name: str) -> str:
    """Give where one object lies. The plural of a kind is its name in small letters with an s: it is for all in use."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{quote(namespace, safe='')}/{kind.lower()}s/{quote(name, safe='')}"


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Give the lines of a stream as they come."""
    waiting = b""
    for part in response.stream(64 * 1024):
        waiting += part
        *whole, waiting = waiting.split(b"\n")
        yield from (line for line in whole if line.strip())
        if len(waiting) > _MOST_BYTES:
            raise ValueError("a line without an end")
