"""The job page: what the driver says, what the GPU truly did, where the time went, and one change worth making."""

from __future__ import annotations

import streamlit as st

from analysis.settings import INFLATION_RATIO
from dashboards import charts, frame, table, traced
from dashboards.account import ALLOCATED_PARTS, HELD_IDLE, LADDER, rung_word
from dashboards.advice import saving_words
from dashboards.document import Row, number, part, rows, seconds, text, texts
from dashboards.page import Page, PageContext
from dashboards.table import Column
from dashboards.text import markdown
from dashboards.units import clock, gib, gpu_hours, percent, points

RECENT_JOBS = 200
IDENTITY = {
    "name": "Name",
    "user": "User",
    "account": "Account",
    "partition": "Partition",
    "qos": "QOS",
    "cluster": "Cluster",
    "source": "Source",
}


def draw(context: PageContext) -> None:
    """Draw one job, named in the address as ``/job?id=KEY``, or a search for one."""
    key = st.text_input(
        "Job", key="id", bind="query-params", placeholder="cluster/id#generation, or the bare id where it is unique"
    ).strip()
    if not key:
        _search(context)
        return
    document = context.ask("job", {**_rung(context), "id": key})
    attempts = rows(document, "attempts")
    _identity(part(document, "job"), attempts)
    whole = part(document, "gpu_seconds")
    if whole:
        covered = percent(number(document, "coverage_ratio"))
        st.caption(f"GPU-hours · busy = {rung_word(text(document, 'rung'))} · coverage {covered} of the allocated time")
        frame.account_metrics(document)
    for attempt in attempts:
        _attempt(attempt)
    _timeline(document, attempts)
    _findings(document)
    _advice(context, document)


def _rung(context: PageContext) -> dict[str, str]:
    return {key: value for key, value in context.period.items() if key == "rung"}


def _search(context: PageContext) -> None:
    jobs = rows(context.answer("jobs"), "jobs")
    if not jobs:
        frame.nothing_yet(context.period)
        return
    st.subheader("Jobs, most held idle first")
    columns = [
        table.words("Job", "cluster/id#generation", "job_key"),
        Column("Page", "the page of the job", lambda row: table.job_address(text(row, "job_key")), "link"),
        table.words("Name", "as its owner called it", "name"),
        table.words("User", "who submitted it", "user"),
        table.words("Account", "charged for it", "account"),
        table.words("GPU model", "what it ran on", "gpu_model"),
        *table.account_columns(),
    ]
    table.show(jobs, columns, "job_search")


def _identity(job: Row, attempts: list[Row]) -> None:
    st.subheader(markdown(text(job, "job_key")), anchor=False)
    known = [(word, text(job, key)) for key, word in IDENTITY.items()]
    said = [f"**{word}** {markdown(value)}" for word, value in known if value]
    st.markdown(" · ".join(said) or "Nothing is known about this job but its key.")
    command = text(job, "command")
    if command:
        st.code(command[:500], language=None, wrap_lines=True)
    columns = [
        table.words("Start", "UTC", "start_at", "time"),
        table.words("End", "UTC; none: still running", "end_at", "time"),
        table.words("State", "how the attempt stands or ended", "state"),
        table.words("Node", "where it ran", "node"),
        Column("GPUs", "devices held", lambda row: float(len(texts(row, "devices"))) or None, "count"),
        *table.account_columns(),
    ]
    table.show(attempts, columns, "job_attempts")


def _attempt(attempt: Row) -> None:
    readings = part(attempt, "ladder")
    if not any(number(part(readings, key), "value") is not None for key in LADDER):
        st.info("Nothing says how busy the GPU was in this attempt: there are only accounting data.")
        return
    st.subheader(f"How busy, attempt of {markdown(clock(text(attempt, 'start_at')))}", anchor=False)
    left, right = st.columns([3, 2])
    with left:
        key = f"ladder_{text(attempt, 'attempt')}"
        st.plotly_chart(charts.ladder(readings), key=key, alt="Rungs of the ladder side by side, in percent.")
    with right:
        for name, (word, _) in LADDER.items():
            _reading(word, part(readings, name))
        _memory(attempt)
    _inflation(attempt, readings)
    traced.draw(part(attempt, "tracer"), text(attempt, "attempt"))
    _where_it_went(attempt)


