"""Charts of the pages, as Plotly figures: one colour has one meaning everywhere, every axis has its unit.

A gap in the data is a gap in the chart. Text of users is escaped, since Plotly reads a little HTML in labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

import plotly.graph_objects as go

from dashboards.account import LADDER, Part
from dashboards.document import Row, number, part, seconds, text
from dashboards.text import plain
from dashboards.units import instant, short_span
from warehouse.contract.units import SECONDS_PER_HOUR

_LABEL_LENGTH = 28
_TITLE_LENGTH = 60
"""Fits a phone of 390 pixels, on a line of its own above the bar."""
_BAR_HEIGHT = 26
_FRAME_HEIGHT = 110
_GAP_OF_CADENCES = 2.5
"""A line is broken where two points lie further apart than this many of its usual distances, as samples are."""


def label(value: str | None, longest: int = _LABEL_LENGTH) -> str:
    """Give text of users for a figure."""
    return escape(plain(value, longest), quote=False)


def account_by_key(items: Sequence[Row], parts: Sequence[Part]) -> go.Figure:
    """Give one horizontal bar of parts per row of a waste document, in GPU-hours, the first row on top."""
    places = list(range(len(items)))
    figure = go.Figure()
    for piece in parts:
        hours = [(seconds(item, piece.key) or 0.0) / SECONDS_PER_HOUR for item in items]
        if any(hours):
            figure.add_bar(y=places, x=hours, orientation="h", name=piece.word, marker_color=piece.colour)
    figure.update_layout(barmode="stack", height=_FRAME_HEIGHT + _BAR_HEIGHT * len(items))
    names = [label(text(item, "key") or "(none)") for item in items]
    figure.update_yaxes(tickvals=places, ticktext=names, autorange="reversed", title=None)
    figure.update_xaxes(title="GPU-hours")
    figure.update_traces(hovertemplate="%{fullData.name}: %{x:.1f} GPU-hours<extra></extra>")
    return _framed(figure)


def account_over_time(items: Sequence[Row], parts: Sequence[Part]) -> go.Figure:
    """Give the account over time as stacked bars; a bar's height is the mean number of GPUs in its stretch."""
    starts = [instant(text(item, "start_at")) for item in items]
    ends = [instant(text(item, "end_at")) for item in items]
    longs = [(end - start).total_seconds() if start and end else None for start, end in zip(starts, ends, strict=True)]
    figure = go.Figure()
    for piece in parts:
        means = [_mean_count(item, piece.key, long) for item, long in zip(items, longs, strict=True)]
        if any(means):
            figure.add_bar(
                x=starts,
                y=means,
                name=piece.word,
                marker_color=piece.colour,
                marker_line_width=0,
                width=[None if long is None else long * 1000 for long in longs],
                offset=0,
            )
    figure.update_layout(barmode="stack", height=400, bargap=0)
    figure.update_yaxes(title="GPUs, mean", rangemode="tozero")
    figure.update_xaxes(title="time (UTC)", type="date")
    figure.update_traces(hovertemplate="%{x|%Y-%m-%d %H:%M}: %{y:.1f} GPUs<extra>%{fullData.name}</extra>")
    return _framed(figure)


