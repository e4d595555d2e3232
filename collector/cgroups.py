"""Whose a process is, read from the paths of its control groups (cgroup v1 and v2).

The layouts of kubelets with containerd, CRI-O, docker and podman, and of Slurm: job numbers, the SLUID that Slurm 26.05
names its groups by, builds that run several slurmd on one host. A path may nest (a cluster in a container has a node's
container around a pod's): the last match is the process's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_POD: Final = re.compile(
    r"pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./:]|$)"
)
_CONTAINER: Final = re.compile(
    r"(?:^|[/:])(?:(?P<runtime>cri-containerd|crio|docker|libpod|podman|containerd|nerdctl)-)?"
    r"(?P<id>[0-9a-f]{64})(?:\.scope)?(?=[/:]|$)"
)
_SLURM: Final = re.compile(
    r"/(?:(?P<node>[^/]+?)_)?slurm(?:stepd\.scope|_(?P<node1>[^/]+))?(?:/uid_(?P<user_id>\d+))?"
    r"/(?:job_(?P<job>\d+)|(?P<sluid>s[0-9A-Z]{13}))(?:/step_(?P<step>[^/]+))?(?:/(?:user/)?task_(?P<task>[^/]+))?"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process is: in a pod's container, or in a step of a Slurm job, named by number or by SLUID."""

    pod_uid: str | None = None
    container_id: str | None = None
    slurm_job_id: str | None = None
    slurm_sluid: str | None = None
    slurm_step: str | None = None
    slurm_node: str | None = None

    @property
    def is_known(self) -> bool:
        """Say whether the process is in a pod or a job at all."""
        return bool(self.pod_uid or self.slurm_job_id or self.slurm_sluid)


NOWHERE: Final = Place()


def place_of(lines: Iterable[str]) -> Place:
    """Read the lines of ``/proc/PID/cgroup``: the first that names a pod or a job speaks, else one with a container."""
    container: Place = NOWHERE
    for line in lines:
        path = line.split(":", 2)[-1]
        found = _read(path)
        if found.is_known:
            return found
        if container is NOWHERE and found.container_id:
            container = found
    return container


def _read(path: str) -> Place:
    slurm = _last(_SLURM, path)
    if slurm is not None:
        return Place(
            slurm_job_id=slurm["job"],
            slurm_sluid=slurm["sluid"],
            slurm_step=slurm["step"],
            slurm_node=slurm["node"] or slurm["node1"],
        )
    pod, container = _last(_POD, path), _last(_CONTAINER, path)
    return Place(
        pod_uid=None if pod is None else pod["uid"].replace("_", "-"),
        container_id=None if container is None else container["id"],
    )


def _last(pattern: re.Pattern[str], path: str) -> re.Match[str] | None:
    found = None
    for match in pattern.finditer(path):
        found = match
    return found


def group_paths(lines: Iterable[str]) -> dict[str, str]:
    """Give the paths of the control group of the whole pod or job, by controller; ``""`` is cgroup v2's one tree.

    A line of ``/proc/PID/cgroup`` names the process's own group; what lies below the pod or the job is cut off. A path
    that leads upwards is of another namespace's view and leads nowhere here.
    """
    found: dict[str, str] = {}
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        cut = _whole_group(path)
        if cut is not None and ".." not in cut.split("/"):
            found.update(dict.fromkeys(controllers.split(","), cut))
    return found


def _whole_group(path: str) -> str | None:
    slurm = _last(_SLURM, path)
    if slurm is not None:
        return path[: slurm.end("job") if slurm["job"] else slurm.end("sluid")]
    pod = _last(_POD, path)
    if pod is None:
        return None
    end = path.find("/", pod.end())
    return path if end < 0 else path[:end]
