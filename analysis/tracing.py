"""What the tracer tells of attempts beyond the ladder: how much work was done, in how small pieces, at what cost.

Everything comes from rows of source ``kernels`` and speaks for the time that they cover. Counts of processes that share
a device add up; a device's covered time counts once. Busy times are the device's own (``device_sample``), where
processes are united already; they are None for attempts that share a card.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Any, Final

from analysis.frames import Columns, Tables, fetch, none_if_nan, timestamp
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.holdings import Span

SOURCE: Final = "kernels"
_DEVICE_SUMS = ("gpu_bound_seconds", "copy_seconds", "gpu_busy_seconds", "cadence_seconds")
_PROCESS_SUMS = (
    *("gpu_bound_seconds", "source_lost_seconds", "late_seconds", "launch_count", "kernel_count", "kernel_seconds"),
    *("gap_count", "covered_seconds", "tracing_low_seconds", "tracing_seconds", "tracing_high_seconds"),
    "cadence_seconds",
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The tracer's rows of a window: of these attempts, or (None) of all."""

    tables: Tables
    window: Span
    attempt_keys: Sequence[str] | None = None

    def samples(self, table: Any) -> Any:
        """Give the rows of a table of samples."""
        begin, end = timestamp(self.window[0]), timestamp(self.window[1])
        return self._own(table.filter(table.sampled_at >= begin, table.sampled_at < end))

    def profiles(self, table: Any) -> Any:
        """Give the rows of a table of profiles, which stand for whole hours."""
        begin = floor(self.window[0] / SECONDS_PER_HOUR) * SECONDS_PER_HOUR
        return self._own(
            table.filter(table.hour_at >= timestamp(begin), table.hour_at < timestamp(self.window[1])),
        )

    def _own(self, table: Any) -> Any:
        own = table.filter(table.source == SOURCE, table.attempt_key.notnull())
        return own if self.attempt_keys is None else own.filter(own.attempt_key.isin(list(self.attempt_keys)))


def traced(rows: Rows) -> dict[str, dict[str, Any]]:
    """Give what is known by attempt; an attempt that was never traced has no entry."""
    own = rows.samples(rows.tables.process_sample)
    sums = _by_attempt(
        fetch(own.group_by("attempt_key").aggregate(**{name: own[name].sum() for name in _PROCESS_SUMS}))
    )
    at_once = own.group_by("attempt_key", "device_uuid", "sampled_at").aggregate(known=own.covered_seconds.max())
    known = _by_attempt(fetch(at_once.group_by("attempt_key").aggregate(known=at_once.known.sum())))
    devices = rows.samples(rows.tables.device_sample)
    busy = _by_attempt(
        fetch(devices.group_by("attempt_key").aggregate(**{name: devices[name].sum() for name in _DEVICE_SUMS}))
    )
    nothing: dict[str, float | None] = dict.fromkeys(_DEVICE_SUMS)
    return {key: _part(values, known[key]["known"], busy.get(key, nothing)) for key, values in sums.items()}


def gap_lengths(rows: Rows) -> list[dict[str, Any]]:
    """Give how many gaps of each length there were, over all of the attempts."""
    table = rows.profiles(rows.tables.length_profile)
    gaps = table.filter(table.kind == "gap")
    counted = fetch(
        gaps.group_by("shortest_seconds")
        .aggregate(longest=gaps.longest_seconds.max(), length_count=gaps.length_count.sum())
        .order_by("shortest_seconds")
    )
    return [length_row(counted, row) for row in range(counted.rows)]


def length_row(counted: Columns, row: int) -> dict[str, Any]:
    """Give a row of lengths as documents show it."""
    return {
        "shortest_seconds": float(counted.numbers("shortest_seconds")[row]),
        "longest_seconds": none_if_nan(counted.numbers("longest")[row]),
        "count": int(counted.numbers("length_count")[row]),
    }


def _by_attempt(columns: Columns) -> dict[str, dict[str, float | None]]:
    return {
        key: {name: none_if_nan(columns.numbers(name)[row]) for name in columns.number_names}
        for row, key in enumerate(columns.values("attempt_key"))
    }


def _part(values: Mapping[str, float | None], known: float | None, busy: Mapping[str, float | None]) -> dict[str, Any]:
    launches, kernels, length = values["launch_count"], values["kernel_count"], values["kernel_seconds"]
    return {
        "source": SOURCE,
        "covered_seconds": known,
        "paused_ratio": _paused_ratio(values),
        "source_lost_seconds": values["source_lost_seconds"],
        "late_seconds": values["late_seconds"],
        "gpu_bound_seconds": busy["gpu_bound_seconds"],
        "copy_seconds": busy["copy_seconds"],
        "gpu_busy_seconds": busy["gpu_busy_seconds"],
        "busy_covered_seconds": busy["cadence_seconds"],
        "launches_per_second": launches / known if launches is not None and known else None,
        "launch_count": None if launches is None else int(launches),
        "mean_kernel_seconds": length / kernels if length is not None and kernels else None,
        "kernel_count": None if kernels is None else int(kernels),
        "gap_count": None if values["gap_count"] is None else int(values["gap_count"]),
        "gpu_bound_raw_ratio": _ratio(values["gpu_bound_seconds"], values["covered_seconds"], 0.0),
        "gpu_bound_corrected_ratio": _corrected(values),
    }


def _paused_ratio(values: Mapping[str, float | None]) -> float | None:
    """Give the share of the time in which a process was there that is neither covered nor lost: pauses, and edges."""
    cadence, covered, lost = (values[name] for name in ("cadence_seconds", "covered_seconds", "source_lost_seconds"))
    if not cadence or covered is None or lost is None:
        return None
    return max(0.0, 1.0 - (covered + lost) / cadence)


def _ratio(bound: float | None, covered: float | None, removed: float | None) -> float | None:
    if bound is None or covered is None or removed is None or covered - removed <= 0:
        return None
    return min(1.0, bound / (covered - removed))


def _corrected(values: Mapping[str, float | None]) -> dict[str, float | None] | None:
    """Give the share without the tracer's own cost, with its bounds; None where that cost was never calibrated."""
    places = {"low": "tracing_low_seconds", "likely": "tracing_seconds", "high": "tracing_high_seconds"}
    if any(values[name] is None for name in places.values()):
        return None
    bound, covered = values["gpu_bound_seconds"], values["covered_seconds"]
    return {word: _ratio(bound, covered, values[name]) for word, name in places.items()}
