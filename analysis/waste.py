"""Where the GPU time went, and whose: the document of ``trueload waste``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.account import GpuSeconds, as_document
from analysis.frames import Bools, Ints, codes
from analysis.identity import Naming
from analysis.qualities import FRAGMENTED_REASON, qualities
from analysis.window import week_of
from warehouse.contract.identity import GROUPS
from warehouse.contract.units import iso

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

    from analysis.study import Study
    from warehouse.contract.model import Window

GROUPINGS = ("user", "account", "gpu_model", "partition", "week", "job", *GROUPS)
"""What waste can be told by."""

JOB_ROW_WORDS = ("name", "user", "account", "partition", "gpu_model", "state")
"""What the row of a job says beside its key."""


def waste_document(
    study: Study, by: str, zone: tzinfo, window: int | None = None, naming: Naming | None = None
) -> dict[str, object]:
    """Give the account in all and by user, account, team, GPU model, partition, week or job, most idle time first.

    ``window`` takes one of the study's windows; None takes all. ``assumed_gpu_seconds`` is the known time whose source
    does not tell its coverage.
    """
    total, inside = study.total(window), study.inside(window)
    since, until = study.span(window)
    return {
        "since": iso(since),
        "until": iso(until),
        "zone": str(zone),
        "by": by,
        "rung": study.rung,
        "jobs": len({key for key, here in zip(study.job_keys(), inside, strict=True) if here}),
        "attempts": len(np.unique(study.held.attempt[study.entries.holding[inside]])),
        "gpu_seconds": as_document(total),
        "assumed_gpu_seconds": float(study.books.amounts["assumed"][inside].sum()),
        "coverage_ratio": total.coverage_ratio,
        "used_ratio": total.used_ratio,
        "qualities": qualities(study, np.where(inside, 0, -1), 1)[0]
        | {"fragmented_gpu_seconds": None, "fragmented_reason": FRAGMENTED_REASON},
        "rows": waste_rows(study, by, zone, inside, naming),
    }


def nothing_wasted(window: Window, by: str, zone: tzinfo) -> dict[str, object]:
    """Give the document of an empty store: nothing was held, and nothing is known."""
    return {
        "since": iso(window.since_at),
        "until": iso(window.until_at),
        "zone": str(zone),
        "by": by,
        "rung": None,
        "resolution": None,
        "jobs": 0,
        "attempts": 0,
        "gpu_seconds": as_document(GpuSeconds(allocated=0.0, unknown=0.0, failed=0.0)),
        "assumed_gpu_seconds": 0.0,
        "coverage_ratio": None,
        "used_ratio": None,
        "qualities": None,
        "rows": [],
    }


def waste_rows(
    study: Study, by: str, zone: tzinfo, inside: Bools, naming: Naming | None = None
) -> list[dict[str, object]]:
    """Give one row for each value of a grouping among the entries that are ``inside``; an unknown one has key None."""
    numbered, keys = codes(_keys(study, by, zone, naming))
    numbered = np.where(inside, numbered, -1)
    accounts = study.books.add_up(numbered, len(keys))
    jobs = _count_jobs(study, numbered, len(keys))
    qualified = qualities(study, numbered, len(keys))
    words = _job_words(study, numbered, len(keys)) if by == "job" else [{}] * len(keys)
    found = sorted((at for at in range(len(keys)) if jobs[at]), key=lambda at: _rank(keys[at], accounts[at]))
    return [
        {
            "key": keys[at],
            **words[at],
            "jobs": jobs[at],
            "gpu_seconds": as_document(accounts[at]),
            "coverage_ratio": accounts[at].coverage_ratio,
            "used_ratio": accounts[at].used_ratio,
            "qualities": qualified[at],
        }
        for at in found
    ]


def _rank(key: str | None, account: GpuSeconds) -> tuple[bool, float, float, str]:
    """Put most idle time first, what is not known last."""
    return account.held_idle is None, -(account.held_idle or 0.0), -account.allocated, key or ""


def _keys(study: Study, by: str, zone: tzinfo, naming: Naming | None) -> Sequence[Any]:
    if by in GROUPS:
        return (naming or Naming()).groups(by, study.words("user"), study.words("account"))
    if by == "job":
        return study.job_keys()
    if by == "week":
        names = [week_of(edge, zone) for edge in study.edges]
        return [names[window] for window in study.entries.window]
    return study.words(by)


def _count_jobs(study: Study, numbered: Ints, groups: int) -> list[int]:
    jobs, _ = codes(study.job_keys())
    here = numbered >= 0
    pairs = np.unique(np.stack([numbered[here], jobs[here]]), axis=1)
    return [int(count) for count in np.bincount(pairs[0], minlength=groups)]


def _job_words(study: Study, numbered: Ints, groups: int) -> list[dict[str, object]]:
    """Give by group what a row of a job says: its words, its first start, its last end (None: it runs), its state."""
    found: list[dict[str, object]] = [{} for _ in range(groups)]
    words, rows = study.held.words, study.held.row[study.entries.holding]
    starts, ends = np.full(groups, np.inf), np.full(groups, -np.inf)
    here = numbered >= 0
    np.minimum.at(starts, numbered[here], study.held.start[study.entries.holding[here]])
    ended = words.numbers("attempt_end_at")[rows[here]]
    np.maximum.at(ends, numbered[here], np.where(np.isnan(ended), np.inf, ended))
    for number, row in zip(numbered[here], rows[here], strict=True):
        found[number] = {
            **{name: words.values(name)[row] for name in JOB_ROW_WORDS},
            "start_at": iso(float(starts[number])),
            "end_at": iso(float(ends[number])) if np.isfinite(ends[number]) else None,
        }
    return found
