"""Objects of Kubernetes as its API server writes them, for tests."""

from __future__ import annotations

import time
from typing import Any

from collector.jobs._kube_pods import Reading

READING = Reading("c", ("nvidia.com/",), ("owner",), ("team",))
T0 = 1_790_000_000.0
"""2026-09-21T14:13:20Z"""


def instant(after: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(T0 + after))


def pod(name: str = "train-0", gpus: int = 1, phase: str = "Running", end: float | None = None, **words: Any) -> Any:
    """Make a pod that was made at T0, scheduled 10 s later, and ended at ``end``."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "creationTimestamp": instant(0)}
    metadata |= words.pop("metadata", {})
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": instant(10)}],
    }
    if end is not None:
        ended = {
            "finishedAt": instant(end),
            "exitCode": words.pop("exit_code", 0),
            "reason": words.pop("reason", "Completed"),
        }
        status["containerStatuses"] = [{"state": {"terminated": ended}}]
    container: dict[str, Any] = {"name": "main", "image": "img:1", "command": ["python"], "args": ["train.py"]}
    container |= {"resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [container]}, "status": status | words}


def reference(kind: str, name: str, api_version: str = "batch/v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def owned(kind: str, name: str, *owners: dict[str, Any], **labels: str) -> dict[str, Any]:
    told = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": labels, "creationTimestamp": instant(-5)}
    return {"kind": kind, "metadata": told | {"ownerReferences": list(owners)}}
