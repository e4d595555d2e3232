"""What a reader does about advice: put it off, say no with a reason, say that it was done. Everything is on record.

The server keeps each change (``trueload recommendations list``); who made it stands before its reason and in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboards.document import Row, text
from dashboards.page import PageContext
from dashboards.text import markdown
from dashboards.units import clock, instant
from warehouse.client import Document

SNOOZE_DAYS = 14.0
REJECT_DAYS = 90.0
"""As `trueload recommendations` takes them where nobody says otherwise."""

LONGEST_REASON = 300
WORDS = {
    "seen": "read",
    "snoozed": "put off",
    "rejected": "not wanted",
    "done": "said to be done",
    "adopted": "followed, as later work shows",
}


def record_of(document: Document, item: Row) -> dict[str, Any]:
    """Give an advice as the server keeps it, so that one which was never listed can be acted on, too."""
    kept = ("recommendation_id", "remedy", "subject", "saving_gpu_seconds", "subject_gpu_seconds")
    edges = {f"{name}_at": _seconds(text(document, name)) for name in ("since", "until")}
    return {**edges, **{name: item.get(name) for name in kept}}


def _seconds(at: str | None) -> float:
    found = instant(at)
    return 0.0 if found is None else found.timestamp()


def state_words(states: Mapping[str, Row], name: str | None) -> str:
    """Say in words what became of an advice; empty while it is open."""
    known = states.get(name or "", {})
    state = text(known, "state") or ""
    if state not in WORDS:
        return ""
    until = text(known, "quiet_until_at")
    return WORDS[state] + (f" until {clock(until)}" if state == "snoozed" and until else "")


def draw(context: PageContext, document: Document, item: Row, states: Mapping[str, Row]) -> None:
    """Draw what a reader may do about one advice, and what was said of it before."""
    name = text(item, "recommendation_id")
    if name is None:
        return
    known = states.get(name, {})
    if said := state_words(states, name):
        reason = text(known, "reason")
        st.markdown(f"**{said[:1].upper()}{markdown(said[1:])}**" + (f": {markdown(reason, 400)}" if reason else ""))
    reason = st.text_input(
        "Why it is not for you", key=f"reason_{name}", max_chars=LONGEST_REASON, placeholder="a few words help others"
    )
    snooze, reject, done = st.columns(3)
    if snooze.button(f"Put off {SNOOZE_DAYS:.0f} days", key=f"snooze_{name}"):
        _act(context, document, item, {"state": "snoozed", "quiet_days": SNOOZE_DAYS})
    if reject.button("Not for me", key=f"reject_{name}", disabled=not reason.strip()):
        _act(context, document, item, {"state": "rejected", "quiet_days": REJECT_DAYS, "reason": reason.strip()})
    if done.button("Done", key=f"done_{name}"):
        _act(context, document, item, {"state": "done"})


def _act(context: PageContext, document: Document, item: Row, change: dict[str, Any]) -> None:
    who = context.person().name
    if "reason" in change and who:
        change = {**change, "reason": f"{who}: {change['reason']}"}
    name = str(item["recommendation_id"])
    context.advice("record", {"recommendations": [record_of(document, item)]})
    context.advice("mark", {"recommendation_id": name, **change})
    st.toast("It is on record.")
    st.rerun()
