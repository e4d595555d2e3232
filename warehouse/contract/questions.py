"""What each question may be asked with: the parameters of ``/v1/answers/QUESTION`` and of the commands of that name."""

from __future__ import annotations

from collections.abc import Mapping

PARAMETERS: Mapping[str, tuple[str, str]] = {
    "since": ("string", "Begin of the window, ISO 8601; without an offset in the zone."),
    "until": ("string", "End of the window, not in it."),
    "week": ("string", "An ISO week instead of since and until: 2026-W44."),
    "zone": ("string", "IANA zone of days, weeks and times without an offset."),
    "rung": ("string", "Which measure of busy to judge by; default: the best that covers enough."),
    "by": ("string", "What the rows are grouped by."),
    "id": ("string", "The job: its key, or its scheduler's id; of gpu_options the family, or the job's key."),
    "attempt": ("string", "The attempt: its key."),
    "limit": ("integer", "At most so many rows."),
    "offset": ("integer", "After so many rows."),
    "audience": ("string", "For whom: user, lead or operator; what is told depends on the token alone."),
    "pseudonyms": ("string", "yes: pseudonyms for people, accounts and directories."),
}
"""Type and meaning of each parameter."""

_WINDOW = ("since", "until", "week", "zone", "rung", "pseudonyms")
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "waste": (*_WINDOW, "by"),
    "jobs": (*_WINDOW, "limit", "offset"),
    "families": _WINDOW,
    "recommend": _WINDOW,
    "gpu_options": (*_WINDOW, "id"),
    "job": (*_WINDOW, "id"),
    "fleet": _WINDOW,
    "weekly": ("week", "zone", "rung", "audience", "pseudonyms"),
    "analyze": _WINDOW,
    "detail": ("attempt",),
}
"""The parameters of each question; a question that is not here says by its errors what it knows."""

ROWS: Mapping[str, str] = {"waste": "rows", "jobs": "jobs", "families": "families", "recommend": "recommendations"}
"""Where a document's main list lies: what is given when it is asked for as Arrow."""
