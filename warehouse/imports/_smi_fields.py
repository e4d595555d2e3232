"""What the columns of nvidia-smi mean: names of ``--query-gpu``, heads of ``dmon``, units, and local times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from warehouse.contract.metrics import BY_NAME
from warehouse.contract.units import Unit
from warehouse.importer import Altered
from warehouse.imports._measures import BLANK_WORDS, UNITS, Measures, plain_number
from warehouse.imports._values import LATEST_AT, BadRowError, zone_of

QUERY_METRICS: Final[dict[str, str]] = {
    "utilization.gpu": "driver_util_ratio",
    "memory.used": "memory_used_bytes",
    "power.draw": "power_watts",
    "temperature.gpu": "temperature_celsius",
    "temperature.memory": "memory_temperature_celsius",
    "clocks.current.sm": "sm_clock_hertz",
    "clocks.sm": "sm_clock_hertz",
    "clocks.current.memory": "memory_clock_hertz",
    "clocks.mem": "memory_clock_hertz",
    "clocks.memory": "memory_clock_hertz",
}
"""Columns of ``nvidia-smi --query-gpu`` (``--help-query-gpu``) that become metrics."""

DMON_METRICS: Final[dict[str, str]] = {
    "sm": "driver_util_ratio",
    "pwr": "power_watts",
    "gtemp": "temperature_celsius",
    "temp": "temperature_celsius",
    "mtemp": "memory_temperature_celsius",
    "fb": "memory_used_bytes",
    "pclk": "sm_clock_hertz",
    "mclk": "memory_clock_hertz",
}
"""Columns of ``nvidia-smi dmon``; its ``sm`` is the driver's utilization, as nvidia-smi(1) says."""

UNIT_OF_COLUMN: Final[dict[Unit, str]] = {
    Unit.RATIO: "%",
    Unit.BYTES: "mib",
    Unit.WATTS: "w",
    Unit.HERTZ: "mhz",
    Unit.CELSIUS: "c",
}
"""The unit of a value that bears none (``--format=csv,nounits``): nvidia-smi's own."""

_HEAD: Final = re.compile(r"(?P<name>[A-Za-z][\w.]*)(?:\s*\[(?P<unit>[^\]]+)\])?\Z")
_VALUE: Final = re.compile(r"(?P<number>[+-]?[0-9.,]+(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>%|[A-Za-z]{1,3})?\Z", re.ASCII)
_LOCAL_TIME: Final = re.compile(
    r"(?P<year>20[0-9]{2})[/.-]?(?P<month>[01][0-9])[/.-]?(?P<day>[0-3][0-9])[T ]+"
    r"(?P<hour>[0-2][0-9]):(?P<minute>[0-5][0-9]):(?P<second>[0-6][0-9])(?:[.,](?P<part>[0-9]{1,6}))?\Z",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Head:
    """One column: its name and its unit in small letters, None where the head says none."""

    name: str
    unit: str | None


def heads(fields: Sequence[str]) -> tuple[Head, ...] | None:
    """Read the heads of a CSV query; None where the line is no header."""
    found = []
    for text in fields:
        match = _HEAD.match(text.strip())
        if match is None:
            return None
        unit = match["unit"]
        found.append(Head(match["name"].lower(), unit.strip().lower() if unit else None))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Columns:
    """Where what is used stands in a row. ``metrics`` are position, head and metric."""

    width: int
    metrics: tuple[tuple[int, Head, str], ...]
    places: Mapping[str, int]
    decimal_comma: bool

    @classmethod
    def of(cls, given: Sequence[Head], metrics: Mapping[str, str], *, decimal_comma: bool) -> Columns:
        """Find the columns of a header."""
        used = tuple((at, head, metrics[head.name]) for at, head in enumerate(given) if head.name in metrics)
        places = {head.name: at for at, head in reversed(list(enumerate(given)))}
        return cls(len(given), used, places, decimal_comma)

    def text(self, fields: Sequence[str], *names: str) -> str | None:
        """Give the text of the first of some columns that is there and not blank."""
        for name in names:
            place = self.places.get(name)
            if place is not None and (text := fields[place].strip()).lower() not in BLANK_WORDS:
                return text
        return None

    def measure(self, fields: Sequence[str]) -> Measures:
        """Read the metrics of a row."""
        measures = Measures()
        for at, head, column in self.metrics:
            text = fields[at].strip()
            if text.lower() in BLANK_WORDS:
                continue
            put(measures, head, column, text, decimal_comma=self.decimal_comma)
        return measures


def put(measures: Measures, head: Head, column: str, text: str, *, decimal_comma: bool) -> None:
    """Add one value, which may bear its unit, to the measures."""
    found = _value(head, column, text, decimal_comma=decimal_comma)
    if isinstance(found, Altered):
        measures.altered.append(found)
    else:
        measures.metrics[column] = found


@lru_cache(maxsize=1 << 16)
def _value(head: Head, column: str, text: str, *, decimal_comma: bool) -> float | Altered:
    """Read one value; those of a log come again and again."""
    match = _VALUE.match(text)
    number = None if match is None else plain_number(match["number"], decimal_comma=decimal_comma)
    if match is None or number is None:
        return Altered(head.name, "not a number, left out", text)
    wanted = BY_NAME[column].unit
    unit = (match["unit"] or head.unit or UNIT_OF_COLUMN[wanted]).lower()
    kind, factor = UNITS.get(unit, (None, 1.0))
    if kind is not wanted:
        return Altered(head.name, "unit not understood, left out", f"{text}, expected {wanted.value}")
    checked = Measures()
    checked.put(column, number, factor, head.name, text)
    return checked.metrics[column] if column in checked.metrics else checked.altered[0]


class LogClock:
    """Reads the local times of a log, which go on: of an hour that came twice, the one that follows the last reading.

    ``back_seconds`` is how far a clock may be put back before the other hour is believed.
    """

    back_seconds: Final = 60.0

    def __init__(self, zone: str) -> None:
        """Find the zone.

        Raises:
            BadUseError: no such zone.

        """
        self._zone = zone_of(zone)
        self._last = 0.0

    def at(self, column: str, text: str) -> float:
        """Read one instant.

        Raises:
            BadRowError: none, or not between 2000 and 2100.

        """
        match = _LOCAL_TIME.match(text)
        try:
            moment = datetime.fromisoformat(text) if match is None else _moment(match)
            if moment.tzinfo is not None:
                at = moment.timestamp()
            else:
                first = moment.replace(tzinfo=self._zone, fold=0).timestamp()
                second = moment.replace(tzinfo=self._zone, fold=1).timestamp()
                at = second if first < self._last - self.back_seconds and first < second else first
        except (ValueError, OverflowError):
            at = -1.0
        if not 0 <= at <= LATEST_AT:
            expected = "expected such as 2026/11/29 14:47:13.123"
            raise BadRowError("bad time", f"{column} is {text!r}; {expected}")
        self._last = at
        return at


def _moment(match: re.Match[str]) -> datetime:
    second = int(match["second"])
    part = (match["part"] or "").ljust(6, "0")
    moment = datetime(  # noqa: DTZ001 - the zone is the caller's
        int(match["year"]),
        int(match["month"]),
        int(match["day"]),
        int(match["hour"]),
        int(match["minute"]),
        min(second, 59),
        int(part),
    )
    return moment + timedelta(seconds=1) if second == 60 else moment  # noqa: PLR2004 - a leap second
