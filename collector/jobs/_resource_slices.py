"""Which card a claim of Dynamic Resource Allocation means: the devices that drivers publish in ResourceSlices.

Asks the API server with the pod's own service account; that account needs to list ``resourceslices``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import urllib3

from warehouse.contract.errors import BadInputError

ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_NOT_FOUND: Final = 404
_FINE: Final = 200

Slices = dict[tuple[str, str, str], str]
"""UUID by driver, pool and device."""


def read_slices(node: str, timeout_seconds: float, url: str = "", account: Path = ACCOUNT_DIR) -> Slices:
    """Ask for the devices of a node.

    Raises:
        BadInputError: the API server does not answer, or refuses.

    """
    url = (
        url
        or f"https://{os.environ.get('KUBERNETES_SERVICE_HOST', '')}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    )
    pool = urllib3.PoolManager(
        ca_certs=str(account / "ca.crt") if url.startswith("https") else None, timeout=timeout_seconds, retries=False
    )
    try:
        token = (account / "token").read_text(encoding="ascii").strip()
        for version in _VERSIONS:
            answer = pool.request(
                "GET",
                f"{url}/apis/resource.k8s.io/{version}/resourceslices",
                fields={"fieldSelector": f"spec.nodeName={node}"},
                headers={"Authorization": f"Bearer {token}"},
            )
            if answer.status == _FINE:
                return slices_of(json.loads(answer.data))
            if answer.status != _NOT_FOUND:
                raise BadInputError(url, "resourceslices", f"answers {answer.status}; allow the agent to list them")
        raise BadInputError(url, "resourceslices", "the cluster has none: it is older than Kubernetes 1.32")
    except (OSError, ValueError, urllib3.exceptions.HTTPError) as cause:
        raise BadInputError(url, "resourceslices", f"cannot be read ({cause})") from cause
    finally:
        pool.clear()


def slices_of(document: Mapping[str, Any]) -> Slices:
    """Read a ResourceSliceList: a device says its card in the attribute ``uuid``."""
    found: Slices = {}
    for item in document.get("items") or ():
        spec = item.get("spec") or {}
        for device in spec.get("devices") or ():
            attributes = (device.get("basic") or device).get("attributes") or {}
            uuid = (attributes.get("uuid") or {}).get("string")
            if uuid:
                found[spec.get("driver", ""), (spec.get("pool") or {}).get("name", ""), device.get("name", "")] = uuid
    return found
