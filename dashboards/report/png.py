"""The two charts of the report as PNG, for mail programs that drop inline SVG (Gmail and Outlook do).

Drawn with matplotlib's Agg, twice as large as shown so that they stay sharp on dense screens. The same numbers stand in
the tables beside them, and ``alt`` says them, for who sees no pictures.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dashboards.report.svg import Line, Share

DPI = 192
WIDTH_INCHES = 7.6
BAR_INCHES, TREND_INCHES = 0.32, 1.9
GREY, TEXT = "#d5dae0", "#3f4650"


def stacked_bar(shares: Sequence[Share]) -> bytes:
    """Draw one bar of parts, each as wide as its share of the whole."""
    figure = Figure(figsize=(WIDTH_INCHES, BAR_INCHES), dpi=DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    left = 0.0
    for share in shares:
        axes.barh(0, share.value, left=left, color=share.colour, edgecolor="white", linewidth=0.6)
        left += share.value
    axes.set_xlim(0, left or 1.0)
    axes.axis("off")
    return _png(figure)


def trend(lines: Sequence[Line], ticks: Sequence[str]) -> bytes:
    """Draw lines over weeks; a week without data is a gap."""
    figure = Figure(figsize=(WIDTH_INCHES, TREND_INCHES), dpi=DPI)
    axes = figure.add_axes((0.07, 0.16, 0.91, 0.78))
    places = range(len(ticks))
    for line in lines:
        values = [float("nan") if value is None else value for value in line.values]
        axes.plot(places, values, color=line.colour, linewidth=1.6, marker="o", markersize=3.2)
    axes.set_ylim(bottom=0)
    axes.set_xticks(list(places), ticks)
    axes.tick_params(labelsize=8, colors=TEXT, length=0)
    axes.grid(axis="y", color=GREY, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    FigureCanvasAgg(figure)
    sink = io.BytesIO()
    figure.savefig(sink, format="png", metadata={"Software": None})  # the same bytes for the same week
    return sink.getvalue()
