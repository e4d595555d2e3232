"""Events as JSON of any layout, one object at a time: slower than by lines, and sure.

Numbers of ``ts`` and ``dur`` with a fraction are put into quotes before parsing, so that their digits arrive as they
stand in the file. A key can be recognised in the text alone: inside a string its quotes would be escaped, and a string
that is followed by a colon is a key.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from warehouse.imports._kineto_builder import Builder, clean, config_of
from warehouse.timeline import Flags, Ints, KernelConfig

EVENTS_KEY = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_FRACTION = re.compile(rb'(?<!\\)"(ts|dur)"\s*:\s*(-?[0-9]+(?=[.eE])[0-9.eE+-]+)')
_MARKS = np.zeros(256, np.bool_)
_MARKS[list(b'"\\{}[]')] = True
_DELTA = np.zeros(256, np.int64)
_DELTA[list(b"{[")] = 1
_DELTA[list(b"}]")] = -1


def parse(text: bytes) -> Any:
    """Parse JSON, with fractional times as text.

    Raises:
        ValueError: it is none.

    """
    return _loads(_FRACTION.sub(rb'"\1":"\2"', text))


def _loads(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        # Python's reader also takes NaN, which Python's writer writes; a name in an old encoding costs a letter.
        return json.loads(text.decode("utf-8", "replace"))


def add_events(text: bytes, builder: Builder, place: str) -> None:
    """Add the events of a text of objects with commas between them.

    Raises:
        ValueError: the text is no JSON.

    """
    for event in parse(b"[" + text + b"]"):
        builder.add_event(event, place)


def config_of_event(text: bytes) -> KernelConfig:
    """Give the launch configuration of one event.

    Raises:
        ValueError: the text is no JSON, or no event.

    """
    event = _loads(text)
    if not isinstance(event, dict) or not isinstance(event.get("args"), dict):
        raise ValueError("no event with arguments")  # noqa: TRY004 - what is wrong is the text
    return config_of(clean(event.get("name", "")), event["args"])


def whole_events(text: bytes) -> tuple[int, int | None]:
    """Say how much of a text inside the array of events are whole events, and where the array ends, if it does.

    The text begins between two events. Marks inside strings do not count.
    """
    octets = np.frombuffer(text, np.uint8)
    places = np.flatnonzero(_MARKS[octets])
    marks = octets[places]
    if b"\\" in text:
        kept = ~_is_escaped(places, marks)
        places, marks = places[kept], marks[kept]
    is_quote = marks == ord('"')
    outside = (np.cumsum(is_quote) & 1 == 0) & ~is_quote
    places, marks = places[outside], marks[outside]
    depth = np.cumsum(_DELTA[marks])
    beyond = np.flatnonzero(depth < 0)
    if len(beyond):
        return int(places[beyond[0]]), int(places[beyond[0]])
    closed = np.flatnonzero((depth == 0) & (marks == ord("}")))
    return (int(places[closed[-1]]) + 1 if len(closed) else 0), None


def _is_escaped(places: Ints, marks: npt.NDArray[np.uint8]) -> Flags:
    """Say which marks stand behind an odd number of backslashes; backslashes themselves are said to be escaped."""
    is_backslash = marks == ord("\\")
    follows = np.concatenate(([False], (places[1:] == places[:-1] + 1) & is_backslash[:-1]))
    # A run of backslashes begins at one that follows none; its length so far decides what it escapes.
    begins = np.where(is_backslash & ~follows, np.arange(len(places)), 0)
    begin = np.maximum.accumulate(begins)
    behind = np.arange(len(places)) - begin
    escaped: Flags = is_backslash | (follows & (behind % 2 == 1))
    return escaped
