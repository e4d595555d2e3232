"""The fleet page: what there is, what is allocated, and how much of that is used."""

from __future__ import annotations

import streamlit as st

from dashboards import charts, frame, table
from dashboards.document import Row, rows, text
from dashboards.page import Page, PageContext
from dashboards.units import clock


def draw(context: PageContext) -> None:
    """Draw the account of the whole capacity, over time, by model and by node, and the latest events."""
    fleet = context.answer("fleet")
    if frame.is_empty(fleet):
        frame.nothing_yet(context.period)
        return
    frame.basis(fleet)
    frame.account_metrics(fleet, capacity=True)
    st.caption(f"Newest data: {clock(text(fleet, 'as_of'))}")
    _over_time(fleet)
    _tables(fleet)
    _events(rows(fleet, "events"))


def _over_time(fleet: Row) -> None:
    series = rows(fleet, "series")
    if series:
        st.subheader("Where the GPUs were")
        figure = charts.account_over_time(series, frame.known_parts(fleet, capacity=True))
        st.plotly_chart(figure, key="fleet_series", alt="Number of GPUs over time, by what became of them.")


def _tables(fleet: Row) -> None:
    for key, heading, what in (("by_model", "By GPU model", "GPU model"), ("by_node", "By node", "Node")):
        items = rows(fleet, key)
        if items:
            st.subheader(heading)
            columns = [
                table.words(what, "what the row is about", "key"),
                table.figures("GPUs", "devices in the inventory", "device_count"),
                *table.capacity_columns(),
                *table.account_columns(),
            ]
            table.show(items, columns, f"fleet_{key}")


def _events(events: list[Row]) -> None:
    st.subheader("Latest events")
    if not events:
        st.caption("No events: no device was lost, no driver changed, no agent fell silent.")
        return
    columns = [
        table.words("When", "UTC", "happened_at", "time"),
        table.words("Node", "where", "node"),
        table.words("What", "kind of event", "kind"),
        table.words("Device", "GPU by UUID", "device_uuid"),
        table.words("Detail", "as reported", "detail"),
    ]
    table.show(events, columns, "fleet_events")


PAGE = Page(
    name="fleet",
    title="Fleet",
    icon=":material/dns:",
    section="Cluster",
    order=10,
    description="Shows what there is, what is allocated, and how much of that is used.",
    draw=draw,
)
