"""What happened, in words: each kind of event, what it means, and whether it is trouble. One table for all pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from dashboards import table
from dashboards.document import Row, text
from dashboards.table import Column


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event; ``is_trouble``: somebody should look at the device."""

    word: str
    meaning: str
    is_trouble: bool = False


KINDS = {
    "xid": Kind("Xid error", "the driver reported an error of the device; the detail is its number", is_trouble=True),
    "ecc_uncorrected": Kind("memory error", "a memory error that could not be corrected", is_trouble=True),
    "ecc_corrected": Kind("memory error, corrected", "single bits were corrected; many of them foretell worse"),
    "rows_remapped": Kind(
        "memory rows replaced", "the device took spare rows into use; a reset may be due", is_trouble=True
    ),
    "device_lost": Kind(
        "device lost", "it fell off the bus or does not answer; its last Xid, if known", is_trouble=True
    ),
    "device_unreadable": Kind("device unreadable", "the driver counts it and cannot open it", is_trouble=True),
    "device_back": Kind("device back", "a lost one answers again"),
    "device_replaced": Kind("device replaced", "another one is in its place"),
    "instance_removed": Kind("MIG instance removed", "the card was cut anew"),
    "driver_changed": Kind("driver changed", "from one release to another"),
    "agent_gap": Kind("nothing measured", "for so long, and why: the agent did not run, or the driver did not answer"),
    "inventory_begun": Kind("inventory begun", "an agent without memory of the node before"),
    "source_unreliable": Kind("source not believed", "what it told could not be true; its values are left out"),
    "source_believed": Kind("source believed again", "what it tells has been possible for a while"),
}


def words(event: Row) -> str | None:
    """Give the kind of an event in words; a kind of another release as it stands."""
    kind = text(event, "kind")
    return KINDS[kind].word if kind in KINDS else kind


def is_trouble(event: Row) -> bool:
    """Say whether somebody should look at the device."""
    kind = KINDS.get(text(event, "kind") or "")
    return kind is not None and kind.is_trouble


def show(events: Sequence[Row], key: str, nothing: str) -> None:
    """Draw events as a table; ``nothing`` is said where there are none."""
    st.subheader("Latest events")
    if not events:
        st.caption(nothing)
        return
    columns = [
        table.words("When", "UTC", "happened_at", "time"),
        table.words("Node", "where", "node"),
        Column("What", "what happened; below, what each kind means", words),
        table.words("Device", "GPU by UUID", "device_uuid"),
        table.words("Detail", "as reported", "detail", wide=True),
    ]
    table.show(events, columns, key)
    there = [KINDS[kind] for kind in dict.fromkeys(text(event, "kind") or "" for event in events) if kind in KINDS]
    st.caption(" · ".join(f"**{kind.word}**: {kind.meaning}" for kind in there))
