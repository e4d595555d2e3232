"""Senders for benchmarks of servers: many connections, each posting one prepared body after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

TAKEN = (200, 204)


@dataclass(frozen=True, slots=True)
class Posted:
    """What came of it: how many were taken, within how long all of them, and how long each waited, in seconds."""

    taken: int
    refused: int
    seconds: float
    waits: Sequence[float]
    missing: int = 0
    """Of those taken, how many were not there when it was looked afterwards."""

    def wait(self, percent: float) -> float:
        """Give a percentile of the waits."""
        return float(np.percentile(self.waits, percent))


@dataclass(frozen=True, slots=True)
class Address:
    """Where to post, with the headers of every request."""

    host: str
    port: int
    path: str
    headers: Mapping[str, str]

    def request(self, body: bytes) -> bytes:
        """Give the bytes of one request."""
        lines = [f"POST {self.path} HTTP/1.1", f"Host: {self.host}:{self.port}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def get(self, path: str) -> bytes:
        """Give the bytes of a request that has no body."""
        lines = [f"GET {path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]).encode()


class Connection:
    """One connection to a server, for one request after the other; an asynchronous context manager."""

    def __init__(self, host: str, port: int) -> None:
        """Take where to connect to."""
        self._where = host, port

    async def __aenter__(self) -> Self:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(*self._where)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
        self._writer.close()

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; gives the answer's status and body."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        lines = head.split("\r\n")
        length = next((int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")), 0)
        return int(head.split(" ", 2)[1]), await self._reader.readexactly(length)


def post_all(host: str, port: int, requests: Sequence[bytes], connections: int) -> Posted:
    """Send every prepared request over so many connections at once, as fast as answers come.

    Raises:
        OSError: the server went away.

    """
    return asyncio.run(_post_all(host, port, iter(requests), connections))


async def _post_all(host: str, port: int, requests: Iterator[bytes], connections: int) -> Posted:
    waits: list[float] = []
    refused: list[int] = []
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_sender(host, port, requests, waits, refused))
    return Posted(len(waits), len(refused), time.perf_counter() - began, waits)


async def _sender(host: str, port: int, requests: Iterator[bytes], waits: list[float], refused: list[int]) -> None:
    async with Connection(host, port) as connection:
        for request in requests:
            began = time.perf_counter()
            status, _ = await connection.ask(request)
            if status in TAKEN:
                waits.append(time.perf_counter() - began)
            else:
                refused.append(status)


async def send_at_a_rate(host: str, port: int, requests: Iterable[bytes], a_second: float) -> list[float]:
    """Send each request when it is due; gives the waits, from then on, of those that were taken."""
    waits: list[float] = []
    idle: list[Connection] = []
    began = time.perf_counter()

    async def send(request: bytes, due: float) -> None:
        connection = idle.pop() if idle else await Connection(host, port).__aenter__()
        try:
            status, _ = await connection.ask(request)
        except (ConnectionError, asyncio.IncompleteReadError):
            # The server closes what is idle for some seconds: as every client does, send anew over a new connection.
            connection = await Connection(host, port).__aenter__()
            status, _ = await connection.ask(request)
        idle.append(connection)
        if status in TAKEN:
            waits.append(time.perf_counter() - due)

    async with asyncio.TaskGroup() as group:
        for number, request in enumerate(requests):
            due = began + number / a_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(send(request, due))
    for connection in idle:
        await connection.__aexit__()
    return waits
