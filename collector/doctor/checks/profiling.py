"""May hardware counters be read by others than root?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collector.doctor.check import Check, Finding, Site, Stage, not_told

FIX: Final = (
    "in /etc/modprobe.d: options nvidia NVreg_RestrictProfilingToAdminUsers=0, then reload the module or reboot"
)


def _run(site: Site) -> Iterator[Finding]:
    path = site.proc / "driver/nvidia/params"
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError as error:
        yield not_told(f"{path}: {error.strerror}")
        return
    said = dict(line.partition(": ")[::2] for line in lines).get("RmProfilingAdminOnly")
    if said is None:
        yield not_told(f"{path} does not say")
    elif said.strip() == "0":
        yield Finding("open to all users")
    else:
        yield Finding(
            "for root alone",
            ok=False,
            reason="jobs of users may be refused by profilers (ERR_NVGPUCTRPERM); the agent as root reads its counters",
            fix=FIX,
        )


CHECK = Check("profiling", "who may read hardware counters", Stage.DEVICES, _run)
