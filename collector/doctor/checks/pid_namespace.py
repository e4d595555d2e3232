"""Are process ids the host's, which the driver names?"""

from __future__ import annotations

from collections.abc import Iterator

from collector.doctor.check import Check, Finding, Site, Stage
from collector.processes import ProcessTable


def _run(site: Site) -> Iterator[Finding]:
    if ProcessTable(site.proc).sees_host_pids():
        yield Finding("the host's")
        return
    yield Finding(
        "not the host's",
        ok=False,
        reason="the driver names processes by the host's ids; here they are nobody, or somebody else",
        fix="in a pod: hostPID: true; in a container: --pid=host; or mount the host's /proc and set agent.proc_root",
    )


CHECK = Check("pid_namespace", "whether process ids are the host's", Stage.NODE, _run)
