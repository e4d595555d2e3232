"""The recommendations page: what to change, what it would have saved, and what was refused instead."""

from __future__ import annotations

import streamlit as st

from dashboards import charts, frame, table
from dashboards.account import rung_word
from dashboards.document import Row, number, part, rows, text, texts
from dashboards.page import Page, PageContext
from dashboards.table import Column
from dashboards.text import markdown
from dashboards.units import bounds, count, money

CHARTED = 12
OPENED = 20
"""Recommendations with all their words; the table has the rest."""
CONFIDENCE = {
    "measured": "measured on this work",
    "calibrated": "a model checked against this site's own outcomes",
    "modelled": "a model, not yet checked here",
    "bound": "only a bound: the evidence does not tell how much of it can be had",
}


def draw(context: PageContext) -> None:
    """Draw the ranked recommendations with their ranges, and the refusals."""
    document = context.answer("recommend")
    ranked = rows(document, "recommendations")
    refusals = rows(document, "refusals")
    if not ranked and not refusals:
        frame.nothing_yet(context.period)
        return
    first, second = st.columns(2)
    first.metric("Recommendations", count(len(ranked)), help="one change to one family, job or node each")
    second.metric("Refusals", count(len(refusals)), help="where a remedy was looked at and nothing was advised")
    if ranked:
        st.caption(
            "Ranges are the 10th, 50th and 90th percentile of what the same work in this period would have saved. "
            "They are not to be added up: some exclude each other."
        )
        st.plotly_chart(charts.savings(ranked[:CHARTED]), key="savings", alt="Range of each saving in GPU-hours.")
        for item in ranked[:OPENED]:
            _one(context, item)
        if len(ranked) > OPENED:
            st.subheader("The rest")
            table.show(ranked[OPENED:], _COLUMNS, "recommendation_rows")
    if refusals:
        st.subheader("Looked at, and refused")
        table.show(refusals, _REFUSAL_COLUMNS, "refusal_rows")


def _saving(item: Row) -> str:
    saving = part(item, "saving_gpu_seconds")
    return bounds(number(saving, "low"), number(saving, "likely"), number(saving, "high"))


def _one(context: PageContext, item: Row) -> None:
    subject = part(item, "subject")
    with st.expander(f"{markdown(text(item, 'title'))} · {markdown(_saving(item))}"):
        st.markdown(f"**Would have saved** {markdown(_saving(item))}")
        cost = part(item, "money")
        currency = text(cost, "currency")
        if currency:
            st.markdown(f"**Money** {markdown(money(number(cost, 'likely') or number(cost, 'high'), currency))}")
        confidence = text(item, "confidence") or ""
        how = text(item, "how")
        st.markdown(
            f"**Confidence** {markdown(confidence)}: {markdown(CONFIDENCE.get(confidence, ''), 200)}"
            + (f". {markdown(how, 400)}" if how else "")
            + f" · by {markdown(rung_word(text(item, 'rung')))}"
        )
        st.markdown("**What to do**")
        st.code(text(item, "action") or "", language=None, wrap_lines=True)
        for risk in texts(item, "risks"):
            st.markdown(f"- may break: {markdown(risk, 400)}")
        for row in texts(item, "evidence")[:10]:
            st.markdown(f"- evidence: {markdown(row, 400)}")
        excluded = texts(item, "excludes")
        if excluded:
            st.markdown(f"Excludes: {markdown(', '.join(excluded), 400)}")
        if text(subject, "kind") == "job":
            context.link("job", "Open the job", {"id": text(subject, "id") or ""})
        st.caption(f"id {markdown(text(item, 'recommendation_id'))}")


def _subject(row: Row) -> str | None:
    subject = part(row, "subject")
    kind, key = text(subject, "kind"), text(subject, "id")
    return None if key is None else f"{kind} {key}"


_COLUMNS = [
    table.words("Recommendation", "what to do", "title"),
    Column("Subject", "what it is about", _subject),
    Column("Low", "GPU-hours, 10th percentile", lambda row: number(part(row, "saving_gpu_seconds"), "low"), "hours"),
    Column("Likely", "GPU-hours, median", lambda row: number(part(row, "saving_gpu_seconds"), "likely"), "hours"),
    Column("High", "GPU-hours, 90th percentile", lambda row: number(part(row, "saving_gpu_seconds"), "high"), "hours"),
    table.words("Confidence", "how the range was reached", "confidence"),
]
_REFUSAL_COLUMNS = [
    Column("Subject", "what was looked at", _subject),
    table.words("Remedy", "what was considered", "remedy"),
    table.words("Reason", "why nothing is advised", "reason"),
    Column("Needs", "what would allow an estimate", lambda row: ", ".join(texts(row, "needs")) or None),
]

PAGE = Page(
    name="recommendations",
    title="Recommendations",
    icon=":material/lightbulb:",
    section="Work",
    order=40,
    description="Ranks the changes worth making by what they would have saved, and says what was refused.",
    draw=draw,
)