def savings(items: Sequence[Row], titles: Sequence[str]) -> go.Figure:
    """Give the range of each recommendation, low to high, with a mark at the likely value, in GPU-hours."""
    places = list(range(len(items)))
    figure = go.Figure()
    ranges = [part(item, "saving_gpu_seconds") for item in items]
    lows = [(number(item, "low") or 0.0) / SECONDS_PER_HOUR for item in ranges]
    highs = [(number(item, "high") or 0.0) / SECONDS_PER_HOUR for item in ranges]
    likely = [number(item, "likely") for item in ranges]
    figure.add_bar(
        y=places,
        x=[high - low for low, high in zip(lows, highs, strict=True)],
        base=lows,
        orientation="h",
        name="low to high",
        marker_color="#9CC7E0",
        width=0.35,
        customdata=list(zip(lows, highs, strict=True)),
        hovertemplate="%{customdata[0]:.1f} to %{customdata[1]:.1f} GPU-hours<extra></extra>",
    )
    figure.add_scatter(
        y=[place for place, value in zip(places, likely, strict=True) if value is not None],
        x=[value / SECONDS_PER_HOUR for value in likely if value is not None],
        mode="markers",
        name="likely",
        marker={"symbol": "line-ns", "size": 14, "line": {"width": 4, "color": "#0072B2"}},
        hovertemplate="likely %{x:.1f} GPU-hours<extra></extra>",
    )
    for place, title in zip(places, titles, strict=True):  # above the bars: beside them a phone has no room
        figure.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=place,
            yshift=_BAR_HEIGHT * 0.8,
            text=label(title, _TITLE_LENGTH),
            font_size=11,
            showarrow=False,
        )
    figure.update_layout(height=_FRAME_HEIGHT + 2 * _BAR_HEIGHT * len(items))
    figure.update_xaxes(title="GPU-hours saved by the same work", rangemode="tozero")
    figure.update_yaxes(showticklabels=False, range=[len(items) - 0.5, -0.75])
    return _framed(figure)


def ratios(items: Sequence[tuple[str, tuple[float, float, float]]]) -> go.Figure:
    """Give the range of each ratio, low to high, with a mark at the likely value and a line at 1, the first on top."""
    places = list(range(len(items)))
    figure = go.Figure()
    figure.add_bar(
        y=places,
        x=[high - low for _, (low, _, high) in items],
        base=[low for _, (low, _, _) in items],
        orientation="h",
        name="low to high",
        marker_color="#9CC7E0",
        width=0.45,
        customdata=[(low, high) for _, (low, _, high) in items],
        hovertemplate="%{customdata[0]:.2f} to %{customdata[1]:.2f}<extra></extra>",
    )
    figure.add_scatter(
        y=places,
        x=[likely for _, (_, likely, _) in items],
        mode="markers",
        name="likely",
        marker={"symbol": "line-ns", "size": 12, "line": {"width": 4, "color": "#0072B2"}},
        hovertemplate="likely %{x:.2f}<extra></extra>",
    )
    figure.add_vline(x=1.0, line_width=1, line_dash="dot", line_color="#3F4650")
    figure.update_layout(height=_FRAME_HEIGHT + _BAR_HEIGHT * len(items))
    figure.update_xaxes(title="over the present GPU", rangemode="tozero")
    figure.update_yaxes(tickvals=places, ticktext=[label(name) for name, _ in items], autorange="reversed", title=None)
    return _framed(figure)


def share_by_kind(shares: Sequence[tuple[str, float]]) -> go.Figure:
    """Give one bar of shares of GPU time, in percent."""
    colours = ("#0072B2", "#56B4E9", "#1B9E77", "#8C939C")
    figure = go.Figure()
    for (word, value), colour in zip(shares, colours, strict=False):
        figure.add_bar(
            y=[""],
            x=[value * 100],
            orientation="h",
            name=word,
            marker_color=colour,
            text=f"{value:.0%}",
            textposition="inside",
            insidetextanchor="middle",
            hovertemplate=f"{word}: %{{x:.1f}} %<extra></extra>",
        )
    figure.update_layout(barmode="stack", height=220, bargap=0.4)  # a phone gives each name of the legend a line
    figure.update_xaxes(title="share of GPU-seconds (%)", range=[0, 100])
    return _framed(figure)


