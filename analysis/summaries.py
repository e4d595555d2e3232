"""What sources say of whole attempts: means over a life, for where no samples are kept or none were ever taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.frames import Tables, fetch, none_if_nan, timestamp
from warehouse.contract.metrics import RUNGS_BEST_FIRST, Rung
from warehouse.contract.rollups import SUMMARY_SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNG_COLUMNS = {rung: f"{rung.value}_ratio" for rung in RUNGS_BEST_FIRST}
"""The name of each rung in documents and in ``attempt_summary``."""

_MEANS = (*RUNG_COLUMNS.values(), "sm_active_ratio")
_AMOUNTS = ("gpu_memory_peak_bytes", "gpu_memory_used_bytes")


@dataclass(frozen=True, slots=True)
class Mean:
    """One mean over an attempt: its value, the source, and the share of the attempt that it covers."""

    value: float
    source: str
    coverage_ratio: float
    assumed: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """The means of one attempt by column; of several sources the one that covers most."""

    means: dict[str, Mean] = field(default_factory=dict)
    memory_peak_bytes: float | None = None


def gather_summaries(tables: Tables) -> Mapping[str, Summary]:
    """Give what is summed up, by attempt key.

    What is made of roll-ups counts only where these are gone: of attempts that ended before the first that is kept.
    """
    rows = fetch(_of_sources(tables).order_by("attempt_key", "source"))
    found: dict[str, Summary] = {}
    coverage, assumed = rows.numbers("coverage_ratio"), rows.values("coverage_assumed")
    columns: dict[str, Any] = {name: rows.numbers(name) for name in (*_MEANS, *_AMOUNTS)}
    for row, (key, source) in enumerate(zip(rows.values("attempt_key"), rows.values("source"), strict=True)):
        old = found.get(key, Summary())
        means = dict(old.means)
        for name in _MEANS:
            value = none_if_nan(columns[name][row])
            if value is not None and (name not in means or coverage[row] > means[name].coverage_ratio):
                means[name] = Mean(value, source, float(coverage[row]), bool(assumed[row]))
        peaks = [old.memory_peak_bytes, *(none_if_nan(columns[name][row]) for name in _AMOUNTS)]
        known = [peak for peak in peaks if peak is not None]
        found[key] = Summary(means, max(known, default=None))
    return found


def _of_sources(tables: Tables) -> Any:
    summary = tables.attempt_summary
    own = summary.source.startswith(SUMMARY_SOURCE)
    if not tables.rolled:
        return summary.filter(~own)
    ended = tables.attempt.filter(tables.attempt.end_at <= timestamp(tables.rolled[0].hour_at))
    return summary.filter(~own | summary.attempt_key.isin(ended.attempt_key))


def mean_of(summary: Summary | None, rung: Rung) -> Mean | None:
    """Give the mean of a rung, or None where there is none."""
    return None if summary is None else summary.means.get(RUNG_COLUMNS[rung])
