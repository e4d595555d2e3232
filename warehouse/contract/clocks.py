"""How far the clocks of two machines are apart, told by one exchange between them.

A request leaves at ``sent_at`` and its answer arrives at ``heard_at`` by the asker's clock; it was taken at
``taken_at`` and answered at ``answered_at`` by the answerer's. As both ways take some time and none is negative, the
asker is ahead by at least ``sent_at - taken_at`` and at most ``heard_at - answered_at``: the interval of NTP (RFC 5905,
section 8), whose width is the round trip. Nothing is assumed of how the round trip is shared between the two ways.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from warehouse.contract.settings import Setting

CLOCK_OFF_SECONDS = Setting(
    "cluster",
    "clock_off_seconds",
    2.0,
    "seconds",
    "NTP keeps clocks within milliseconds; two seconds put a fifth of a row of ten into another one's time.",
    0.05,
    3600.0,
)


SENT_AT_HEADER: Final = "trueload-sent-at"
"""When a request leaves, by the sender's clock: seconds since the epoch. Spooled batches are made long before."""

AHEAD_AT_MOST_HEADER: Final = "trueload-ahead-at-most"
"""By how many seconds the sender's clock can be ahead of the server's, at most, as its last exchange told."""


@dataclass(frozen=True, slots=True)
class Offset:
    """By how much a clock is ahead of another, at least and at most; negative: behind. In seconds."""

    low: float
    high: float

    @property
    def likely(self) -> float:
        """Give the middle: exact where both ways take equally long."""
        return (self.low + self.high) / 2

    def is_beyond(self, seconds: float) -> bool:
        """Say whether the clocks are certainly further apart than this; a slow exchange proves nothing."""
        return self.low > seconds or self.high < -seconds

    def __str__(self) -> str:
        """Say it in words; what is bounded from one side alone is said as a bound."""
        if math.isinf(self.high):
            return f"at least {self.low:.1f} s ahead" if self.low >= 0 else f"at most {-self.low:.1f} s behind"
        way = "ahead" if self.likely >= 0 else "behind"
        return f"{abs(self.likely):.1f} s {way} (give or take {(self.high - self.low) / 2:.1f} s)"


def offset_between(sent_at: float, heard_at: float, taken_at: float, answered_at: float) -> Offset | None:
    """Give the asker's offset from the answerer; None where the four instants contradict each other."""
    low, high = sent_at - taken_at, heard_at - answered_at
    return Offset(low, high) if low <= high else None