def timeline(
    lines: Sequence[tuple[str, str, Sequence[tuple[str, float | None]]]], stretches: Sequence[Row]
) -> go.Figure:
    """Give the life of a job on one time axis: lines in percent, broken where data are missing.

    ``lines`` are (word, colour, points of (instant, value of 0 to 1)). ``stretches`` are shaded: idle with a process
    and idle without one, by their ``kind``.
    """
    figure = go.Figure()
    for word, colour, points in lines:
        times, values = _broken([(instant(at), value) for at, value in points])
        figure.add_scatter(
            x=times,
            y=values,
            name=word,
            mode="lines",
            line={"color": colour, "width": 1.8},
            connectgaps=False,
            hovertemplate="%{x|%Y-%m-%d %H:%M:%S}: %{y:.1f} %<extra>%{fullData.name}</extra>",
        )
    for stretch in stretches:
        figure.add_vrect(
            x0=instant(text(stretch, "start_at")),
            x1=instant(text(stretch, "end_at")),
            fillcolor="#B6420B" if text(stretch, "kind") == "no_process" else "#E08A00",
            opacity=0.18,
            line_width=0,
        )
    figure.update_layout(height=360, hovermode="x unified")
    figure.update_yaxes(title="share of time (%)", range=[0, 102])
    figure.update_xaxes(title="time (UTC)", type="date")
    return _framed(figure)


def ladder(readings: Row) -> go.Figure:
    """Give the rungs that are known side by side, in percent."""
    known = [(word, colour, number(part(readings, key), "value")) for key, (word, colour) in LADDER.items()]
    shown = [(word, colour, value * 100) for word, colour, value in known if value is not None]
    figure = go.Figure()
    figure.add_bar(
        y=[word for word, _, _ in shown],
        x=[value for _, _, value in shown],
        orientation="h",
        marker_color=[colour for _, colour, _ in shown],
        text=[f"{value:.1f} %" for _, _, value in shown],
        textposition="auto",
        hovertemplate="%{y}: %{x:.1f} %<extra></extra>",
    )
    figure.update_layout(height=_FRAME_HEIGHT + (_BAR_HEIGHT + 6) * len(shown), showlegend=False)
    figure.update_xaxes(title="share of time (%)", range=[0, 100])
    figure.update_yaxes(autorange="reversed")
    return _framed(figure)


def gap_lengths(gaps: Sequence[Row]) -> go.Figure:
    """Give how many gaps of each length there were; each bar's width is a factor of two."""
    shortest = [number(gap, "shortest_seconds") or 1e-9 for gap in gaps]
    counts = [number(gap, "count") for gap in gaps]
    names = [f"{short_span(least)} to {short_span(2 * least)}" for least in shortest]
    figure = go.Figure()
    figure.add_bar(x=shortest, y=counts, width=shortest, offset=0, marker_color=LADDER["gpu_bound_ratio"][1])
    figure.update_traces(customdata=names, hovertemplate="%{customdata}: %{y:,} gaps<extra></extra>")
    figure.update_layout(height=300, showlegend=False)
    figure.update_xaxes(title="length of a gap (s)", type="log", exponentformat="SI")
    figure.update_yaxes(title="gaps", type="log")
    return _framed(figure)


def _framed(figure: go.Figure) -> go.Figure:
    figure.update_layout(
        margin={"l": 8, "r": 8, "t": 40, "b": 8},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "traceorder": "normal"},
    )
    figure.update_yaxes(automargin=True)
    figure.update_xaxes(automargin=True)
    return figure


def _mean_count(item: Row, key: str, long: float | None) -> float | None:
    value = seconds(item, key)
    return None if value is None or not long else value / long


def _broken(points: Sequence[tuple[object, float | None]]) -> tuple[list[object], list[float | None]]:
    """Give times and percentages with a None wherever two points lie too far apart to be joined."""
    known = [(at, value) for at, value in points if at is not None]
    apart = sorted((later[0] - earlier[0]).total_seconds() for earlier, later in pairwise(known))  # type: ignore[operator]
    usual = apart[len(apart) // 2] if apart else 0.0
    times: list[object] = []
    values: list[float | None] = []
    for index, (at, value) in enumerate(known):
        if index and (at - known[index - 1][0]).total_seconds() > _GAP_OF_CADENCES * usual:  # type: ignore[operator]
            times.append(known[index - 1][0])
            values.append(None)
        times.append(at)
        values.append(None if value is None else value * 100)
    return times, values
