"""A process that loads the stand-in and makes NVML calls as it is told: one JSON request and answer per line.

Started by tests with the library's path as argument, or with "loader" to find it through LD_LIBRARY_PATH.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import pynvml

handles: dict[int, Any] = {}
samples: dict[str, Any] = {}


def plain(value: Any) -> Any:
    """Turn the binding's structures and lists into what JSON knows."""
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, pynvml.nvmlFriendlyObject):
        return dict(value.__dict__)
    return [plain(item) for item in value] if isinstance(value, list) else value


def call(name: str, device: int | None = None, args: list[Any] | None = None) -> Any:
    """Make one call of the binding; a device is looked up once, so that its handle outlives its loss."""
    if device is None:
        return plain(getattr(pynvml, name)(*(args or [])))
    if device not in handles:
        handles[device] = pynvml.nvmlDeviceGetHandleByIndex(device)
    return plain(getattr(pynvml, name)(handles[device], *(args or [])))


def handle_by_uuid(uuid: str) -> int:
    """Look a device up by UUID; returns its index."""
    return int(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)))


def gpm_sample(name: str, device: int) -> None:
    """Take a GPM sample and keep it under a name."""
    if device not in handles:
        handles[device] = pynvml.nvmlDeviceGetHandleByIndex(device)
    if name not in samples:
        samples[name] = pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handles[device], samples[name])


def gpm_mean(first: str, second: str, metrics: list[int]) -> dict[int, Any]:
    """Give each metric's mean between two samples in percent, or its own return code as {"code": n}."""
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    request.sample1, request.sample2 = samples[first], samples[second]
    for place, metric in enumerate(metrics):
        request.metrics[place].metricId = metric
    pynvml.nvmlGpmMetricsGet(request)
    return {
        m.metricId: m.value if m.nvmlReturn == 0 else {"code": m.nvmlReturn} for m in request.metrics[: len(metrics)]
    }


OPERATIONS = {f.__name__: f for f in (call, handle_by_uuid, gpm_sample, gpm_mean)}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run one request; an NVML error is an answer."""
    operation = OPERATIONS[request.pop("operation")]
    try:
        return {"value": operation(**request)}
    except pynvml.NVMLError as error:
        return {"error": type(error).__name__, "code": error.value}


def main() -> None:
    """Load the library and serve until stdin ends."""
    if sys.argv[1] != "loader":
        ctypes.CDLL(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201 -- the answer's way back


if __name__ == "__main__":
    main()
