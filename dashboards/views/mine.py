"""My view: what one person's jobs did with their GPUs, which of them to look at, and what to change."""

from __future__ import annotations

import streamlit as st

from dashboards import address, frame, table
from dashboards.advice import alike
from dashboards.document import number, rows, seconds, text
from dashboards.page import Page, PageContext
from dashboards.table import Column
from dashboards.text import markdown
from dashboards.units import count, gpu_hours, percent

MOST_JOBS = 200
FINDINGS = 3
"""More than three asks are read as none."""


def draw(context: PageContext) -> None:
    """Draw the view of who looks; who sees everything may look at anybody's, named as ``/mine?user=LOGIN``."""
    login = _whose(context)
    if login is None:
        return
    period = dict(context.period)
    waste = context.ask_as(login, "waste", {**period, "by": "account"})
    if frame.is_empty(waste):
        st.info(f"Nothing is known of jobs of {markdown(login)} in this period.")
        return
    frame.basis(waste)
    st.markdown(_sentence(seconds(waste, "allocated"), seconds(waste, "held_idle"), number(waste, "used_ratio")))
    frame.account_metrics(waste)
    _advice(context, login)
    _families(context, login)
    _jobs(context, login)
    _accounts(context)


def _whose(context: PageContext) -> str | None:
    person = context.person()
    if not person.everything:
        return person.name
    users = [key for row in rows(context.answer("waste", by="user"), "rows") if (key := text(row, "key"))]
    if not users:
        frame.nothing_yet(context.period)
        return None
    named = address.given("user", users) or (person.name if person.name in users else None)
    chosen = st.selectbox("User", users, index=None if named is None else users.index(named), placeholder="whose view")
    address.keep("user", chosen)
    return chosen


def _sentence(allocated: float | None, idle: float | None, used_ratio: float | None) -> str:
    if idle is None or used_ratio is None:
        return f"{gpu_hours(allocated)} were held. How much of them was used is not known."
    used = percent(used_ratio, 0)
    return f"Of {gpu_hours(allocated)} held, {used} of the known time was used; {gpu_hours(idle)} were idle."


def _advice(context: PageContext, login: str) -> None:
    document = context.ask_as(login, "recommend", dict(context.period))
    found = alike(rows(document, "recommendations"))
    st.subheader("What to change")
    if not found:
        st.caption("Nothing is advised: no change would give back enough to be worth your time.")
        return
    for one in found[:FINDINGS]:
        with st.expander(f"{markdown(one.title, 300)} · {markdown(one.saving)}", expanded=one is found[0]):
            st.code(text(one.first, "action") or "", language=None, wrap_lines=True)
            context.link(
                "recommendations",
                "Look closer, or say that it is not for you",
                {"id": text(one.first, "recommendation_id") or ""},
            )
    if len(found) > FINDINGS:
        st.caption(f"and {count(len(found) - FINDINGS)} more on the page of recommendations")


def _families(context: PageContext, login: str) -> None:
    families = rows(context.ask_as(login, "families", dict(context.period)), "families")
    if not families:
        return
    st.subheader("Work that you repeat")
    columns = [
        table.words("Family", "what its jobs have in common", "label", wide=True),
        Column("Page", "the family", lambda row: table.family_address(text(row, "family_id") or ""), "link"),
        *table.account_columns(),
    ]
    table.show(families, columns, "mine_families")


def _jobs(context: PageContext, login: str) -> None:
    jobs = rows(context.ask_as(login, "jobs", {**context.period, "limit": str(MOST_JOBS)}), "jobs")
    st.subheader("Jobs, most held idle first")
    columns = [
        table.words("Job", "cluster/id#generation", "job_key"),
        Column("Page", "the page of the job", lambda row: table.job_address(text(row, "job_key")), "link"),
        table.words("Name", "as you called it", "name"),
        table.words("GPU model", "what it ran on", "gpu_model"),
        *table.account_columns(),
    ]
    table.show(jobs, columns, "mine_jobs")


def _accounts(context: PageContext) -> None:
    """Lead on to the accounts that a person answers for."""
    accounts = context.person().accounts
    if accounts:
        st.subheader("My group")
        st.caption(f"You answer for {', '.join(markdown(name) for name in accounts[:20])}.")
        context.link("waste", "Members and accounts, most held idle first", {"by": "user"})


PAGE = Page(
    name="mine",
    title="My view",
    icon=":material/person:",
    section="Work",
    order=25,
    description="Shows what one person's jobs did with their GPUs, and what to change.",
    draw=draw,
)
