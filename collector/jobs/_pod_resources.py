"""What the kubelet gave to which container: its pod-resources service, asked over its socket.

Messages and numbers as in k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

from collector.jobs._protobuf import messages, text
from warehouse.contract.errors import BadInputError, BadUseError

_LIST: Final = "/v1.PodResourcesLister/List"
_MOST_BYTES: Final = 64 * 1024**2
"""gRPC gives up at 4 MiB unless told otherwise; a node full of devices with many replicas answers more."""


@dataclass(frozen=True, slots=True)
class PodDevice:
    """A device in a pod's hands: by the id of its device plugin, or by a claim that names driver, pool and device."""

    namespace: str
    pod: str
    resource: str
    device_id: str
    claim: str = ""
    pool: str = ""


class KubeletError(BadInputError):
    """The kubelet cannot be asked now."""


class PodResources:
    """A client of the kubelet's socket. The channel is made anew after a failure."""

    def __init__(self, socket: str, timeout_seconds: float) -> None:
        """Ask at ``socket``, and wait no longer than ``timeout_seconds`` for an answer.

        Raises:
            BadUseError: the package grpcio is not installed.

        """
        try:
            self._grpc: Any = importlib.import_module("grpc")
        except ImportError as cause:
            raise BadUseError(
                "job source kubernetes needs the package grpcio: pip install 'trueload[kubernetes]'"
            ) from cause
        self._socket = socket
        self._timeout_seconds = timeout_seconds
        self._channel: Any = None

    def read(self) -> list[PodDevice]:
        """Ask for all devices of all pods.

        Raises:
            KubeletError: no answer in time, or none that can be read.

        """
        if self._channel is None:
            options = [("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.enable_http_proxy", 0)]
            self._channel = self._grpc.insecure_channel(f"unix:{self._socket}", options=options)
        try:
            return read_answer(self._channel.unary_unary(_LIST)(b"", timeout=self._timeout_seconds))
        except self._grpc.RpcError as cause:
            self.close()
            what = f"{cause.code().name}: {cause.details()}"
            raise KubeletError(self._socket, None, f"the kubelet does not say who holds what ({what})") from cause
        except ValueError as cause:
            raise KubeletError(self._socket, None, f"the kubelet's answer cannot be read ({cause})") from cause

    def close(self) -> None:
        """Let the channel go. May be called twice."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def read_answer(answer: bytes) -> list[PodDevice]:
    """Read a ListPodResourcesResponse.

    Raises:
        ValueError: it is no such message.

    """
    found: list[PodDevice] = []
    for pod in messages(answer, 1):
        name, namespace = text(pod, 1), text(pod, 2)
        for container in messages(pod, 3):
            for devices in messages(container, 2):
                resource = text(devices, 1)
                ids = (value.decode("utf-8", "replace") for value in messages(devices, 2))
                found += [PodDevice(namespace, name, resource, device_id) for device_id in ids]
            for claimed in messages(container, 5):
                claim = f"{text(claimed, 3)}/{text(claimed, 2)}"
                found += [
                    PodDevice(namespace, name, text(one, 2), text(one, 4), claim, text(one, 3))
                    for one in messages(claimed, 4)
                ]
    return found
