"""Units and their conversions, in one place.

Everything inside trueload is in base units: seconds, bytes, watts, joules, hertz, degrees Celsius, ratios of
0 to 1, counts. Instants are seconds since the Unix epoch in UTC, as ``float``; they become ISO 8601 text with ``Z``
at the edge. Percent, GiB, hours and money exist only in ``dashboards`` and in tables for people.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

SECONDS_PER_MINUTE = 60.0
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
BYTES_PER_KIB = 1024
BYTES_PER_MIB = 1024**2
BYTES_PER_GIB = 1024**3


class Unit(StrEnum):
    """The units that a column may have. The value is the suffix of the column's name."""

    SECONDS = "seconds"
    BYTES = "bytes"
    WATTS = "watts"
    JOULES = "joules"
    HERTZ = "hertz"
    CELSIUS = "celsius"
    RATIO = "ratio"
    COUNT = "count"


def iso(at: float | None) -> str | None:
    """Give an instant as ISO 8601 UTC text such as ``2026-11-29T14:47:13Z``; fractions of a second only if any."""
    if at is None:
        return None
    moment = datetime.fromtimestamp(at, tz=UTC)
    text = moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def epoch(moment: datetime) -> float:
    """Give a datetime as seconds since the epoch; one without a zone is taken as UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def ratio(part: float | None, whole: float | None) -> float | None:
    """Divide, or give None where either side is unknown or the whole is zero: an unknown ratio is not 0."""
    if part is None or whole is None or whole <= 0:
        return None
    return part / whole
