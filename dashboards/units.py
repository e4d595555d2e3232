"""Numbers as people read them: hours, percent, GiB, money, spans and clock times.

Inside trueload everything is in base units; this is where it becomes text. What is absent becomes ``—``, never 0.
Thousands are set apart by a narrow space, as ISO 80000-1 asks, since commas and points mean different things in
different countries.
"""

from __future__ import annotations

from datetime import UTC, datetime

from warehouse.contract.units import BYTES_PER_GIB, SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

ABSENT = "—"
NARROW_SPACE = "\u202f"
_DETAILED_BELOW = 10.0
"""Numbers below this show two decimals, others one: three figures are what a reader can use."""


def number(value: float | None, decimals: int | None = None) -> str:
    """Give a number with its thousands set apart; the decimals follow from its size unless they are given."""
    if value is None:
        return ABSENT
    if decimals is None:
        decimals = 2 if abs(value) < _DETAILED_BELOW else 1
    return f"{value:,.{decimals}f}".replace(",", NARROW_SPACE)


def count(value: float | None) -> str:
    """Give a count of things."""
    return number(value, 0)


def gpu_hours(gpu_seconds: float | None, *, unit: bool = True) -> str:
    """Give GPU-seconds as GPU-hours."""
    if gpu_seconds is None:
        return ABSENT
    text = number(gpu_seconds / SECONDS_PER_HOUR)
    return f"{text} GPU-h" if unit else text


def percent(ratio: float | None, decimals: int = 1) -> str:
    """Give a ratio of 0 to 1 as percent."""
    return ABSENT if ratio is None else f"{ratio * 100:.{decimals}f}{NARROW_SPACE}%"


def points(difference: float | None) -> str:
    """Give a difference between two ratios as signed percentage points."""
    return ABSENT if difference is None else f"{difference * 100:+.1f} points"


def change(now: float | None, before: float | None) -> str:
    """Give the change from ``before`` to ``now`` relative to ``before``; absent when either is, or nothing was."""
    if now is None or before is None or before <= 0:
        return ABSENT
    return f"{(now - before) / before * 100:+.0f}{NARROW_SPACE}%"


def gib(value_bytes: float | None) -> str:
    """Give bytes as GiB."""
    return ABSENT if value_bytes is None else f"{value_bytes / BYTES_PER_GIB:.1f} GiB"


def money(amount: float | None, currency: str | None) -> str:
    """Give an amount with its currency; absent when there is no price, for a price of 0 would be a claim."""
    return ABSENT if amount is None or not currency else f"{number(amount, 0)} {currency}"


def span(seconds: float | None) -> str:
    """Give a duration as two of its units, such as ``2 d 4 h`` or ``5 min 3 s``."""
    if seconds is None:
        return ABSENT
    left = round(seconds)
    parts: list[str] = []
    for size, name in ((SECONDS_PER_DAY, "d"), (SECONDS_PER_HOUR, "h"), (SECONDS_PER_MINUTE, "min"), (1.0, "s")):
        whole, left = divmod(left, int(size))
        if whole:
            parts.append(f"{whole} {name}")
    return " ".join(parts[:2]) or "0 s"


def short_span(seconds: float | None) -> str | None:
    """Give a duration far below a second in the unit that suits it; None when it is absent."""
    if seconds is None:
        return None
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{number(seconds / size)} {name}"
    return f"{number(seconds * 1e9, 0)} ns"


def clock(at: str | None) -> str:
    """Give an ISO 8601 instant as ``2026-11-29 14:47 UTC``."""
    moment = instant(at)
    return ABSENT if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"


def instant(at: str | None) -> datetime | None:
    """Read an ISO 8601 instant of a document."""
    return None if at is None else datetime.fromisoformat(at).astimezone(UTC)


def bounds(low: float | None, likely: float | None, high: float | None) -> str:
    """Give a saving in GPU-hours as ``likely (low to high)``; a bare bound says that it is one."""
    edges = f"{gpu_hours(low, unit=False)} to {gpu_hours(high, unit=False)}"
    if likely is None:
        return f"between {gpu_hours(low, unit=False)} and {gpu_hours(high)}"
    return f"{gpu_hours(likely)} ({edges})"
