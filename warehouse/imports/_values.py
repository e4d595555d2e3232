"""Reading single values of foreign rows. What cannot be read costs its row, by a ``BadRowError`` that says why."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from warehouse.contract.errors import BadUseError
from warehouse.importer import Altered

LATEST_AT = 4_102_444_800.0
"""2100-01-01. A larger number is no time in seconds; milliseconds since the epoch are the usual cause."""

MOST_NAME_CHARACTERS = 200
"""The longest name of a user, account, partition, node or cluster. Schedulers allow less."""

_EPOCH_DIGITS = 10
_LATEST_TEXT = f"{LATEST_AT:.0f}"
"""Seconds since the epoch of our days have as many digits as the latest time, and compare as texts."""

_CACHED_TIMES = 1 << 16
_CACHED_COUNTS = 4096
_WHOLE = re.compile(r"[0-9]{1,18}\Z", re.ASCII)
_DATE_AS_NUMBER = re.compile(r"(?:19|20)[0-9]{6}\Z", re.ASCII)
_CLUSTER = re.compile(r"[\w.-]{1,64}\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\Z", re.ASCII)


class BadRowError(ValueError):
    """One record cannot be used. ``reason`` is a short fixed text, ``detail`` what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        """Keep both parts."""
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")


class Clock:
    """Reads times, those without an offset in one zone.

    Where clocks were put back a local time happened twice; the first is taken. Where they were put forward it never
    happened; the offset before the change is taken.
    """

    def __init__(self, zone: str) -> None:
        """Find the zone.

        Raises:
            BadUseError: no such zone.

        """
        self._zone = zone_of(zone)
        self._read = lru_cache(maxsize=_CACHED_TIMES)(self._read_anew)

    def at(self, column: str, text: str) -> float:
        """Read ISO 8601 or seconds since the epoch.

        Raises:
            BadRowError: neither, or not between 1970 and 2100.

        """
        if len(text) == _EPOCH_DIGITS and text.isascii() and text.isdigit() and text <= _LATEST_TEXT:
            return float(text)
        try:
            return self._read(text)
        except (ValueError, OverflowError):
            expected = "expected ISO 8601 such as 2026-11-29T14:47:13 or seconds since the epoch, 1970 to 2100"
            raise BadRowError("bad time", f"{column} is {text!r}; {expected}") from None

    def _read_anew(self, text: str) -> float:
        if _NUMBER.match(text):
            if _DATE_AS_NUMBER.match(text):
                raise ValueError
            at = float(text)
        else:
            moment = datetime.fromisoformat(text)
            at = (moment if moment.tzinfo else moment.replace(tzinfo=self._zone)).timestamp()
        if not 0 <= at <= LATEST_AT:
            raise ValueError
        return at


def zone_of(name: str) -> tzinfo:
    """Find a zone by its IANA name.

    Raises:
        BadUseError: no such zone.

    """
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as cause:
        raise BadUseError(f"no zone {name!r}; expected an IANA name such as Europe/Berlin, or UTC") from cause


@lru_cache(maxsize=_CACHED_COUNTS)
def whole(column: str, text: str) -> int:
    """Read a count from 0 on.

    Raises:
        BadRowError: no whole number, or a negative one.

    """
    if _WHOLE.match(text):
        return int(text)
    if text.startswith("-") and _WHOLE.match(text[1:]):
        raise BadRowError("negative count", f"{column} is {text!r}; expected 0 or more")
    raise BadRowError("bad count", f"{column} is {text!r}; expected a whole number")


def number(column: str, text: str) -> float:
    """Read a finite decimal number.

    Raises:
        BadRowError: no number, or one too large.

    """
    value = float(text) if _NUMBER.match(text) else math.nan
    if not math.isfinite(value):
        raise BadRowError("bad number", f"{column} is {text!r}; expected a number such as 0.25")
    return value


def short_text(column: str, text: str) -> str | None:
    """Read a text that names something (a user, an account): absent when empty, never cut.

    Raises:
        BadRowError: it is too long to be a name.

    """
    if len(text) > MOST_NAME_CHARACTERS:
        detail = f"{column} has {len(text)} characters; expected at most {MOST_NAME_CHARACTERS}"
        raise BadRowError("field too long", detail)
    return text or None


class Lenient:
    """Reads values that may be lost without losing their row: texts that people write, and measurements.

    A long text is shortened, a measurement that cannot be true is left out; both are remembered, to be counted.
    """

    def __init__(self, most_characters: int) -> None:
        """Start with nothing altered."""
        self._most = most_characters
        self._altered: list[Altered] = []

    def text(self, column: str, text: str) -> str | None:
        """Give the text, shortened with an ellipsis where it is too long, absent where it is empty."""
        if len(text) <= self._most:
            return text or None
        self.note(column, f"text shortened to {self._most} characters", f"it had {len(text)}")
        return text[: self._most - 1] + "…"

    def measure(self, column: str, text: str, lowest: float = 0.0, highest: float = math.inf) -> float | None:
        """Give a measurement; absent where it is empty, no number, or outside its bounds."""
        if not text:
            return None
        try:
            value = number(column, text)
        except BadRowError as bad:
            self.note(column, "not a number, left out", bad.detail)
            return None
        if lowest <= value <= highest:
            return value
        self.note(column, "impossible value, left out", f"{text}; expected {lowest:g} to {highest:g}")
        return None

    def note(self, column: str, reason: str, detail: str) -> None:
        """Remember that a value did not make it into the rows as it stood."""
        self._altered.append(Altered(column, reason, detail))

    def take_altered(self) -> tuple[Altered, ...]:
        """Give what was altered since the last call."""
        taken = tuple(self._altered)
        self._altered.clear()
        return taken


@lru_cache(maxsize=_CACHED_COUNTS)
def cluster_name(text: str) -> str:
    """Read the name of a cluster, which becomes part of keys.

    Raises:
        BadRowError: it holds characters that keys are put together with, or is too long.

    """
    if not _CLUSTER.match(text):
        raise BadRowError("bad cluster name", f"{text[:80]!r}; expected letters, digits, dots, dashes, underscores")
    return text
