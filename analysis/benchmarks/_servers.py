"""Servers for benchmarks, on the loopback address, each in a process of its own: ours, and Prometheus as its peer."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import urllib3

from warehouse import access
from warehouse.contract.errors import StoreError

if TYPE_CHECKING:
    from warehouse.contract import wire

READY_SECONDS = 60.0
POLL_SECONDS = 0.05
_LITERAL_BYTES = 1 << 16


REMOTE_WRITE = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
"""Headers of a remote write (Prometheus remote-write specification 1.0)."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A running Prometheus on the loopback address."""

    port: int
    process_id: int


@contextmanager
def our_server(data: Path) -> Iterator[access.Address]:
    """Run ``trueload serve`` over a data directory; gives its address with the operator's token."""
    command = [sys.executable, "-m", "trueload", "serve", "--data", str(data), "--port", "0"]
    with _process(command, data.parent / "server.log") as process:

        def address() -> access.Address | None:
            found = access.published(data)
            return found if found is not None and found.process_id == process.pid else None

        _wait(process, lambda: address() is not None)
        found = address()
        if found is None:
            raise StoreError(f"{data}: the server left while it was started")
        yield found


@contextmanager
def prometheus(folder: Path) -> Iterator[Peer]:
    """Run Prometheus with its remote-write receiver."""
    folder.mkdir()
    settings = folder / "prometheus.yml"
    settings.write_text("global: {}\n", encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = ["prometheus", f"--config.file={settings}", f"--storage.tsdb.path={folder / 'data'}"]
    command.append("--storage.tsdb.retention.time=1y")  # what is written may be weeks old
    command += [f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver"]
    pool = urllib3.PoolManager(retries=False, timeout=2.0)

    def is_ready() -> bool:
        try:
            return bool(pool.request("GET", f"http://127.0.0.1:{port}/-/ready").status == 200)  # noqa: PLR2004
        except urllib3.exceptions.HTTPError:
            return False

    with _process(command, folder / "prometheus.log") as process:
        _wait(process, is_ready)
        yield Peer(port, process.pid)


def has_prometheus() -> bool:
    """Say whether Debian's package is there."""
    return shutil.which("prometheus") is not None


def cpu_seconds(process_id: int) -> float:
    """Give the CPU time of a running process: fields 14 and 15 of proc_pid_stat(5)."""
    status = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(status[11]) + int(status[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=READY_SECONDS)


def _wait(process: subprocess.Popen[bytes], is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise StoreError(f"{process.args!r} did not become ready")
        time.sleep(POLL_SECONDS)


def remote_write(table: wire.Table, metrics: Sequence[str]) -> bytes:
    """Give samples as the body of a Prometheus remote write: a ``prompb.WriteRequest`` within a snappy block.

    A series for each metric and device. The block holds literals alone, which every reader of snappy takes: packing is
    the sender's cost and not the server's.
    """
    at = [round(float(value) * 1000) for value in table.columns["sampled_at"]]  # type: ignore[union-attr, arg-type]
    devices = list(table.columns["device_uuid"])  # type: ignore[arg-type]
    node = str(table.columns["node"])
    series = []
    for metric in metrics:
        values = list(table.columns[metric])  # type: ignore[arg-type]
        for device in sorted(set(map(str, devices))):
            labels = [("__name__", f"bench_{metric}"), ("device", device), ("node", node)]
            body = b"".join(
                protobuf_field(1, protobuf_field(1, k.encode()) + protobuf_field(2, v.encode())) for k, v in labels
            )
            body += b"".join(
                protobuf_field(2, b"\x09" + struct.pack("<d", float(values[row])) + b"\x10" + varint(at[row]))  # type: ignore[arg-type]
                for row, owner in enumerate(devices)
                if owner == device
            )
            series.append(protobuf_field(1, body))
    return literals(b"".join(series))


def protobuf_field(number: int, content: bytes) -> bytes:
    """Give a field of bytes as protobuf writes it."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Give a whole number as protobuf writes it."""
    found = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def literals(plain: bytes) -> bytes:
    """Frame bytes as a snappy block of literals (snappy's format_description.txt, 2.1: tag 61, length in two bytes)."""
    pieces = [plain[at : at + _LITERAL_BYTES] for at in range(0, len(plain), _LITERAL_BYTES)]
    return varint(len(plain)) + b"".join(b"\xf4" + struct.pack("<H", len(piece) - 1) + piece for piece in pieces)
