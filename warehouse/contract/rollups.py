"""What a row of a roll-up is: samples of one device and owner within a minute or an hour, summed up without loss.

A sample covers the time from its instant to the next one of the same device and owner, at most
``waste.continuous_cadences`` cadences, else its own cadence. A row of ``rollup_1m`` or ``rollup_1h`` holds such pieces
of time, cut at the edges of its bucket. All pieces of a row agree on ``activity_code``: whether each rung saw activity,
and whether there was a process. A bucket has several rows of one device and owner only where that changed, so that
every account of GPU time can be made of rows as exactly as of samples:

* what lasts (``lasting``: idle for ``rollup.pause_seconds`` or longer) is a row of its own, without a hole;
* so are the first and the last sample of each stretch of coverage, for allocations begin and end within them;
* everything else of one code is one row, whose pieces may have others between them: its sums are exact, and the whole
  of ``[start_at, end_at)`` lies in the bucket.

Rows without an owner are not told apart by activity: nobody's account needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

from warehouse.contract.metrics import RUNGS_BEST_FIRST
from warehouse.contract.settings import Setting, Settings
from warehouse.contract.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

MINUTE, HOUR = "rollup_1m", "rollup_1h"
BUCKET_SECONDS = {MINUTE: int(SECONDS_PER_MINUTE), HOUR: int(SECONDS_PER_HOUR)}
"""The roll-ups of device samples, finest first, and how long a bucket of each is."""

SUMMARY_SOURCE = "samples"
"""The ``source`` of rows of ``attempt_summary`` that are made of roll-ups; with ``:`` and a name for a reading that
covers less than the others."""

SOURCES = "rollup_source"
"""Which source measured what on which device, by owner and hour."""

NONE, SOME, UNKNOWN = 0, 1, 2
"""How a piece stands on activity by a rung, and on processes."""

STATES = (*(rung.value for rung in RUNGS_BEST_FIRST), "process")
"""What ``activity_code`` tells, lowest digit first: a number in base 3 of NONE, SOME and UNKNOWN."""

UNOWNED = -1
"""The ``activity_code`` of rows without an owner."""

QUALITIES = ("sm_active", "sm_occupancy", "tensor_active", "dram_active")
"""Shares of time or of the card that are no rung; columns of samples end in ``_ratio``."""

RUNGS = tuple(rung.value for rung in RUNGS_BEST_FIRST)
HISTOGRAM_BUCKETS = 11
"""Bucket 0 holds a busy share of 0, bucket N one above (N - 1)/10 and up to N/10: sums of seconds, so they add up."""

ACTIVE_THRESHOLD_RATIO = Setting(
    "waste",
    "active_threshold_ratio",
    0.0,
    "share of time",
    "A sample with a busy share up to this counts as one without activity. 0: strictly none, for any activity at all "
    "means that the work goes on.",
    0.0,
    1.0,
)
CONTINUOUS_CADENCES = Setting(
    "waste",
    "continuous_cadences",
    2.5,
    "cadences",
    "Two samples at most this far apart are continuous: one that came late or was lost is no gap in the data.",
    1.0,
)
PAUSE_SECONDS = Setting(
    "rollup",
    "pause_seconds",
    60.0,
    "seconds",
    "Idle time from this long on keeps its place in the roll-ups; below it the place of each pause would cost as many "
    "rows as there are samples. At most waste.idle_stretch_seconds, or answers go back to samples.",
    1.0,
    3600.0,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """The settings that rows depend on: rows of another rule answer another question."""

    threshold_ratio: float
    continuous_cadences: float
    pause_seconds: float

    @classmethod
    def of(cls, settings: Settings) -> Rule:
        """Give the rule that the settings make."""
        return cls(settings[ACTIVE_THRESHOLD_RATIO], settings[CONTINUOUS_CADENCES], settings[PAUSE_SECONDS])

    def answers(self, asked: Rule) -> bool:
        """Say whether rows by this rule tell what is asked by another: shorter pauses in their place do no harm."""
        same = (self.threshold_ratio, self.continuous_cadences) == (asked.threshold_ratio, asked.continuous_cadences)
        return same and self.pause_seconds <= asked.pause_seconds

    def margin_seconds(self, longest_cadence_seconds: float) -> float:
        """Give how far around a stretch of time samples decide on its rows: a pause's length, and what touches it."""
        return self.pause_seconds + 3.0 * self.continuous_cadences * longest_cadence_seconds