def _reading(word: str, reading: Row) -> None:
    if number(reading, "value") is None:
        return
    covered = percent(number(reading, "coverage_ratio"))
    assumed = " (assumed)" if reading.get("assumed") is True else ""
    st.markdown(
        f"**{word}** {percent(number(reading, 'value'))} · from {markdown(text(reading, 'source'))}, "
        f"covers {covered}{assumed}"
    )


def _memory(attempt: Row) -> None:
    peak = number(attempt, "memory_peak_bytes")
    if peak is not None:
        st.markdown(f"**GPU memory peak** {gib(peak)} of {gib(number(attempt, 'device_memory_bytes'))}")


def _inflation(attempt: Row, readings: Row) -> None:
    inflation = number(attempt, "inflation_ratio")
    if inflation is None:
        return
    driver = percent(number(part(readings, "driver_util_ratio"), "value"))
    if inflation > INFLATION_RATIO.default:
        st.warning(
            f"The driver calls this attempt {driver} busy, but the best measure there is says less: inflated by "
            f"{points(inflation)}. The driver's figure says that something was running, not that the GPU was full."
        )
    else:
        st.caption(f"Driver utilization exceeds the best measure there is by {points(inflation)}.")


def _where_it_went(attempt: Row) -> None:
    allocated = seconds(attempt, "allocated")
    if not allocated:
        return
    parts = (
        ALLOCATED_PARTS
        if seconds(attempt, "gaps") is not None
        else (ALLOCATED_PARTS[0], HELD_IDLE, ALLOCATED_PARTS[-1])
    )
    said = [
        f"{piece.word.lower()} {gpu_hours(seconds(attempt, piece.key))} ({percent(value / allocated)})"
        for piece in parts
        if (value := seconds(attempt, piece.key)) is not None
    ]
    st.caption(f"Of {gpu_hours(allocated)} allocated: " + ", ".join(said) + ".")


def _timeline(document: Row, attempts: list[Row]) -> None:
    timeline = part(document, "timeline")
    lines = _lines(timeline)
    if not lines:
        return
    st.subheader("Timeline")
    stretches = rows(timeline, "idle_stretches") or [one for item in attempts for one in rows(item, "idle_stretches")]
    st.plotly_chart(charts.timeline(lines, stretches), key="job_timeline", alt="Share of time busy over time.")
    st.caption(
        "A break in a line is a gap in the data. Shaded: held idle with a process (light) and without one (dark), "
        "stretches of five minutes or more."
    )


def _lines(timeline: Row) -> list[tuple[str, str, list[tuple[str, float | None]]]]:
    points_of = rows(timeline, "points")
    lines = []
    for name, (word, colour) in LADDER.items():
        found = [(at, number(point, name)) for point in points_of if (at := text(point, "at"))]
        if any(value is not None for _, value in found):
            lines.append((word, colour, found))
    return lines


def _findings(document: Row) -> None:
    findings = rows(document, "findings")
    if findings:
        st.subheader("Findings")
    for finding in findings:
        st.markdown(f"- {markdown(text(finding, 'title') or text(finding, 'detail'), 400)}")


def _advice(context: PageContext, document: Row) -> None:
    key = text(part(document, "job"), "job_key")
    family = text(document, "family_id")
    ids = {("job", key), ("family", family)}
    advice = [
        item
        for item in rows(context.ask("recommend", _rung(context)), "recommendations")
        if (text(part(item, "subject"), "kind"), text(part(item, "subject"), "id")) in ids
    ]
    st.subheader("What to change")
    for item in advice:
        st.markdown(f"**{markdown(text(item, 'title'))}** would have saved {markdown(saving_words(item))}")
        st.code(text(item, "action") or "", language=None, wrap_lines=True)
    if not advice:
        st.caption("Nothing is advised for this job.")
    if family:
        context.link("families", "Its family: work that is repeated", {"family": family})


PAGE = Page(
    name="job",
    title="Job",
    icon=":material/search:",
    section="Work",
    order=50,
    description="Tells one job's story: how busy its GPUs truly were, where the time went, and what to change.",
    draw=draw,
)
