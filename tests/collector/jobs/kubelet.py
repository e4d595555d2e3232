"""A kubelet of one's own: a real gRPC server on a socket that speaks the pod-resources service."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc


def field_bytes(number: int, value: bytes | str) -> bytes:
    """Write a text or a message as a field."""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Write a number in protobuf's way."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def pod(
    name: str,
    devices: Sequence[str] = (),
    *,
    namespace: str = "team",
    resource: str = "nvidia.com/gpu",
    claims: Sequence[tuple[str, str, str, str]] = (),
) -> bytes:
    """Give a pod with one container; a claim is its name, driver, pool and device."""
    given = field_bytes(1, resource) + b"".join(field_bytes(2, device) for device in devices)
    container = field_bytes(1, "main") + field_bytes(2, given) + varint(3 << 3) + varint(300)
    for claim, driver, pool, device in claims:
        one = field_bytes(2, driver) + field_bytes(3, pool) + field_bytes(4, device)
        container += field_bytes(5, field_bytes(2, claim) + field_bytes(3, namespace) + field_bytes(4, one))
    return field_bytes(1, field_bytes(1, name) + field_bytes(2, namespace) + field_bytes(3, container))


@dataclass
class Kubelet:
    """Answers with ``pods``; while ``silent`` is set it says nothing at all."""

    socket: Path
    pods: list[bytes] = field(default_factory=list)
    calls: int = 0
    silent: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    server: Any = None

    def start(self) -> None:
        """Serve on the socket."""

        def answer(_request: bytes, _context: Any) -> bytes:
            self.calls += 1
            if self.silent.is_set():
                self.over.wait(30)
            return b"".join(self.pods)

        kept: Callable[[bytes], bytes] = bytes
        handler = grpc.unary_unary_rpc_method_handler(answer, request_deserializer=kept, response_serializer=kept)
        self.server = grpc.server(
            ThreadPoolExecutor(2), options=[("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
        )
        self.server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})]
        )
        self.server.add_insecure_port(f"unix:{self.socket}")
        self.server.start()

    def stop(self) -> None:
        """Stop at once."""
        self.over.set()
        self.server.stop(0).wait()
