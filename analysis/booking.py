"""Booking every GPU-second once: from holdings, stretches and means to accounts of GPU time.

An *entry* is one holding in one window. Absent amounts are NaN in here and None outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.account import GpuSeconds
from analysis.activity import UNKNOWN
from analysis.frames import add_by, none_if_nan
from analysis.pauses import Pause, pauses
from analysis.summaries import mean_of
from warehouse.contract.metrics import RUNGS_BEST_FIRST, Rung

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.activity import Activity
    from analysis.frames import Bools, Floats, Ints
    from analysis.holdings import Holdings
    from analysis.summaries import Summary
    from warehouse.contract.settings import Settings

_ROUNDING = 1e-9
PARTS = ("no_process", "with_process", "gaps")
AMOUNTS = ("allocated", "used", "held_idle", *PARTS, "unknown", "failed", "assumed")


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that an account is made of: who held what, what was seen, what is summed up, and the windows' edges."""

    held: Holdings
    activity: Activity
    summaries: Mapping[str, Summary]
    edges: Sequence[float]


@dataclass(frozen=True, slots=True)
class Entries:
    """The (holding, window) pairs with time in common, in order, and the GPU-seconds allocated in each."""

    holding: Ints
    window: Ints
    allocated: Floats
    windows: int

    def find(self, holding: Ints, window: Ints) -> Ints:
        """Give the entry of each pair; every pair must have one."""
        return np.searchsorted(self.holding * self.windows + self.window, holding * self.windows + window)


@dataclass(frozen=True, slots=True)
class Books:
    """The accounts of all entries by one rung. ``amounts`` has the names of AMOUNTS; ``rung`` None: nothing known."""

    entries: Entries
    amounts: dict[str, Floats]
    rung: Rung | None

    def add_up(self, group: Ints, groups: int) -> list[GpuSeconds]:
        """Give the account of each group of entries, with the rules of ``account.total``. -1 is in no group."""
        member = group >= 0
        known = member & ~np.isnan(self.amounts["used"])
        split = ~np.isnan(self.amounts["gaps"]) | (self.amounts["held_idle"] == 0)
        some = np.bincount(group[known], minlength=groups) > 0
        unsplit = np.bincount(group[known & ~split], minlength=groups) > 0
        sums = {
            name: add_by(group[rows], np.nan_to_num(self.amounts[name][rows]), groups)
            for name in AMOUNTS
            for rows in (member if name in {"allocated", "unknown", "failed", "assumed"} else known,)
        }
        for name in ("used", "held_idle", *PARTS):
            sums[name][~some | (unsplit & (name in PARTS))] = np.nan
        return [
            GpuSeconds(
                allocated=float(sums["allocated"][at]),
                unknown=float(sums["unknown"][at]),
                failed=float(sums["failed"][at]),
                **{name: none_if_nan(sums[name][at]) for name in ("used", "held_idle", *PARTS)},
            )
            for at in range(groups)
        ]


def enter(held: Holdings, edges: Sequence[float]) -> Entries:
    """Cut the holdings at the edges. One of no length has an entry of 0 where it lies: its job still counts."""
    marks, last = np.asarray(edges, dtype=np.float64), len(edges) - 2
    first = np.searchsorted(marks, held.start, side="right") - 1
    final = np.maximum(np.searchsorted(marks, held.end, side="left") - 1, first)
    outside = (final < 0) | (first > last)
    first, final = np.clip(first, 0, last), np.clip(final, 0, last)
    count = np.where(outside, 0, final - first + 1)
    holding = np.repeat(np.arange(len(held.start)), count)
    window = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + first[holding]
    start, end = np.maximum(held.start[holding], marks[window]), np.minimum(held.end[holding], marks[window + 1])
    return Entries(holding, window, held.weight[holding] * np.maximum(end - start, 0.0), len(edges) - 1)


def known_seconds(evidence: Evidence, entries: Entries) -> dict[Rung, Floats]:
    """Give for each rung the GPU-seconds of each entry of which it knows how busy they were."""
    return {
        rung: np.where(sampled, by_samples, by_means)
        for rung in RUNGS_BEST_FIRST
        for by_samples, sampled in (_sampled(evidence, entries, rung),)
        for by_means in (entries.allocated * _means(evidence, entries, rung)[1],)
    }


def _inside(activity: Activity, entries: Entries) -> Bools:
    within = (activity.window >= 0) & (activity.window < entries.windows)
    return (activity.holding >= 0) & within & (activity.covered > 0)


