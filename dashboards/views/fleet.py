"""The fleet page: what there is, what is allocated, and how much of that is used."""

from __future__ import annotations

import streamlit as st

from dashboards import charts, events, frame, table
from dashboards.document import Row, number, rows, text
from dashboards.page import Page, PageContext
from dashboards.units import ABSENT, clock
from warehouse.contract.errors import TrueloadError


def draw(context: PageContext) -> None:
    """Draw the account of the whole capacity, over time, by model and by node, and the latest events."""
    fleet = context.answer("fleet")
    if frame.is_empty(fleet):
        frame.nothing_yet(context.period)
        return
    frame.basis(fleet)
    frame.account_metrics(fleet, capacity=True)
    st.caption(f"Newest data: {clock(text(fleet, 'as_of'))}")
    _clocks(context)
    _over_time(fleet)
    _tables(fleet)
    nothing = "No events: no device was lost, no driver changed, no agent fell silent."
    events.show(rows(fleet, "events"), "fleet_events", nothing)


def _clocks(context: PageContext) -> None:
    """Tell nodes whose clock is off, where the server has heard any since its start."""
    try:
        told = context.answer("clocks")
    except TrueloadError:
        return  # no server with agents stands behind these pages
    off = [row for row in rows(told, "senders") if row.get("is_off")]
    if not off:
        return
    limit = number(told, "limit_seconds")
    told_limit = ABSENT if limit is None else f"{limit:g}"
    st.warning(f"The clocks of {len(off)} nodes are off by more than {told_limit} s: their rows bear wrong times.")
    columns = [
        table.words("Node", "or another sender", "sender"),
        table.figures("Ahead at least (s)", "of the server's clock; negative: behind", "ahead_low_seconds", "seconds"),
        table.figures("Ahead at most (s)", "bounded by the round trip", "ahead_high_seconds", "seconds"),
        table.words("Measured", "UTC, with the node's last batch", "measured_at", "time"),
    ]
    table.show(off, columns, "fleet_clocks")


def _over_time(fleet: Row) -> None:
    series = rows(fleet, "series")
    if series:
        st.subheader("Where the GPUs were")
        figure = charts.account_over_time(series, frame.known_parts(fleet, capacity=True))
        st.plotly_chart(figure, key="fleet_series", alt="Number of GPUs over time, by what became of them.")


_NODE_PAGE = table.Column("Page", "the node alone", lambda row: table.node_address(text(row, "key")), "link")


def _tables(fleet: Row) -> None:
    for key, heading, what in (("by_model", "By GPU model", "GPU model"), ("by_node", "By node", "Node")):
        items = rows(fleet, key)
        if items:
            st.subheader(heading)
            columns = [
                table.words(what, "what the row is about", "key"),
                *([_NODE_PAGE] if key == "by_node" else []),
                table.figures("GPUs", "devices in the inventory", "device_count"),
                *table.capacity_columns(),
                *table.account_columns(),
            ]
            table.show(items, columns, f"fleet_{key}")


PAGE = Page(
    name="fleet",
    title="Fleet",
    icon=":material/dns:",
    section="Cluster",
    order=10,
    description="Shows what there is, what is allocated, and how much of that is used.",
    draw=draw,
)
