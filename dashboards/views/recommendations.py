"""The recommendations page: what to change, what it would have saved, and what was refused instead."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboards import acting, address, charts, frame, table
from dashboards.account import rung_word
from dashboards.advice import Advice, alike, subject_words
from dashboards.document import Row, number, part, rows, text, texts
from dashboards.page import Page, PageContext
from dashboards.table import Column
from dashboards.text import markdown
from dashboards.units import count, money
from warehouse.client import Document

CHARTED = 12
OPENED = 20
"""Pieces of advice with all their words; the table has the rest."""
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
    frame.basis(document)
    first, second = st.columns(2)
    first.metric("Recommendations", count(len(ranked)), help="one change to one family, job or node each")
    second.metric("Refusals", count(len(refusals)), help="where a remedy was looked at and nothing was advised")
    if ranked:
        _ranked(context, document, alike(ranked))
    if refusals:
        st.subheader("Looked at, and refused")
        table.show(refusals, _REFUSAL_COLUMNS, "refusal_rows")


def _ranked(context: PageContext, document: Document, advice: list[Advice]) -> None:
    st.caption(
        "Ranges are the 10th, 50th and 90th percentile of what the same work in this period would have saved. They are "
        "not to be added up: some exclude each other. What is advised alike for several subjects stands once."
    )
    st.plotly_chart(
        charts.savings([one.first for one in advice[:CHARTED]], [one.title for one in advice[:CHARTED]]),
        key="savings",
        alt="Range of each saving in GPU-hours.",
    )
    known = rows(context.advice("list", {}), "recommendations")
    states = {text(one, "recommendation_id") or "": one for one in known}
    named = [one for one in advice if _is_named(one)]
    shown = [*named, *(one for one in advice if one not in named)]
    for one in shown[:OPENED]:
        _one(context, document, one, states, is_open=one in named)
    rest = [item for one in shown[OPENED:] for item in (one.first, *one.others)]
    if rest:
        st.subheader("The rest")
        table.show(rest, _COLUMNS, "recommendation_rows")


def _is_named(advice: Advice) -> bool:
    """Say whether the address asks for this piece of advice: ``/recommendations?id=ID``, as mails do."""
    ids = [text(item, "recommendation_id") or "" for item in (advice.first, *advice.others)]
    return address.given("id", ids) is not None


def _one(context: PageContext, document: Document, advice: Advice, states: Mapping[str, Row], *, is_open: bool) -> None:
    item = advice.first
    state = acting.state_words(states, text(item, "recommendation_id"))
    heading = f"{markdown(advice.title, 300)} · {markdown(advice.saving)}" + (f" · {markdown(state)}" if state else "")
    with st.expander(heading, expanded=is_open):
        st.markdown(f"**Would have saved** {markdown(advice.saving)}")
        _cost(part(item, "money"))
        _confidence(item)
        st.markdown("**What to do**")
        st.code(text(item, "action") or "", language=None, wrap_lines=True)
        said = [f"may break: {words}" for words in texts(item, "risks")]
        said += [f"evidence: {words}" for words in texts(item, "evidence")[:10]]
        said += [f"excludes {words}" for words in texts(item, "excludes")]
        st.markdown("\n".join(f"- {markdown(words, 400)}" for words in said))
        _subject_link(context, item)
        st.caption(f"id {markdown(text(item, 'recommendation_id'))}")
        acting.draw(context, document, item, states)
        if advice.others:
            st.markdown("**The same for**")
            table.show(advice.others, _COLUMNS, f"alike_{text(item, 'recommendation_id')}")


def _cost(cost: Row) -> None:
    currency = text(cost, "currency")
    if currency:
        low, likely, high = (number(cost, key) for key in ("low", "likely", "high"))
        said = money(likely, currency) if likely is not None else f"{money(low, currency)} to {money(high, currency)}"
        st.markdown(f"**Money** {markdown(said)} at the site's price")


def _confidence(item: Row) -> None:
    confidence, how = text(item, "confidence") or "", text(item, "how")
    said = f"**Confidence** {markdown(confidence)}: {markdown(CONFIDENCE.get(confidence, ''), 200)}"
    if how:
        said += f". {markdown(how[0].upper() + how[1:], 400)}"
    st.markdown(f"{said} · by {markdown(rung_word(text(item, 'rung')))}")


def _subject_link(context: PageContext, item: Row) -> None:
    subject = part(item, "subject")
    kind, key = text(subject, "kind"), text(subject, "id")
    if kind == "job" and key:
        context.link("job", "Open the job", {"id": key})
    if kind == "family" and key:
        context.link("families", "Open the family", {"family": key})


def _address(item: Row) -> str | None:
    subject = part(item, "subject")
    kind, key = text(subject, "kind"), text(subject, "id")
    if kind == "family" and key:
        return table.family_address(key)
    return table.job_address(key) if kind == "job" else None


_COLUMNS = [
    table.words("Recommendation", "what to do", "title"),
    Column("Subject", "what it is about", subject_words),
    Column("Page", "the job, or the family and its members", _address, "link"),
    Column("Low", "GPU-hours, 10th percentile", lambda row: number(part(row, "saving_gpu_seconds"), "low"), "hours"),
    Column("Likely", "GPU-hours, median", lambda row: number(part(row, "saving_gpu_seconds"), "likely"), "hours"),
    Column("High", "GPU-hours, 90th percentile", lambda row: number(part(row, "saving_gpu_seconds"), "high"), "hours"),
    table.words("Confidence", "how the range was reached", "confidence"),
]
_REFUSAL_COLUMNS = [
    Column("Subject", "what was looked at", subject_words),
    Column("Page", "the job, or the family and its members", _address, "link"),
    table.words("Remedy", "what was considered", "remedy"),
    table.words("Reason", "why nothing is advised", "reason", wide=True),
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
