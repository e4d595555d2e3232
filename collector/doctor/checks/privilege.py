"""May other users' processes be looked at: who holds a GPU, what they publish, what their environment names?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from collector.doctor.check import Check, Finding, Site, Stage

NEEDED: Final = {"SYS_PTRACE": 19, "DAC_READ_SEARCH": 2}
"""Capabilities by their bit (linux/capability.h); reading ``/proc/PID/fd`` and ``environ`` of others takes both."""

FIX: Final = "run the agent as root with SYS_PTRACE and DAC_READ_SEARCH (the chart and the service file do)"


def _run(site: Site) -> Iterator[Finding]:
    status = _fields(site)
    held = status.get("CapEff")
    if held is None:
        yield Finding("rights unknown", ok=None, reason=f"{site.proc}/self/status does not tell them")
        return
    lacking = [name for name, bit in NEEDED.items() if not int(held, 16) >> bit & 1]
    user = status.get("Uid", "?").split()[0]
    if lacking:
        why = f"without {' and '.join(lacking)} processes of other users have no owner and are never seen to be traced"
        yield Finding(f"user {user}", ok=False, reason=why, fix=FIX)
        return
    yield Finding(f"user {user}, with {' and '.join(NEEDED)}")
    try:
        with (site.proc / "1/environ").open("rb") as opened:
            opened.read(1)
        with os.scandir(site.proc / "1/fd"):
            pass
    except PermissionError as error:
        why = f"{error.filename} may not be read: a security module (AppArmor, SELinux, Yama) or a user namespace"
        yield Finding("process 1 cannot be looked at", ok=False, reason=why, fix=FIX)
    except OSError:
        return  # no process 1, or none with an environment: nothing to learn


def _fields(site: Site) -> dict[str, str]:
    try:
        text = (site.proc / "self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


CHECK = Check("privilege", "whether processes of others may be looked at", Stage.NODE, _run)
