"""A kubelet that a benchmark asks: its pod-resources service on a socket, one pod for each card and many without."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PODS = 110
"""As many as a kubelet runs unless told otherwise."""

_SERVICE, _METHOD = "v1.PodResourcesLister", "List"


def is_possible() -> bool:
    """Say whether gRPC is installed, which the Kubernetes extra brings."""
    return importlib.util.find_spec("grpc") is not None


@contextmanager
def kubelet(folder: Path, devices: Sequence[str]) -> Iterator[Path]:
    """Serve on a socket in a folder; gives the socket."""
    grpc: Any = importlib.import_module("grpc")
    path = folder / "kubelet.sock"
    answer = b"".join(_pod(f"pod-{at}", devices[at : at + 1]) for at in range(PODS))
    handler = grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler})])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield path
    finally:
        server.stop(0).wait()


def _pod(name: str, devices: Sequence[str]) -> bytes:
    """Write a PodResources message; numbers as in k8s.io/kubelet/pkg/apis/podresources/v1/api.proto."""
    given = b"".join(_field(2, device.encode()) for device in devices)
    container = _field(1, b"main") + (_field(2, _field(1, b"nvidia.com/gpu") + given) if devices else b"")
    return _field(1, _field(1, name.encode()) + _field(2, b"team") + _field(3, container))


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
