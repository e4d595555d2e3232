"""Windows of time that documents speak about: instants as people write them, ISO weeks and days in a zone.

A window is half open. An ISO week begins on Monday at midnight of the zone and ends at the next, so that it has 167 to
169 hours where clocks change.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from warehouse.contract.errors import BadUseError
from warehouse.contract.model import Window

if TYPE_CHECKING:
    from datetime import tzinfo

_WEEK = re.compile(r"(\d{4})-?W(\d{2})\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
DAYS_PER_WEEK = 7


def zone_of(name: str) -> ZoneInfo:
    """Give the zone of an IANA name.

    Raises:
        BadUseError: there is no such zone.

    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as cause:
        raise BadUseError(f"unknown time zone {name!r}; give an IANA name such as Europe/Berlin or UTC") from cause


def parse_instant(text: str, zone: tzinfo, what: str) -> float:
    """Read an ISO 8601 date or date and time as seconds since the epoch; without an offset it is in ``zone``.

    ``what`` names the option in errors.

    Raises:
        BadUseError: the text is no such thing.

    """
    try:
        moment = datetime.combine(date.fromisoformat(text), time()) if _DATE.match(text) else _moment(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError) as cause:
        message = f"{what}: {text!r} is no date or time; write 2026-11-02 or 2026-11-02T08:00:00+01:00"
        raise BadUseError(message) from cause


def _moment(text: str) -> datetime:
    if "T" not in text and " " not in text:
        raise ValueError(text)
    return datetime.fromisoformat(text)


def week_window(text: str, zone: tzinfo) -> Window:
    """Give the window of an ISO week such as ``2026-W44`` in a zone.

    Raises:
        BadUseError: the text is no ISO week, or the year has no such week.

    """
    try:
        monday = _monday(text)
        return Window(_midnight(monday, zone), _midnight(monday + timedelta(days=DAYS_PER_WEEK), zone))
    except (ValueError, OverflowError) as cause:
        raise BadUseError(f"week: {text!r} is no ISO week; write 2026-W44") from cause


def week_of(at: float, zone: tzinfo) -> str:
    """Give the ISO week of a zone in which an instant lies."""
    year, week, _ = datetime.fromtimestamp(at, tz=zone).isocalendar()
    return f"{year:04d}-W{week:02d}"


def weeks_between(since_at: float, until_at: float, zone: tzinfo) -> list[tuple[str, Window]]:
    """Give the ISO weeks that touch ``[since_at, until_at)``, in order, whole."""
    weeks: list[tuple[str, Window]] = []
    at = since_at
    while at < until_at:
        name = week_of(at, zone)
        window = week_window(name, zone)
        weeks.append((name, window))
        at = edge(window.until_at)
    return weeks


def weeks_before(name: str, count: int, zone: tzinfo) -> list[tuple[str, Window]]:
    """Give the ``count`` weeks that end with the named one, in order."""
    weeks = [(name, week_window(name, zone))]
    while len(weeks) < count:
        earlier = week_of(edge(weeks[0][1].since_at) - 1.0, zone)
        weeks.insert(0, (earlier, week_window(earlier, zone)))
    return weeks


def day_edges(since_at: float, until_at: float, zone: tzinfo) -> list[float]:
    """Give the midnights of a zone from the one at or before ``since_at`` to the one at or after ``until_at``."""
    day = datetime.fromtimestamp(since_at, tz=zone).date()
    edges = [_midnight(day, zone)]
    while edges[-1] < until_at:
        day += timedelta(days=1)
        edges.append(_midnight(day, zone))
    return edges


def edge(at: float | None) -> float:
    """Give an edge that is known to be there: weeks and resolved windows are closed on both sides."""
    if at is None:
        raise ValueError("an open window has no such edge")
    return at


def _monday(week: str) -> date:
    found = _WEEK.match(week)
    if found is None:
        raise ValueError(week)
    return date.fromisocalendar(int(found[1]), int(found[2]), 1)


def _midnight(day: date, zone: tzinfo) -> float:
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC).timestamp()
