"""The waste page: who holds GPUs without using them, ranked, down to the single job."""

from __future__ import annotations

import streamlit as st

from dashboards import address, charts, frame, table
from dashboards.account import ALLOCATED_PARTS, FAILED
from dashboards.document import Row, rows, text
from dashboards.page import Page, PageContext
from dashboards.table import Column
from dashboards.text import markdown

GROUPINGS = {
    "user": "user",
    "account": "account",
    "partition": "partition",
    "gpu_model": "GPU model",
    "week": "week",
    "job": "job",
}
MOST_JOBS = "10000"
CHARTED = 15
"""Bars in the chart: what fits on a screen; the table below has all rows."""


def draw(context: PageContext) -> None:
    """Draw the ranked account of GPU time by the grouping that the reader chose."""
    grouping = _choose_grouping()
    waste = context.answer("waste", by=grouping)
    if frame.is_empty(waste):
        frame.nothing_yet(context.period)
        return
    frame.basis(waste)
    frame.account_metrics(waste)
    ranked = rows(waste, "rows")
    st.subheader(f"By {GROUPINGS[grouping]}, most held idle first")
    figure = charts.account_by_key(ranked[:CHARTED], frame.known_parts(waste))
    st.plotly_chart(figure, key="waste_bars", alt="GPU-hours by what became of them, one bar per row of the table.")
    table.show(ranked, _columns(grouping), "waste_rows")
    if grouping not in ("job", "week"):
        _drill(context, grouping, ranked)
    _explain()


def _choose_grouping() -> str:
    chosen = st.segmented_control(
        "Grouped by",
        list(GROUPINGS),
        default=address.given("by", GROUPINGS) or "user",
        required=True,
        format_func=lambda name: GROUPINGS[name],
        key="grouping",
    )
    grouping = chosen if chosen in GROUPINGS else "user"
    address.keep("by", grouping)
    return grouping


def _columns(grouping: str) -> list[Column]:
    columns = [table.words(_heading(grouping), "what the row is about", "key")]
    if grouping == "job":
        columns.append(Column("Page", "the page of the job", lambda row: table.job_address(text(row, "key")), "link"))
        columns.append(table.words("Name", "as its owner called it", "name"))
        columns.append(table.words("User", "who submitted it", "user"))
    else:
        columns.append(table.figures("Jobs", "submissions with GPU time in the period", "jobs"))
    return [*columns, *table.account_columns()]


def _heading(grouping: str) -> str:
    word = GROUPINGS[grouping]
    return word[0].upper() + word[1:]


def _drill(context: PageContext, grouping: str, ranked: list[Row]) -> None:
    """Draw the jobs of one row."""
    keys = [key for row in ranked if (key := text(row, "key"))]
    st.subheader(f"Jobs of one {GROUPINGS[grouping]}")
    chosen = st.selectbox(
        f"Jobs of which {GROUPINGS[grouping]}",
        keys,
        index=None,
        key=f"drill_{grouping}",
        placeholder=f"choose one {GROUPINGS[grouping]}",
    )
    if chosen is None:
        return
    jobs = [row for row in rows(context.answer("jobs", limit=MOST_JOBS), "jobs") if text(row, grouping) == chosen]
    if not jobs:
        st.caption("No jobs with GPU time in this period.")
        return
    columns = [
        table.words("Job", "cluster/id#generation", "job_key"),
        Column("Page", "the page of the job", lambda row: table.job_address(text(row, "job_key")), "link"),
        table.words("Name", "as its owner called it", "name"),
        table.words("User", "who submitted it", "user"),
        *table.account_columns(),
    ]
    table.show(jobs, columns, f"drill_rows_{grouping}")


def _explain() -> None:
    with st.expander("What the columns mean"):
        for piece in (*ALLOCATED_PARTS, FAILED):
            st.markdown(f"**{markdown(piece.word)}** {markdown(piece.meaning, 200)}.")
        st.markdown(
            "Allocated = used + held idle + unknown; held idle = no process + with process + gaps. Only the first two "
            "can be given back by releasing a device; gaps call for sharing, fusing or feeding it faster."
        )


PAGE = Page(
    name="waste",
    title="Waste",
    icon=":material/hourglass_empty:",
    section="Cluster",
    order=20,
    description="Ranks who holds GPUs without using them, down to the single job.",
    draw=draw,
)
