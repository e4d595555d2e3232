"""Lines of Prometheus' text format, and of OpenMetrics: one series with one value each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from warehouse.imports._values import LATEST_AT, BadRowError

MILLISECONDS_FROM: Final = LATEST_AT
"""Timestamps are milliseconds in the text format, seconds in OpenMetrics: a larger number is no time in seconds."""

MOST_LABELS: Final = 64
"""Prometheus' usual bound is 30; exporters reach for it."""

_KEPT_SERIES: Final = 1 << 16
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,254}", re.ASCII)
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]{0,254})\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,?)', re.ASCII)
_VALUE: Final = re.compile(
    r"\s+([+-]?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|inf|nan|Inf|NaN|INF|NAN))(?:\s+([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?))?"
    r"(?:\s+#.*)?\s*\Z",
    re.ASCII,
)
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "\\": "\\", '"': '"'}


@dataclass(frozen=True, slots=True)
class Point:
    """One line: the series, its value, and when it was; ``at`` None: the line says no time."""

    name: str
    labels: Mapping[str, str]
    value: float
    at: float | None


def point(text: str) -> Point:
    """Read one line that is no comment.

    Raises:
        BadRowError: it is no sample.

    """
    close = text.rfind("}") + 1
    if close and " # " not in text:
        try:
            name, labels, at = _series(text[:close])
        except BadRowError:
            name, labels, at = _read_series(text)
    else:
        name, labels, at = _read_series(text)
    rest = _VALUE.match(text, at) if text[at : at + 1].isspace() else _VALUE.match(f" {text[at:]}")
    if rest is None:
        raise BadRowError("bad value", f"expected a number, perhaps a time, found {text[at : at + 80]!r}")
    try:
        value = float(rest[1])
        stamp = None if rest[2] is None else float(rest[2])
    except ValueError:
        raise BadRowError("bad value", f"expected a number, found {text[at : at + 80]!r}") from None
    if stamp is not None and stamp > MILLISECONDS_FROM:
        stamp /= 1000
    if stamp is not None and not 0 <= stamp <= LATEST_AT:
        raise BadRowError("bad time", f"{rest[2]}; expected milliseconds or seconds since the epoch, 1970 to 2100")
    return Point(name, labels, value, stamp)


def _read_series(text: str) -> tuple[str, dict[str, str], int]:
    """Read name and labels, and give where they end."""
    head = _NAME.match(text)
    if head is None:
        raise BadRowError("not a sample", f"expected NAME{{LABELS}} VALUE, found {text[:80]!r}")
    labels: dict[str, str] = {}
    at = head.end()
    if text.startswith("{", at):
        at = _labels(text, at + 1, labels)
    return head[0], labels, at


_series = lru_cache(maxsize=_KEPT_SERIES)(_read_series)
"""A page comes again and again with the same series: each is read once, and its labels are one object."""


def _labels(text: str, at: int, labels: dict[str, str]) -> int:
    """Read labels from behind the brace, and give where they end."""
    while not text.startswith("}", at):
        match = _LABEL.match(text, at)
        if match is None or len(labels) >= MOST_LABELS:
            found = text[at : at + 60]
            raise BadRowError("bad labels", f'expected NAME="VALUE", at most {MOST_LABELS}; found {found!r}')
        value = match[2]
        labels[match[1]] = _ESCAPED.sub(_unescaped, value) if "\\" in value else value
        at = match.end()
        if not match[3] and not text.startswith("}", at):
            raise BadRowError("bad labels", f"expected a comma or a closing brace, found {text[at : at + 60]!r}")
    return at + 1


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[0])
