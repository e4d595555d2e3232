"""The page of data health: whether the data are complete, who has fallen silent, and what is only estimated."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from dashboards import frame, table
from dashboards.document import Row, number, rows, seconds, text
from dashboards.page import Page, PageContext
from dashboards.table import Column
from dashboards.text import markdown
from dashboards.units import ABSENT, clock, count, gpu_hours, instant, percent
from warehouse.contract.errors import TrueloadError
from warehouse.contract.units import ratio

SHOWN_GPU_SECONDS = 360.0
"""A tenth of a GPU-hour, the least that a table shows."""

SILENT_SECONDS = 300.0
"""A sender that has not been heard for five minutes has missed thirty batches."""


def draw(context: PageContext) -> None:
    """Draw how much is known, and of what it is not."""
    fleet, waste = context.answer("fleet"), context.answer("waste", by="user")
    if frame.is_empty(fleet):
        frame.nothing_yet(context.period)
        return
    frame.basis(fleet)
    allocated, unknown = seconds(waste, "allocated"), seconds(waste, "unknown")
    assumed = number(waste, "assumed_gpu_seconds")
    first, second, third = st.columns(3)
    first.metric("Coverage", percent(number(waste, "coverage_ratio")), help="share of the allocated time with data")
    second.metric(
        "Unknown (GPU-h)", gpu_hours(unknown, unit=False), help="allocated, without data or owner of the data"
    )
    third.metric(
        "Assumed",
        percent(ratio(assumed, allocated)),
        help="share of the allocated time whose source gives a job's mean and does not tell what it covers",
    )
    st.markdown(_verdict(fleet, waste))
    st.caption(f"Newest data: {clock(text(fleet, 'as_of'))}")
    _without_owner(waste)
    _dark(fleet)
    _senders(context)


def _verdict(fleet: Row, waste: Row) -> str:
    """Say in a sentence whether the data are complete."""
    covered = number(waste, "coverage_ratio")
    if covered is None:
        return "**Nothing says how busy any GPU was**: there are accounting data alone."
    lacking = []
    if covered < 0.9:  # noqa: PLR2004 - as the best rung asks for (rung.py)
        lacking.append(f"a share of {percent(1 - covered)} of the held time has no data")
    if seconds(fleet, "capacity") is None:
        lacking.append("what was free is not known, for no inventory covers the devices")
    elif (unreported := seconds(fleet, "unreported") or 0.0) > 0:
        lacking.append(f"{gpu_hours(unreported)} of capacity were told of by nobody")
    return (
        "**The data are complete** for this period." if not lacking else "**Not complete**: " + "; ".join(lacking) + "."
    )


def _without_owner(waste: Row) -> None:
    lost = [row for row in rows(waste, "rows") if (seconds(row, "unknown") or 0.0) >= SHOWN_GPU_SECONDS]
    if not lost:
        return
    st.subheader("Whose time is unknown")
    columns = [
        table.words("User", "none: nobody is known", "key"),
        Column("Unknown", "GPU-hours without data", lambda row: seconds(row, "unknown"), "hours"),
        Column("Allocated", "GPU-hours held", lambda row: seconds(row, "allocated"), "hours"),
        table.figures("Coverage", "share of the allocated time with data", "coverage_ratio", "percent"),
    ]
    table.show(sorted(lost, key=lambda row: -(seconds(row, "unknown") or 0.0)), columns, "health_unknown")


def _dark(fleet: Row) -> None:
    dark = fleet.get("nodes_without_inventory")
    if isinstance(dark, list) and dark:
        st.subheader("Nodes that no inventory tells of")
        st.markdown(", ".join(markdown(str(name)) for name in dark[:50]))
        st.caption("GPUs were held there, and no agent ran; start one, or import the inventory.")


def _senders(context: PageContext) -> None:
    """Tell who sends, when each was heard last, and whose clock is off, since the server's start."""
    st.subheader("Agents and collectors")
    try:
        told = context.answer("clocks")
    except TrueloadError:
        st.caption("No server with agents stands behind these pages.")
        return
    senders = rows(told, "senders")
    if not senders:
        st.caption("The server has heard nobody since it was started.")
        return
    now = datetime.now(UTC)
    quiet = [row for row in senders if (age := _age(row, now)) is not None and age > SILENT_SECONDS]
    if quiet:
        st.warning(f"{count(len(quiet))} of {count(len(senders))} have been silent for more than five minutes.")
    columns = [
        table.words("Sender", "node, or another sender", "sender"),
        table.words("Heard last", "UTC", "measured_at", "time"),
        Column("Silent for (s)", "since its last batch", lambda row: _age(row, now), "seconds"),
        table.figures("Ahead at least (s)", "of the server's clock; negative: behind", "ahead_low_seconds", "seconds"),
        table.figures("Ahead at most (s)", "bounded by the round trip", "ahead_high_seconds", "seconds"),
        Column("Clock", "off: certainly beyond the limit", lambda row: "off" if row.get("is_off") else "right"),
    ]
    table.show(sorted(senders, key=lambda row: text(row, "measured_at") or ABSENT), columns, "health_senders")


def _age(row: Row, now: datetime) -> float | None:
    at = instant(text(row, "measured_at"))
    return None if at is None else max(0.0, (now - at).total_seconds())


PAGE = Page(
    name="health",
    title="Data health",
    icon=":material/fact_check:",
    section="Cluster",
    order=70,
    description="Says whether the data are complete, who has fallen silent, and what is only estimated.",
    draw=draw,
)
