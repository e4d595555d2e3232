"""One week in one document: what was held, what was used, what to change, and how it went before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.account import as_document
from analysis.waste import waste_document, waste_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import tzinfo

    from analysis.study import Study

AUDIENCES = ("user", "lead", "operator")
"""For whom a week is told: one person, who answers for accounts, who runs the cluster. What is told of depends on what
the one who asks may see, never on this word."""

USUAL_AUDIENCE = "operator"

TREND_WEEKS = 8
"""Weeks shown beside the one reported: two months tell a trend from a bad week."""

GROUPINGS = ("user", "account", "partition", "gpu_model")


def weekly_document(
    study: Study,
    weeks: Sequence[str],
    zone: tzinfo,
    fleet: Mapping[str, object],
    families: Mapping[str, object],
    recommendations: Mapping[str, object],
    tracer: Mapping[str, object],
) -> dict[str, object]:
    """Give the document of the last of the weeks; the study has one window for each, in order.

    Each row of waste holds the same account of the week before as ``previous_gpu_seconds`` (None: it had none, or there
    is no week before).
    """
    window = len(weeks) - 1
    waste = waste_document(study, "user", zone, window)
    return {
        "week": weeks[window],
        "zone": str(zone),
        "since": waste["since"],
        "until": waste["until"],
        "audience": USUAL_AUDIENCE,
        "rung": study.rung,
        "fleet": dict(fleet),
        "waste": {
            **{name: waste[name] for name in ("jobs", "attempts", "gpu_seconds", "coverage_ratio", "used_ratio")},
            "previous_week": weeks[window - 1] if window else None,
            "previous_gpu_seconds": as_document(study.total(window - 1)) if window else None,
            **{f"by_{name}": _compared(study, name, zone, window) for name in GROUPINGS},
            "trend": [_week(study, name, at, zone) for at, name in enumerate(weeks)],
        },
        "families": dict(families),
        "recommendations": dict(recommendations),
        "tracer": dict(tracer),
        "outcomes": {"outcomes": [], "reason": "`trueload recommendations` says what became of advice."},
        "coverage": {
            "coverage_ratio": waste["coverage_ratio"],
            "rung": study.rung,
            "assumed_gpu_seconds": waste["assumed_gpu_seconds"],
        },
    }


def _compared(study: Study, by: str, zone: tzinfo, window: int) -> list[dict[str, object]]:
    before = waste_rows(study, by, zone, study.inside(window - 1)) if window else []
    known = {row["key"]: row["gpu_seconds"] for row in before}
    rows = waste_rows(study, by, zone, study.inside(window))
    return [{**row, "previous_gpu_seconds": known.get(row["key"])} for row in rows]


def _week(study: Study, name: str, window: int, zone: tzinfo) -> dict[str, object]:
    document = waste_document(study, "user", zone, window)
    kept = ("since", "until", "jobs", "gpu_seconds", "coverage_ratio", "used_ratio")
    return {"week": name, **{key: document[key] for key in kept}}
