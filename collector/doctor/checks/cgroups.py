"""Which version of control groups is there, and are their paths the host's?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from collector.cgroups import place_of
from collector.doctor.check import Check, Finding, Site, Stage
from collector.jobs.kubernetes import CGROUP_ROOT
from collector.processes import ProcessTable

MOUNT: Final = "mount the host's /sys/fs/cgroup read-only there, or set agent.cgroup_root"


def _run(site: Site) -> Iterator[Finding]:
    root = Path(site.settings[CGROUP_ROOT])
    if (root / "cgroup.controllers").is_file():
        yield Finding(f"version 2 at {root}")
    elif (root / "unified/cgroup.controllers").is_file():
        yield Finding(f"versions 1 and 2 side by side at {root}: both are read")
    elif (root / "memory").is_dir() or (root / "cpuacct").is_dir():
        yield Finding(f"version 1 at {root}")
    else:
        why = "which pods live, and what a job uses of the host, is not seen"
        yield Finding(f"none at {root}", ok=False, reason=why, fix=MOUNT)
    lines = ProcessTable(site.proc).cgroup_lines(1)
    if any("/.." in line for line in lines):
        yield Finding(
            "paths are those of a private namespace",
            ok=False,
            reason=f"process 1 is in {lines[0].split(':', 2)[-1]!r}: whose a process is cannot be read from such paths",
            fix="run in the host's namespaces: hostPID: true, and no private cgroup namespace (--cgroupns=host)",
        )
    elif lines and place_of(lines).container_id:
        yield Finding(
            "process 1 is a container's",
            ok=False,
            reason="the host's processes are not seen",
            fix="hostPID: true (--pid=host)",
        )


CHECK = Check("cgroups", "which control groups there are", Stage.NODE, _run)
