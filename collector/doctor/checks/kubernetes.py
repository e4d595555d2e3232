"""Does the kubelet say which pod holds what?"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from collector import settings as names
from collector.doctor.check import Check, Finding, Site, Stage
from collector.jobs._pod_resources import KubeletError, PodResources
from collector.jobs.kubernetes import CGROUP_ROOT, POD_LOGS, RESOURCES, SOCKET, TIMEOUT_SECONDS, Pods
from warehouse.contract.errors import BadUseError

MOUNT: Final = "mount the host's /var/lib/kubelet/pod-resources, or set agent.kubelet_socket"
LOGS: Final = "mount the host's /var/log/pods read-only, or set agent.pod_logs_dir"


def _run(site: Site) -> Iterator[Finding]:
    path, wanted = Path(site.settings[SOCKET]), site.settings[names.JOB_SOURCE] == "kubernetes"
    if not wanted:
        if path.exists():
            why = f"there is a kubelet ({path}), and nobody is asked whose a device is"
            yield Finding("not asked", ok=False, reason=why, fix='agent.job_source = "kubernetes"')
        else:
            yield Finding("not used here")
        return
    try:
        is_socket = stat.S_ISSOCK(path.stat().st_mode)
    except OSError as error:
        yield Finding("no socket", ok=False, reason=f"{path}: {error.strerror}", fix=MOUNT, needed=True)
        return
    if not is_socket:
        yield Finding("no socket", ok=False, reason=f"{path} is something else", fix=MOUNT, needed=True)
        return
    try:
        listed = PodResources(str(path), site.settings[TIMEOUT_SECONDS]).read()
    except BadUseError as error:
        yield Finding("grpcio is not installed", ok=False, reason=str(error), needed=True)
        return
    except KubeletError as error:
        fix = "run as root; is the kubelet healthy (systemctl status kubelet)?"
        yield Finding("the kubelet does not answer", ok=False, reason=str(error), fix=fix, needed=True)
        return
    gpus = [one for one in listed if one.claim or one.resource.startswith(tuple(site.settings[RESOURCES]))]
    pods = {(one.namespace, one.pod) for one in gpus}
    yield Finding(f"the kubelet answers: {len(pods)} pods hold {len(gpus)} GPUs", needed=True)
    by_name = Pods(Path(site.settings[POD_LOGS]), Path(site.settings[CGROUP_ROOT])).by_name()
    unknown = pods - by_name.keys()
    if unknown:
        why = f"{len(unknown)} pods have no UID in {site.settings[POD_LOGS]}: they cannot be matched with processes"
        yield Finding("pods without UID", ok=False, reason=why, fix=LOGS)


CHECK = Check("kubernetes", "whether the kubelet says who holds what", Stage.OWNERS, _run)
