"""Reading the parameters of a question: all are texts, and none is taken that the question does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.rung import parse_rung
from analysis.settings import REPORT_ZONE
from analysis.window import parse_instant, week_window, zone_of
from warehouse.contract.errors import BadUseError
from warehouse.contract.model import Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from zoneinfo import ZoneInfo

    from warehouse.contract.metrics import Rung
    from warehouse.contract.settings import Settings

WINDOW_PARAMETERS = ("since", "until", "week", "zone")


@dataclass(frozen=True, slots=True)
class Asked:
    """What most questions are asked with: a window, the zone of its times, and a rung (None: the best)."""

    window: Window
    zone: ZoneInfo
    rung: Rung | None


def check_names(parameters: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse parameters that the question does not know.

    Raises:
        BadUseError: there is one.

    """
    for name in parameters:
        if name not in known:
            raise BadUseError(f"unknown parameter {name!r}; there are {', '.join(sorted(known))}")


def read_asked(parameters: Mapping[str, str], settings: Settings, cluster_zone: str) -> Asked:
    """Read window, zone and rung. Times without an offset are in the zone of the report, else of the cluster.

    Raises:
        BadUseError: a value cannot be used, a week comes with other edges, or the window ends before it begins.

    """
    zone = read_zone(parameters, settings, cluster_zone)
    rung = parse_rung(parameters["rung"]) if parameters.get("rung") else None
    since, until, week = (parameters.get(name) for name in ("since", "until", "week"))
    if week and (since or until):
        raise BadUseError("week: give either a week or since and until")
    if week:
        return Asked(week_window(week, zone), zone, rung)
    window = Window(
        parse_instant(since, zone, "since") if since else None, parse_instant(until, zone, "until") if until else None
    )
    if window.since_at is not None and window.until_at is not None and window.until_at <= window.since_at:
        raise BadUseError(f"until: {until!r} is not after since {since!r}")
    return Asked(window, zone, rung)


def read_zone(parameters: Mapping[str, str], settings: Settings, cluster_zone: str) -> ZoneInfo:
    """Give the zone that days and weeks of the answer are in."""
    return zone_of(parameters.get("zone") or settings[REPORT_ZONE] or cluster_zone)


def read_choice(parameters: Mapping[str, str], name: str, choices: Sequence[str], default: str) -> str:
    """Read a parameter that takes one of a few values.

    Raises:
        BadUseError: it has another one.

    """
    value = parameters.get(name) or default
    if value not in choices:
        raise BadUseError(f"{name}: {value!r} is unknown; there are {', '.join(choices)}")
    return value


def read_count(parameters: Mapping[str, str], name: str, default: int, highest: int) -> int:
    """Read a whole number from 0 to ``highest``.

    Raises:
        BadUseError: it is none, or too large.

    """
    text = parameters.get(name) or str(default)
    if not (text.isascii() and text.isdigit()) or int(text) > highest:
        raise BadUseError(f"{name}: {text!r} is no whole number from 0 to {highest}")
    return int(text)
