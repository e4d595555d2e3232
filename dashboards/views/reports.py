"""The archive of weekly reports: any week that has data, as people got it, to read here or to take along."""

from __future__ import annotations

import re

import streamlit as st

from analysis.window import weeks_between, zone_of
from dashboards import address, frame
from dashboards.document import text
from dashboards.page import Page, PageContext
from dashboards.report.digest import Limits
from dashboards.report.weekly import render
from dashboards.settings import REPORT_TOP_FINDINGS, REPORT_TOP_ROWS
from dashboards.units import instant

LIMITS = Limits(REPORT_TOP_ROWS.default, REPORT_TOP_FINDINGS.default)
FORMATS = (("HTML", "html", "text/html"), ("Markdown", "md", "text/markdown"), ("JSON", "json", "application/json"))


def draw(context: PageContext) -> None:
    """Draw the report of the week in the address (``/reports?report=2026-W44``), else of the last whole one."""
    weeks = _weeks(context)
    if not weeks:
        frame.nothing_yet({})
        return
    named = address.given("report", weeks)
    chosen = st.selectbox(
        "Report of week", weeks, index=None if named is None else weeks.index(named), placeholder="the last whole week"
    )
    address.keep("report", chosen)
    document = context.ask("weekly", {"week": chosen} if chosen else {})
    week = text(document, "week") or "week"
    for column, (word, name, kind) in zip(st.columns(len(FORMATS)), FORMATS, strict=True):
        column.download_button(
            f"Download {word}", render(document, name, LIMITS), f"gpu-time-{week}.{name}", kind, key=f"report_{name}"
        )
    st.caption("`trueload report weekly` writes it as PDF, too, and sends it by mail.")
    # A page has one heading of the first level, its own.
    st.markdown(re.sub(r"^(?=#+ )", "#", render(document, "md", LIMITS), flags=re.MULTILINE))


def _weeks(context: PageContext) -> list[str]:
    """Give the weeks of the data, newest first."""
    known = context.ask("waste", {})
    since, until = instant(text(known, "since")), instant(text(known, "until"))
    if since is None or until is None:
        return []
    zone = zone_of(text(known, "zone") or "UTC")
    return [name for name, _ in reversed(weeks_between(since.timestamp(), until.timestamp(), zone))]


PAGE = Page(
    name="reports",
    title="Reports",
    icon=":material/calendar_month:",
    section="Work",
    order=60,
    description="Shows the weekly report of any week that has data.",
    draw=draw,
)
