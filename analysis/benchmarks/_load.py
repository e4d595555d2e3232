"""Senders for benchmarks of servers: many connections, each posting one prepared body after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Posted:
    """What came of it: how many were taken, within how long all of them, and how long each waited, in seconds."""

    taken: int
    refused: int
    seconds: float
    waits: Sequence[float]

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


def post_all(address: Address, bodies: Sequence[bytes], connections: int) -> Posted:
    """Post every body over so many connections at once, as fast as answers come.

    Raises:
        OSError: the server went away.

    """
    requests = iter([address.request(body) for body in bodies])
    return asyncio.run(_post_all(address, requests, connections))


async def _post_all(address: Address, requests: Iterator[bytes], connections: int) -> Posted:
    waits: list[float] = []
    refused: list[int] = []
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_sender(address, requests, waits, refused))
    return Posted(len(waits), len(refused), time.perf_counter() - began, waits)


async def _sender(address: Address, requests: Iterator[bytes], waits: list[float], refused: list[int]) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        for request in requests:
            began = time.perf_counter()
            writer.write(request)
            status = await _status(reader)
            if status in (200, 204):
                waits.append(time.perf_counter() - began)
            else:
                refused.append(status)
    finally:
        writer.close()


async def _status(reader: asyncio.StreamReader) -> int:
    """Read one answer to its end and give its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next((int(line.partition(":")[2]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
    await reader.readexactly(length)
    return int(head.split(" ", 2)[1])
