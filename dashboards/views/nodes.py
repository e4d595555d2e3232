"""The nodes page: each node's health, what its GPUs were held for, and how much of it is known."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from dashboards import address, charts, events, frame, table
from dashboards.account import ALLOCATED_PARTS, HELD_IDLE
from dashboards.document import Row, rows, text
from dashboards.page import Page, PageContext
from dashboards.table import Column
from dashboards.text import markdown

CHARTED = 30


def draw(context: PageContext) -> None:
    """Draw all nodes with their trouble, or one of them, named in the address as ``/nodes?node=NAME``."""
    fleet = context.answer("fleet")
    nodes = rows(fleet, "by_node")
    if not nodes:
        _why_none(context, fleet)
        return
    frame.basis(fleet)
    names = [name for row in nodes if (name := text(row, "key"))]
    named = address.given("node", names)
    chosen = st.selectbox(
        "Node", names, index=None if named is None else names.index(named), placeholder="all", key="nodes_choice"
    )
    address.keep("node", chosen)
    happened = rows(fleet, "events")
    if chosen is None:
        _all(nodes, happened, fleet)
    else:
        _one(
            next(row for row in nodes if text(row, "key") == chosen), [e for e in happened if text(e, "node") == chosen]
        )


def _why_none(context: PageContext, fleet: Row) -> None:
    if frame.is_empty(fleet):
        frame.nothing_yet(context.period)
    else:
        st.info("Nodes are shown to operators: how busy one was tells whose job ran there.")


def _all(nodes: list[Row], happened: list[Row], fleet: Row) -> None:
    trouble = Counter(text(event, "node") for event in happened if events.is_trouble(event))
    dark = fleet.get("nodes_without_inventory")
    if isinstance(dark, list) and dark:
        st.warning(
            f"{len(dark)} nodes held GPUs that no inventory tells of, so that what was free there is not known: "
            + ", ".join(markdown(str(name)) for name in dark[:10])
            + (" and more." if len(dark) > 10 else ".")  # noqa: PLR2004 - as many as a line holds
        )
    known = frame.known_parts(fleet)
    st.plotly_chart(
        charts.account_by_key(nodes[:CHARTED], known),
        key="nodes_chart",
        alt="GPU-hours held on each node, by what became of them.",
    )
    if len(nodes) > CHARTED:
        st.caption(f"The {CHARTED} nodes with most GPU time held; the table has all.")
    columns = [
        table.words("Node", "its name", "key"),
        Column("Page", "the node alone", lambda row: table.node_address(text(row, "key")), "link"),
        Column("Trouble", "latest events of lost devices, Xid and memory errors", _counted(trouble), "count"),
        table.figures("GPUs", "devices in the inventory", "device_count"),
        *table.capacity_columns(),
        *table.account_columns(),
    ]
    table.show(nodes, columns, "nodes_rows")
    events.show(happened, "nodes_events", "None among the latest events of the cluster.")


def _counted(trouble: Counter[str | None]) -> table.Read:
    return lambda row: float(trouble[text(row, "key")])


def _one(node: Row, happened: list[Row]) -> None:
    frame.account_metrics(node, capacity=True)
    parts = ALLOCATED_PARTS if node.get("gpu_seconds") else (HELD_IDLE,)
    st.plotly_chart(charts.account_by_key([node], parts), key="node_chart", alt="What became of the node's GPU time.")
    events.show(happened, "nodes_events", "None among the latest events of the cluster.")


PAGE = Page(
    name="nodes",
    title="Nodes",
    icon=":material/memory:",
    section="Cluster",
    order=15,
    description="Shows each node's trouble, what its GPUs were held for, and how much of it is known.",
    draw=draw,
)
