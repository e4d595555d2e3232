"""Qualities of waste, beside the account and never summands of it: they overlap with its parts, and with each other.

How well used time fills the card is activity over used time (SM activity of a card that is used all the time and has a
warp on half of its SMs: a half). Failed time is told by how its attempts ended. What is not measured is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from analysis.activity import UNKNOWN
from analysis.frames import add_by, codes
from warehouse.contract.model import FAILED_STATES
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from analysis.account import GpuSeconds
    from analysis.frames import Floats, Ints
    from analysis.study import Study

FILLS: Final = ("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")

FRAGMENTED_REASON: Final = "no source tells which cards of a node NVLink connects"

_ROUNDING: Final = 1e-6


def qualities(study: Study, numbered: Ints, groups: int) -> list[dict[str, object]]:
    """Give the qualities of groups; ``numbered`` says of each entry of the study which group it is in (-1: none)."""
    fills = _fills(study, numbered, groups)
    failed = _failed(study, numbered, groups)
    return [{"of_used": fills[at], "failed_by_state": failed[at]} for at in range(groups)]


def _fills(study: Study, numbered: Ints, groups: int) -> list[dict[str, dict[str, float] | None]]:
    nothing: list[dict[str, dict[str, float] | None]] = [dict.fromkeys(FILLS) for _ in range(groups)]
    if study.rung is None:
        return nothing
    activity, held = study.evidence.activity, study.held
    group = _groups_of_stretches(study, numbered)
    within = (group >= 0) & (activity.state[study.rung] != UNKNOWN) & (activity.covered > 0)
    group, weight = group[within], held.weight[activity.holding[within]]
    busy = activity.busy[study.rung][within] * weight
    used = add_by(group, busy, groups)
    for name in FILLS:
        # Of a stretch in which a quality is known for a part of the time, that part of its used time is compared.
        part = activity.quality_covered[name][within] / activity.covered[within]
        compared = add_by(group, busy * part, groups)
        active = add_by(group, activity.quality[name][within] * weight, groups)
        for at in range(groups):
            if compared[at] > 0 and active[at] <= compared[at] * (1 + _ROUNDING):
                share = min(float(active[at] / compared[at]), 1.0)
                nothing[at][name] = {"value": share, "coverage_ratio": float(compared[at] / used[at])}
    return nothing


def _groups_of_stretches(study: Study, numbered: Ints) -> Ints:
    """Give for each stretch the group of the entry that it belongs to, -1 for none."""
    entries, activity = study.entries, study.evidence.activity
    windows = max(entries.windows, 1)
    names = entries.holding * windows + entries.window
    order = np.argsort(names, kind="stable")
    wanted = activity.holding * windows + activity.window
    valid = (activity.holding >= 0) & (activity.window >= 0) & (activity.window < windows)
    if names.size == 0:
        return np.full(wanted.size, -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(names[order], wanted), names.size - 1)
    hit = valid & (names[order][at] == wanted)
    return np.where(hit, numbered[order][at], -1)


def _failed(study: Study, numbered: Ints, groups: int) -> list[dict[str, float]]:
    """Give by state in which attempts failed the GPU-seconds that they held; they sum to the account's ``failed``."""
    states, names = codes(study.words("state"))
    found: list[dict[str, float]] = [{} for _ in range(groups)]
    for state in sorted(FAILED_STATES):
        if str(state) not in {str(name) for name in names}:
            continue
        which = next(at for at, name in enumerate(names) if str(name) == str(state))
        here = (states == which) & (numbered >= 0)
        sums: Floats = add_by(numbered[here], study.entries.allocated[here], groups)
        for at in np.flatnonzero(sums):
            found[at][str(state)] = float(sums[at])
    return found


def idle_money(account: GpuSeconds, price_per_hour: float) -> float | None:
    """Give what held idle time cost at a price per GPU-hour; None where either is not known (a price below 0)."""
    if price_per_hour < 0 or account.held_idle is None:
        return None
    return account.held_idle / SECONDS_PER_HOUR * price_per_hour
