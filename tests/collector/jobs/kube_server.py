"""An API server of one's own: lists in pages, watches with versions, bookmarks and 410, over real HTTP."""

from __future__ import annotations

import copy
import email.utils
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PODS = "/api/v1/pods"


class KubeServer:
    """Keeps objects by path, counts versions, and remembers changes until they are compacted away."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.kinds: dict[str, dict[str, dict[str, Any]]] = {PODS: {}}
        self.now: Callable[[], float] = time.time
        self.resets = 0
        """So many watches are cut off without a word, each at its next event."""

        self.denied: set[str] = set()
        self.asked: list[str] = []
        self.silent = threading.Event()
        self.down = threading.Event()
        self.bookmark_seconds = 0.2
        self._version = 100
        self._events: list[tuple[int, str, str, dict[str, Any]]] = []
        self._compacted = 0
        self._change = threading.Condition()
        self.url = ""

    def put(self, found: dict[str, Any], path: str = PODS) -> None:
        """Make or change a pod, or an object of the kind that lies at ``path``."""
        there = self.kinds.setdefault(path, {})
        self._note("MODIFIED" if _name(found) in there else "ADDED", found, path)

    def delete(self, found: dict[str, Any], path: str = PODS) -> None:
        """Delete a pod, or another object."""
        self._note("DELETED", found, path)

    def add(self, path: str, found: dict[str, Any]) -> None:
        """Lay down an object that is only looked at."""
        self.objects[path] = found

    def compact(self) -> None:
        """Forget every change so far: who watches from before gets 410."""
        with self._change:
            self._version += 1
            self._compacted = self._version
            self._events.clear()
            self._change.notify_all()

    @property
    def version(self) -> int:
        """The newest version that there is."""
        return self._version

    def counts(self, path: str) -> int:
        """Say how often a path was asked for, watches apart."""
        return sum(urlsplit(one).path == path and "watch=1" not in one for one in self.asked)

    @contextmanager
    def serving(self) -> Iterator[KubeServer]:
        """Serve on a free port."""
        server = _Server(self)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            with self._change:
                self.down.set()
                self._change.notify_all()
            server.shutdown()
            server.server_close()
            thread.join()

    def _note(self, kind: str, found: dict[str, Any], path: str) -> None:
        with self._change:
            self._version += 1
            kept = copy.deepcopy(found)
            kept["metadata"]["resourceVersion"] = str(self._version)
            if kind == "DELETED":
                self.kinds[path].pop(_name(found), None)
            else:
                self.kinds[path][_name(found)] = kept
            self._events.append((self._version, path, kind, kept))
            self._change.notify_all()

    def page(self, path: str, asked: dict[str, str]) -> dict[str, Any]:
        """Give a page of a list."""
        with self._change:
            begin, limit = int(asked.get("continue") or 0), int(asked.get("limit", 500))
            found = [one for _, one in sorted(self.kinds[path].items())]
            told: dict[str, Any] = {"resourceVersion": str(self._version)}
            if begin + limit < len(found):
                told["continue"] = str(begin + limit)
            return {"metadata": told, "items": found[begin : begin + limit]}

    def stream(self, path: str, asked: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Give the events of a watch, and bookmarks between them."""
        version, ends_at = int(asked["resourceVersion"]), time.monotonic() + float(asked["timeoutSeconds"])
        while time.monotonic() < ends_at and not self.down.is_set():
            with self._change:
                if version >= self._compacted and self._version <= version:
                    self._change.wait(self.bookmark_seconds)
                is_gone = version < self._compacted
                fresh = [one for one in self._events if one[0] > version and one[1] == path]
                now = self._version
            # Nothing is given while the lock is held: who reads slowly must not keep others from changing.
            if is_gone:
                gone = {"kind": "Status", "code": 410, "message": f"too old resource version: {version}"}
                yield {"type": "ERROR", "object": gone}
                return
            for number, _, kind, found in fresh:
                version = number
                yield {"type": kind, "object": found}
            if not fresh:
                version = now
                yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(now)}}}


def _name(found: dict[str, Any]) -> str:
    return f"{found['metadata'].get('namespace', '')}/{found['metadata']['name']}"


class _Server(ThreadingHTTPServer):
    """One that knows what it serves."""

    daemon_threads = True

    def __init__(self, kube: KubeServer) -> None:
        self.kube = kube
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        kube = self.server.kube
        kube.asked.append(self.path)
        split = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(split.query).items()}
        if kube.down.is_set():
            self.close_connection = True
        elif split.path in kube.denied:
            self._answer(403, {"message": "forbidden"})
        elif split.path in kube.kinds and "watch" in asked:
            self._watch(split.path, asked)
        elif split.path in kube.kinds:
            self._answer(200, kube.page(split.path, asked))
        elif split.path in kube.objects:
            self._answer(200, kube.objects[split.path])
        else:
            self._answer(404, {"message": "not found"})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Give the date of an answer by the clock of this server."""
        return email.utils.formatdate(self.server.kube.now() if timestamp is None else timestamp, usegmt=True)

    def _watch(self, path: str, asked: dict[str, str]) -> None:
        kube = self.server.kube
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in kube.stream(path, asked):
            if kube.resets and path == PODS:
                kube.resets -= 1
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                return
            if kube.silent.is_set():
                kube.down.wait(60)
                return
            body = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
            self.wfile.flush()
        if kube.down.is_set():
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass
