"""What the tracer told of an attempt, on the page of its job: how much work, in how small pieces, which kernels."""

from __future__ import annotations

import streamlit as st

from dashboards import charts, table
from dashboards.document import Row, number, part, rows, text
from dashboards.text import markdown
from dashboards.units import count, percent, short_span, span
from dashboards.units import number as spoken


def draw(known: Row, attempt: str | None) -> None:
    """Draw it; nothing where the attempt was never traced."""
    if not known:
        return
    source = f"from {markdown(text(known, 'source'))}, covers {percent(number(known, 'coverage_ratio'))}"
    st.markdown(" · ".join([*_work(known), source]))
    shares = [*_shares(known), *_estimates(known)]
    if shares:
        st.markdown(" · ".join(shares))
    lost = number(known, "source_lost_seconds")
    if lost:
        st.caption(f"For {span(lost)} the tracer saw nothing, for another profiler had its place: unknown, not idle.")
    _gaps(rows(known, "gap_lengths"), attempt)
    _kernels(rows(known, "kernels"), attempt)


def _work(known: Row) -> list[str]:
    steps, per_second = number(known, "steps_total"), number(known, "steps_per_second")
    said = {
        "launches per second": spoken(number(known, "launches_per_second")),
        "mean kernel": short_span(number(known, "mean_kernel_seconds")),
        "steps": None if steps is None else count(steps),
        "steps per second": None if per_second is None else spoken(per_second),
    }
    return [f"**{word}** {value}" for word, value in said.items() if value is not None]


def _shares(known: Row) -> list[str]:
    """Give the device's time by what it did; an attempt that shares a card has none of its own."""
    covered = number(known, "busy_covered_seconds")
    words = {"copies": "copy_seconds", "kernels or copies": "gpu_busy_seconds"}
    values = {word: number(known, key) for word, key in words.items()}
    return [f"**{word}** {percent(value / covered)}" for word, value in values.items() if value is not None and covered]


def _estimates(known: Row) -> list[str]:
    said = {
        "GPU-bound without the tracer's own cost": part(known, "gpu_bound_corrected_ratio"),
        "GPU-bound over all of the time, pauses included": part(known, "gpu_bound_extrapolated_ratio"),
    }
    return [
        f"**{word}** {percent(number(one, 'likely'))} ({percent(number(one, 'low'))} to {percent(number(one, 'high'))})"
        for word, one in said.items()
        if number(one, "likely") is not None
    ]


def _gaps(gaps: list[Row], attempt: str | None) -> None:
    if not gaps:
        return
    with st.expander("How long the GPU waited between two pieces of work"):
        st.plotly_chart(charts.gap_lengths(gaps), key=f"gaps_{attempt}", alt="Number of gaps by their length.")
        st.caption("A gap is a stretch without kernel or copy of one process. Both axes are logarithmic.")


def _kernels(kernels: list[Row], attempt: str | None) -> None:
    if not kernels:
        return
    columns = [
        table.words("Kernel", "its name, without most of its template arguments", "kernel"),
        table.words("Grid", "blocks of a launch", "grid"),
        table.words("Block", "threads of a block", "block"),
        table.figures("Launches", "how often it ran", "launch_count"),
        table.figures("Seconds", "time in all, summed over launches", "total_seconds", "seconds"),
        table.figures("Mean (µs)", "mean length of one launch", "mean_seconds", "microseconds"),
        table.figures("Longest (µs)", "the longest of its process", "longest_seconds", "microseconds"),
    ]
    with st.expander("The kernels that took longest in all"):
        table.show(kernels, columns, f"kernels_{attempt}")
