"""The check kind: one file in ``collector/doctor/checks/`` = one thing that is looked at on a node.

A check looks and changes nothing: it writes no file that stays, enrols nobody, opens no database. It may be slow or
never return: it runs in a thread of its own, within a limit, and what it found until then is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from collector import settings as names
from collector.doctor.settings import LIMIT_SECONDS

if TYPE_CHECKING:
    from collector.driver import Driver
    from warehouse.contract.settings import Setting, Settings


class Stage(IntEnum):
    """Where in the list a check stands; a later one may use what an earlier one opened."""

    NODE = 1
    DRIVER = 2
    DEVICES = 3
    OWNERS = 4
    TRACER = 5
    SPOOL = 6
    SECRETS = 7
    SERVER = 8
    EXCHANGE = 9


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer.

    ``ok`` is None where it cannot be told, with the reason. ``needed`` findings decide whether the agent would work.
    """

    found: str
    device: str | None = None
    ok: bool | None = True
    reason: str = ""
    fix: str = ""
    needed: bool = False


@dataclass(slots=True)
class Site:
    """What checks look at: the settings, the environment, and the driver once its check has opened it."""

    settings: Settings
    environ: Mapping[str, str]
    driver: Driver | None = None
    notes: dict[str, str] = field(default_factory=dict)
    """What one check leaves for a later one, by name."""

    @property
    def proc(self) -> Path:
        """Give the root of processes, usually ``/proc``."""
        return Path(self.settings[names.PROC_ROOT])


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked at. ``limit`` is the setting that says how long it may take."""

    name: str
    description: str
    stage: Stage
    run: Callable[[Site], Iterable[Finding]]
    limit: Setting[float] = LIMIT_SECONDS


def not_told(why: str) -> Finding:
    """Give the finding of a check that has nothing to look at."""
    return Finding("not looked at", ok=None, reason=why)