def histogram_column(rung: str, bucket: int) -> str:
    """Give the column that holds the seconds of one bucket of a rung's histogram."""
    return f"{rung}_{bucket:02d}_seconds"


TAGS: dict[str, tuple[str, bool]] = {
    "cluster": ("str", True),
    "node": ("str", True),
    "device_uuid": ("str", True),
    "attempt_key": ("str", False),
    "bucket_at": ("instant", True),
    "start_at": ("instant", True),
    "end_at": ("instant", True),
    "seen_start_at": ("instant", True),
    "seen_end_at": ("instant", True),
    "activity_code": ("int", True),
    "lasting": ("bool", True),
    "sample_count": ("int", True),
    "covered_seconds": ("float", True),
}
"""The first columns of a roll-up: type, and whether every row has a value. ``seen_*`` is the coverage, without a hole,
of the device and owner within the bucket that the row lies in."""

MEASURES: tuple[str, ...] = (
    *(f"{name}_seconds" for name in (*RUNGS, *QUALITIES)),
    *(f"{name}_known_seconds" for name in (*RUNGS, *QUALITIES)),
    "memory_used_bytes_max",
    *("process_seconds", "process_known_seconds", "process_count_max"),
    *("share_seconds", "share_known_seconds"),
    *("memory_byte_seconds", "memory_known_seconds"),
    *("power_joules", "power_known_seconds", "power_watts_min", "power_watts_max"),
    "energy_joules",
    "temperature_celsius_max",
    *(f"{rung}_ratio_{end}" for rung in RUNGS for end in ("min", "max")),
    *(histogram_column(rung, bucket) for rung in RUNGS for bucket in range(HISTOGRAM_BUCKETS)),
)
"""Sums, least and most of a row. ``X_seconds`` is a share (or a count) x time, and its mean is that over
``X_known_seconds``; absent where nothing was known, never 0. ``power_joules`` is mean power x time, ``energy_joules``
what the driver's counter said, both the owner's share of it: rows of one device add up to no more than the device used.
``power_watts_min`` and ``power_watts_max`` are the device's own."""

SOURCE_TAGS: dict[str, tuple[str, bool]] = {
    "device_uuid": ("str", True),
    "attempt_key": ("str", False),
    "source": ("str", True),
    "bucket_at": ("instant", True),
}
SOURCE_COUNTS: tuple[str, ...] = tuple(f"{name}_count" for name in (*RUNGS, *QUALITIES))
"""How many samples of a source hold each reading."""

COLUMNS: dict[str, dict[str, tuple[str, bool]]] = {
    MINUTE: TAGS | dict.fromkeys(MEASURES, ("float", False)),
    HOUR: TAGS | dict.fromkeys(MEASURES, ("float", False)),
    SOURCES: SOURCE_TAGS | dict.fromkeys(SOURCE_COUNTS, ("int", True)),
}
"""Every column of every roll-up: its type, and whether each row has a value."""


@dataclass(frozen=True, slots=True)
class RolledHour:
    """An hour that is to be read from its roll-up: when it begins (seconds since the epoch), and what else is left.

    ``samples_gone`` and ``minutes_gone``: retention took its samples, and its rows of ``rollup_1m``.
    """

    hour_at: float
    rule: Rule
    longest_cadence_seconds: float
    samples_gone: bool
    minutes_gone: bool