def _sampled(evidence: Evidence, entries: Entries, rung: Rung) -> tuple[Floats, Bools]:
    """Give the sampled GPU-seconds of each entry, and whether its attempt has samples of the rung at all."""
    activity, held = evidence.activity, evidence.held
    rows = _inside(activity, entries) & (activity.state[rung] != UNKNOWN)
    entry = entries.find(activity.holding[rows], activity.window[rows])
    weight = held.weight[activity.holding[rows]]
    known = add_by(entry, activity.covered[rows] * weight, len(entries.allocated))
    attempts = add_by(held.attempt[entries.holding], known, len(held.attempt_keys))
    return known, attempts[held.attempt[entries.holding]] > 0


def _means(evidence: Evidence, entries: Entries, rung: Rung) -> tuple[Floats, Floats, Bools]:
    """Give for each entry the mean of its attempt (NaN: none), the share it covers, and whether that is assumed."""
    found = [mean_of(evidence.summaries.get(key), rung) for key in evidence.held.attempt_keys]
    attempt = evidence.held.attempt[entries.holding]
    value = np.array([np.nan if mean is None else mean.value for mean in found], dtype=np.float64)
    coverage = np.array([0.0 if mean is None else mean.coverage_ratio for mean in found], dtype=np.float64)
    assumed = np.array([mean is not None and mean.assumed for mean in found], dtype=np.bool_)
    return value[attempt], coverage[attempt], assumed[attempt]


@dataclass(frozen=True, slots=True)
class Flows:
    """Booked stretches: which one (``row`` of the activity) counts for which entry, with its amounts in GPU-seconds."""

    row: Ints
    entry: Ints
    amounts: dict[str, Floats]
    untold: Floats


def sampled_flows(evidence: Evidence, entries: Entries, rung: Rung, settings: Settings) -> Flows:
    """Book each stretch of known activity: used, held idle, and what kind of idle (``untold``: nobody knows)."""
    activity = evidence.activity
    row = np.flatnonzero(_inside(activity, entries) & (activity.state[rung] != UNKNOWN))
    weight = evidence.held.weight[activity.holding[row]]
    busy = activity.busy[rung][row] * weight
    # A share of 1 leaves no idle time, whatever the last bit of a float says.
    idle = np.maximum(activity.covered[row] * weight - busy, 0.0)
    kind = pauses(activity, rung, settings).kind[row]
    amounts = {"used": busy, "held_idle": idle}
    for name, pause in zip(PARTS, (Pause.NO_PROCESS, Pause.WITH_PROCESS, Pause.GAP), strict=True):
        amounts[name] = idle * (kind == pause)
    entry = entries.find(activity.holding[row], activity.window[row])
    return Flows(row, entry, amounts, idle * (kind == Pause.UNTOLD))


def _book_samples(flows: Flows, amounts: dict[str, Floats]) -> None:
    """Book what samples say into ``amounts``; entries without any known sample stay absent."""
    size = len(amounts["allocated"])
    seen = np.bincount(flows.entry, minlength=size) > 0
    told = seen & (add_by(flows.entry, flows.untold, size) == 0)
    for name, values in flows.amounts.items():
        known = told if name in PARTS else seen
        amounts[name][known] = add_by(flows.entry, values, size)[known]


def book(evidence: Evidence, entries: Entries, rung: Rung | None, settings: Settings) -> Books:
    """Book the time of all entries by one rung.

    An attempt with samples of the rung is booked from samples, one without from its mean, if any: then the idle time is
    known and its parts are not.
    """
    absent = np.full(len(entries.allocated), np.nan)
    amounts = {name: absent.copy() for name in AMOUNTS}
    amounts["allocated"] = entries.allocated
    amounts["failed"] = np.where(evidence.held.failed[entries.holding], entries.allocated, 0.0)
    amounts["assumed"] = np.zeros(len(absent))
    known = np.zeros(len(absent))
    if rung is not None:
        known, sampled = _sampled(evidence, entries, rung)
        _book_samples(sampled_flows(evidence, entries, rung, settings), amounts)
        mean, coverage, assumed = _means(evidence, entries, rung)
        by_mean = ~sampled & ~np.isnan(mean)
        covered = entries.allocated * coverage
        known = np.where(by_mean, covered, known)
        amounts["used"][by_mean] = (covered * mean)[by_mean]
        amounts["held_idle"][by_mean] = (covered * (1.0 - mean))[by_mean]
        amounts["assumed"][by_mean & assumed] = covered[by_mean & assumed]
    unknown = entries.allocated - known
    rounding = np.abs(unknown) <= _ROUNDING * np.maximum(entries.allocated, 1.0)
    amounts["unknown"] = np.where(rounding, 0.0, unknown)
    return Books(entries, amounts, rung)
