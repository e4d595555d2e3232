"""The part of the weekly report that sets the driver's word beside what kernels truly did."""

from __future__ import annotations

from markupsafe import Markup

from dashboards.document import Row, number, rows, text, texts
from dashboards.report.digest import Line, Section
from dashboards.text import plain
from dashboards.units import ABSENT, count, gpu_hours, percent, points, short_span
from dashboards.units import number as spoken

LONGEST_NAME = 60
HEADINGS = (
    *("job", "user", "known GPU-h", "driver utilization", "GPU-bound", "inflation"),
    *("launches per second", "mean kernel", "source", "coverage"),
)


def traced(week: Row, limit: int) -> Section | None:
    """Give the table of the jobs whose GPU-bound time is known; None where there are none."""
    lines = rows(week, "rows")
    if not lines:
        return None
    return Section(
        title="What kernels truly did",
        headings=HEADINGS,
        lines=[_all(week), *(_line(line) for line in lines[:limit])],
        left_out=max(0, len(lines) - limit),
        note=_note(week),
    )


def _note(week: Row) -> str:
    gaps, unnamed = _median_gap(rows(week, "gap_lengths")), number(week, "rows_left_out")
    jobs = number(week, "jobs")
    known = f"{count(jobs)} {'job' if jobs == 1 else 'jobs'}, {_covered(week)}"
    return (
        f"GPU-bound time is known of {known} of the allocated time; the others need not be like them. Driver "
        f"utilization counts any time in which something ran; inflation is the difference."
        + (f" Half of all gaps between two pieces of work were shorter than {gaps}." if gaps else "")
        + (f" The JSON leaves out {count(unnamed)} of them." if unnamed else "")
    )


def _median_gap(gaps: list[Row]) -> str | None:
    """Give the upper edge of the length within which the middle gap lies."""
    whole, seen = sum(number(gap, "count") or 0.0 for gap in gaps), 0.0
    for gap in gaps:
        seen += number(gap, "count") or 0.0
        if whole and seen >= whole / 2:
            return short_span(number(gap, "longest_seconds"))
    return None


def _all(week: Row) -> Line:
    known, compared = number(week, "known_gpu_seconds"), number(week, "compared_gpu_seconds")
    some = known is not None and compared is not None and compared < known * (1 - 1e-6)
    # Means over different jobs could not be held against each other.
    name = f"all of them (ratios: {gpu_hours(compared)})" if some else "all of them"
    return Line(name, ["", *_figures(week), ", ".join(texts(week, "sources")), _covered(week)], Markup())


def _line(line: Row) -> Line:
    name = plain(text(line, "name") or text(line, "job_key") or ABSENT, LONGEST_NAME)
    user = plain(text(line, "user") or ABSENT, LONGEST_NAME)
    return Line(name, [user, *_figures(line), text(line, "source") or ABSENT, _covered(line)], Markup())


def _figures(row: Row) -> list[str]:
    return [
        gpu_hours(number(row, "known_gpu_seconds"), unit=False),
        *(percent(number(row, name)) for name in ("driver_util_ratio", "gpu_bound_ratio")),
        points(number(row, "inflation_ratio")),
        spoken(number(row, "launches_per_second")),
        short_span(number(row, "mean_kernel_seconds")) or ABSENT,
    ]


def _covered(row: Row) -> str:
    return percent(number(row, "coverage_ratio"))
