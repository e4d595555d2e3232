"""How far the clocks of senders are off, measured with each batch and kept while the server runs.

A sender says when a batch leaves it, and by how much its clock can be ahead at most, from its last exchange with this
server; the server knows when the batch arrived. Together they bound the offset by the round trip, whoever waited where
(``warehouse.contract.clocks``). A sender that says neither has told when it put the batch together: that bounds the
offset from below alone. Rows keep the times that they came with: a clock that is off is told, and nothing is moved.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from warehouse.contract.clocks import AHEAD_AT_MOST_HEADER, CLOCK_OFF_SECONDS, SENT_AT_HEADER, Offset
from warehouse.contract.units import iso

if TYPE_CHECKING:
    from warehouse.client import Document, Parameters
    from warehouse.contract.settings import Settings
    from warehouse.sight import Sight

LOG = logging.getLogger("trueload.clocks")
MOST_SENDERS: Final = 20_000
"""Senders that are remembered, the latest; a sender costs about 300 bytes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A sender's clock against the server's, at the server's ``at``."""

    offset: Offset
    at: float


class Clocks:
    """What is known of the senders' clocks since the start. Safe to use from several threads."""

    def __init__(self, most_off_seconds: float) -> None:
        """Tell senders that are certainly further off than this."""
        self._most_off_seconds = most_off_seconds
        self._guard = threading.Lock()
        self._known: OrderedDict[str, Reading] = OrderedDict()

    def note(self, sender: str, headers: Mapping[str, str], made_at: float, taken_at: float) -> None:
        """Take one batch: what its request said, when the sender made it, and when it arrived by our clock."""
        offset = _offset(headers, made_at, taken_at)
        with self._guard:
            before = self._known.get(sender)
            self._known[sender] = Reading(offset, taken_at)
            self._known.move_to_end(sender)
            while len(self._known) > MOST_SENDERS:
                self._known.popitem(last=False)
        is_off = offset.is_beyond(self._most_off_seconds)
        was_off = before is not None and before.offset.is_beyond(self._most_off_seconds)
        if is_off and not was_off:
            LOG.warning(
                "the clock of %r is %s; its rows bear its time (setting %s)", sender, offset, CLOCK_OFF_SECONDS.name
            )
        elif was_off and not is_off:
            LOG.info("the clock of %r is right again", sender)

    def all(self) -> dict[str, Reading]:
        """Give the last reading of every sender."""
        with self._guard:
            return dict(self._known)

    def is_off(self, reading: Reading) -> bool:
        """Say whether a clock is certainly off by more than the setting."""
        return reading.offset.is_beyond(self._most_off_seconds)

    def answer(self, _seen: Sight, _settings: Settings, _parameters: Parameters) -> Document:
        """Answer the question ``clocks``: each sender's clock against the server's; those that are off come first."""
        known = sorted(self.all().items(), key=lambda item: (not self.is_off(item[1]), item[0]))
        return {
            "limit_seconds": self._most_off_seconds,
            "off": sum(self.is_off(reading) for _, reading in known),
            "senders": [
                {
                    "sender": sender,
                    "is_off": self.is_off(reading),
                    "ahead_low_seconds": round(reading.offset.low, 3),
                    "ahead_high_seconds": _finite(reading.offset.high),
                    "measured_at": iso(reading.at),
                }
                for sender, reading in known
            ],
        }


def _offset(headers: Mapping[str, str], made_at: float, taken_at: float) -> Offset:
    sent_at, most = _number(headers.get(SENT_AT_HEADER)), _number(headers.get(AHEAD_AT_MOST_HEADER))
    low = (made_at if sent_at is None else sent_at) - taken_at
    high = math.inf if most is None else most
    return Offset(low, high if high >= low else math.inf)  # a clock that stepped in between: the older word is void


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _finite(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
