"""Runs the checks, each within its limit, and puts the answer together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from collector.agent import node_name
from collector.doctor.check import Check, Finding, Site
from collector.publish import own_version
from warehouse.contract.plugins import scan

LOG = logging.getLogger("trueload.doctor")
CLOSE_SECONDS: Final = 3.0
"""How long the driver's goodbye is waited for."""


@dataclass(frozen=True, slots=True)
class Line:
    """A finding with the check that it is of."""

    name: str
    finding: Finding


@dataclass(slots=True)
class Answer:
    """What was found on a node."""

    node: str
    version: str
    lines: list[Line] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Say whether the agent would work here: everything that it needs is there."""
        return all(line.finding.ok for line in self.lines if line.finding.needed)

    @property
    def missing(self) -> int:
        """Count what is not as it should be, needed or not."""
        return sum(line.finding.ok is False for line in self.lines)

    def document(self) -> dict[str, Any]:
        """Give the document of ``--json``."""
        checks = [
            {
                "name": line.name,
                "device": line.finding.device,
                "ok": line.finding.ok,
                "found": line.finding.found,
                "reason": line.finding.reason or None,
                "fix": line.finding.fix or None,
                "needed": line.finding.needed,
            }
            for line in self.lines
        ]
        return {"ok": self.ok, "node": self.node, "version": self.version, "missing": self.missing, "checks": checks}


@cache
def checks() -> tuple[Check, ...]:
    """Give all checks, in the order in which they run."""
    found = scan("collector.doctor.checks", "CHECK", Check).values()
    return tuple(sorted(found, key=lambda check: (check.stage, check.name)))


def examine(site: Site, chosen: Iterable[Check] | None = None) -> Answer:
    """Run the checks one after the other and give what they found. Never hangs, never fails."""
    answer = Answer(node_name(site.settings), own_version())
    for check in checks() if chosen is None else chosen:
        answer.lines += [Line(check.name, finding) for finding in _within_limit(check, site)]
    driver = site.driver
    if driver is not None:
        goodbye = threading.Thread(target=driver.close, name="doctor goodbye", daemon=True)
        goodbye.start()
        goodbye.join(CLOSE_SECONDS)
    return answer


def _within_limit(check: Check, site: Site) -> list[Finding]:
    """Run one check in a thread; one that does not return, or fails, says so beside what it found until then."""
    found: list[Finding] = []
    limit_seconds = site.settings[check.limit]
    thread = threading.Thread(target=_run, args=(check, site, found), name=f"doctor {check.name}", daemon=True)
    thread.start()
    thread.join(limit_seconds)
    if not thread.is_alive():
        return found
    late = Finding(
        "no answer",
        ok=False,
        reason=f"it did not return within {limit_seconds:g} s ({check.description})",
        fix=f"look for what hangs (dmesg, mounts, sockets); a slow node may need more {check.limit.name}",
        needed=any(finding.needed for finding in found) or not found,
    )
    return [*found, late]


def _run(check: Check, site: Site, found: list[Finding]) -> None:
    try:
        for finding in check.run(site):
            found.append(finding)  # noqa: PERF402 - one by one: what was found before a hang or failure is kept
    except Exception as error:  # the border: whatever a check meets, the others are looked at
        LOG.debug("check %s", check.name, exc_info=True)
        found.append(Finding("could not be looked at", ok=False, reason=repr(error), fix="report this as a defect"))
