"""The families page: work that is repeated, and what all its repeats together hold and use."""

from __future__ import annotations

import streamlit as st

from dashboards import address, charts, frame, table
from dashboards.document import Row, number, part, rows, seconds, text, texts
from dashboards.page import Page, PageContext
from dashboards.table import Column
from dashboards.text import markdown, plain
from dashboards.units import count, gpu_hours, percent

SHARES = {
    "repetitive_single_gpu": "repeated, on one GPU",
    "isolated_single_gpu": "not repeated, on one GPU",
    "multi_gpu": "on several GPUs",
    "interactive_or_other": "interactive or other",
}
"""The classes of GPU work after HFTA (Wang et al., MLSys 2021, section 2), which found nearly half of a cluster's GPU
time in repeated single-GPU training."""
LISTED_MEMBERS = 200


def draw(context: PageContext) -> None:
    """Draw the table of families, the shares by kind of work, and one family with its members."""
    document = context.answer("families")
    families = rows(document, "families")
    ungrouped = texts(document, "ungrouped")
    if not families and not ungrouped:
        frame.nothing_yet(context.period)
        return
    if text(document, "since"):
        frame.basis(document)
    first, second = st.columns(2)
    first.metric("Families", count(len(families)), help="groups of jobs that are the same work repeated")
    second.metric("Jobs in no family", count(len(ungrouped)), help="jobs that nothing else resembles closely enough")
    _shares(part(document, "share_of_gpu_seconds"))
    if not families:
        st.info("No work was repeated in this period.")
        return
    st.subheader("Families")
    table.show(families, _COLUMNS, "families_rows")
    _one(context, families)


def _shares(shares: Row) -> None:
    known = [(word, value) for key, word in SHARES.items() if (value := number(shares, key)) is not None]
    if known:
        st.subheader("GPU time by kind of work")
        st.plotly_chart(
            charts.share_by_kind(known),
            key="family_shares",
            alt="; ".join(f"{word}: {percent(value)}" for word, value in known),
        )


def _members(row: Row) -> list[str]:
    return texts(row, "members")


_COLUMNS = [
    table.words("Family", "what its members have in common", "label"),
    Column("Jobs", "submissions", lambda row: float(len(_members(row))), "count"),
    table.figures("Attempts", "starts, requeues included", "attempts"),
    *table.account_columns(),
    Column("Varies", "what differs between the members", lambda row: ", ".join(texts(row, "varies")) or None),
    table.words("Reason", "why they belong together", "reason"),
]


def _one(context: PageContext, families: list[Row]) -> None:
    by_id = {key: family for family in families if (key := text(family, "family_id"))}
    named = address.given("family", by_id)
    st.subheader("One family")
    chosen = st.selectbox(
        "Family",
        list(by_id),
        index=list(by_id).index(named) if named else None,
        format_func=lambda key: plain(text(by_id[key], "label")) if key in by_id else key,
        key="chosen_family",
        placeholder="choose a family to see its members",
    )
    address.keep("family", chosen)
    if chosen is None:
        return
    family = by_id[chosen]
    members = _members(family)
    st.markdown(
        f"{markdown(text(family, 'label'))}: {count(len(members))} jobs, "
        f"{gpu_hours(seconds(family, 'allocated'))} allocated, "
        f"{percent(number(family, 'used_ratio'))} of the known time used. "
        f"They belong together: {markdown(text(family, 'reason'), 300)}."
    )
    context.link("recommendations", "Recommendations for all families", {})
    listed: list[Row] = [{"key": key} for key in members[:LISTED_MEMBERS]]
    columns = [
        table.words("Job", "cluster/id#generation", "key"),
        Column("Page", "the page of the job", lambda row: table.job_address(text(row, "key")), "link"),
    ]
    table.show(listed, columns, "family_members")
    if len(members) > LISTED_MEMBERS:
        st.caption(f"{count(len(members) - LISTED_MEMBERS)} more members are not listed.")


PAGE = Page(
    name="families",
    title="Families",
    icon=":material/family_history:",
    section="Work",
    order=30,
    description="Shows work that is repeated, and what all its repeats together hold and use.",
    draw=draw,
)
