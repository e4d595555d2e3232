"""The agent's own small web server: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for whoever starts it.

It listens on the loopback address unless told otherwise. Everything is rendered when it is asked for; a scrape never
reads a device, and a scraper that is slow or rude costs itself.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from warehouse.contract.errors import BadUseError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LOG = logging.getLogger("trueload.exporter")
AT_A_TIME: Final = 4
"""Requests answered together: Prometheus, the kubelet's two probes, and a person."""

PATIENCE_SECONDS: Final = 5.0
"""How long a caller may take to say what it wants, and to take the answer."""

Families = Callable[[], "Iterable[Metric]"]
Readiness = Callable[[], "str | None"]


class _Families(Collector):
    """Hands the registry what each scrape is made of."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families()


class Exporter:
    """Serves from a thread of its own until closed."""

    def __init__(self, listen: str, families: Families, not_ready: Readiness) -> None:
        """Listen on ``HOST:PORT``; port 0 is any free one. ``not_ready`` says why not, None when ready.

        Raises:
            BadUseError: the address cannot be read, or not be listened on.

        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(families))
        ProcessCollector(registry=registry)
        try:
            host, _, port = listen.rpartition(":")
            self._server = _Server((host.strip("[]"), int(port)), _handler(registry, not_ready))
        except (OSError, ValueError, OverflowError) as cause:
            text = f"agent.exporter_listen: cannot listen on {listen!r} ({cause}); give HOST:PORT, or nothing"
            raise BadUseError(text) from cause
        self.port: Final[int] = self._server.server_address[1]
        # Without an interval it sleeps until somebody calls: nothing else is to be looked at.
        work = {"poll_interval": None}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs=work, name="exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, as a caller would
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(AT_A_TIME)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind, without asking the resolver who we are; callers of an agent that has just ended keep nobody out."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread while there is room; hang up otherwise."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """Answer one caller."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's arguments
        """Leave a caller that went away alone."""
        LOG.debug("%s went away", client_address)


def _handler(registry: CollectorRegistry, not_ready: Readiness) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_SECONDS

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)
            elif path == "/healthz":
                self._answer(200, b"ok\n")
            elif path == "/readyz":
                reason = not_ready()
                self._answer(200 if reason is None else 503, f"{reason or 'ok'}\n".encode())
            else:
                self._answer(404, b"there are /metrics, /healthz and /readyz\n")

        def do_HEAD(self) -> None:
            self.do_GET()

        def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    return Handler
