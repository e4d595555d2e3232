"""Small charts as inline SVG: no library, no script, no font file, crisp on screen and paper.

Every chart carries its words in ``aria-label`` and ``title``; all text is escaped. Widths are in user units and scale
with the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

FONT = "font-family='DejaVu Sans,Verdana,Arial,sans-serif'"
INK = "#1f2933"
FAINT = "#8c939c"
RULE = "#e3e7eb"
_ROOM_FOR_LABEL = 34.0
"""A share of a bar narrower than this, in user units, has no room for its percentage."""


@dataclass(frozen=True, slots=True)
class Share:
    """One coloured part of a bar: ``value`` in any unit that all parts of the bar have in common."""

    word: str
    value: float
    colour: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a trend; None in ``values`` is a gap and is drawn as one."""

    word: str
    values: Sequence[float | None]
    colour: str


@dataclass(frozen=True, slots=True)
class Range:
    """An estimate: the bar spans ``low`` to ``high``; ``likely`` is a mark, absent for a mere bound."""

    low: float
    likely: float | None
    high: float


def stacked_bar(shares: Sequence[Share], label: str, width: float = 640.0, height: float = 30.0) -> str:
    """Give one bar of parts, each labelled with its percentage where there is room."""
    whole = sum(share.value for share in shares)
    if whole <= 0:
        return ""
    parts: list[str] = []
    left = 0.0
    for share in shares:
        long = share.value / whole * width
        if long <= 0:
            continue
        said = f"{share.word}: {share.value / whole:.1%}"
        parts.append(
            f"<rect x='{left:.1f}' y='0' width='{long:.1f}' height='{height:g}' fill='{share.colour}'>"
            f"<title>{escape(said)}</title></rect>"
        )
        if long >= _ROOM_FOR_LABEL:
            parts.append(_text(left + long / 2, height / 2 + 4, f"{share.value / whole:.0%}", _on(share.colour), 12))
        left += long
    return _svg(width, height, label, parts)


def small_bar(shares: Sequence[Share], ceiling: float, label: str, width: float = 90.0, height: float = 10.0) -> str:
    """Give a bar of parts without words, on a scale that ends at ``ceiling``: for the lines of a table."""
    if ceiling <= 0:
        return ""
    parts: list[str] = []
    left = 0.0
    for share in shares:
        long = share.value / ceiling * width
        parts.append(f"<rect x='{left:.1f}' width='{long:.1f}' height='{height:g}' fill='{share.colour}'/>")
        left += long
    return _svg(width, height, label, parts, fluid=False)


def trend(lines: Sequence[Line], ticks: Sequence[str], label: str, *, highest: float | None = None, unit: str) -> str:
    """Give lines over common ticks (one per value), on an axis from 0 to ``highest`` (default: a round number)."""
    width, height, left, right, top, bottom = 640.0, 170.0, 56.0, 12.0, 10.0, 24.0
    values = [value for line in lines for value in line.values if value is not None]
    if not values or not ticks:
        return ""
    ceiling = highest if highest is not None else _round_up(max(values))
    steps = max(len(ticks) - 1, 1)

    def x_of(index: int) -> float:
        return left + (width - left - right) * index / steps

    def y_of(value: float) -> float:
        return top + (height - top - bottom) * (1 - value / ceiling)

    parts = [_gridline(left, width - right, y_of(ceiling * part), f"{ceiling * part:g}{unit}") for part in (0, 0.5, 1)]
    parts += [_text(x_of(index), height - 6, tick, FAINT, 11) for index, tick in _thinned(ticks)]
    for line in lines:
        for run in _runs(line.values):
            path = " ".join(f"{x_of(index):.1f},{y_of(value):.1f}" for index, value in run)
            parts.append(f"<polyline points='{path}' fill='none' stroke='{line.colour}' stroke-width='2.2'/>")
            parts += [_dot(x_of(index), y_of(value), line.colour) for index, value in (run[0], run[-1])]
    return _svg(width, height, label, parts)


def sparkline(
    values: Sequence[float | None], colour: str, label: str, width: float = 90.0, height: float = 20.0
) -> str:
    """Give a line without axes, from 0 to the largest value."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    ceiling = max(known) or 1.0
    step = (width - 4) / max(len(values) - 1, 1)
    parts: list[str] = []
    for run in _runs(values):
        spots = [(2 + index * step, height - 2 - value / ceiling * (height - 4)) for index, value in run]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.6'/>")
        parts.append(_dot(*spots[-1], colour))
    return _svg(width, height, label, parts, fluid=False)


def range_bar(item: Range, ceiling: float, colour: str, label: str, width: float = 150.0, height: float = 14.0) -> str:
    """Give an estimate on an axis from 0 to ``ceiling``: a band from low to high, a mark at the likely value."""
    if ceiling <= 0:
        return ""
    scale = (width - 4) / ceiling
    low, high = 2 + item.low * scale, 2 + item.high * scale
    pale = f"fill='{colour}' fill-opacity='0.35'"
    parts = [
        f"<line x1='2' x2='{width - 2:g}' y1='{height / 2:g}' y2='{height / 2:g}' stroke='{RULE}' stroke-width='2'/>",
        f"<rect x='{low:.1f}' y='{height / 2 - 4:g}' width='{max(high - low, 1.0):.1f}' height='8' rx='2' {pale}/>",
    ]
    if item.likely is not None:
        at = 2 + item.likely * scale
        parts.append(f"<rect x='{at - 1.5:.1f}' y='0' width='3' height='{height:g}' fill='{colour}'/>")
    return _svg(width, height, label, parts, fluid=False)


def _svg(width: float, height: float, label: str, parts: Sequence[str], *, fluid: bool = True) -> str:
    said = escape(label, quote=True)
    size = "width='100%'" if fluid else f"width='{width:g}' height='{height:g}'"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' {size} role='img' "
        f'aria-label="{said}"><title>{said}</title>{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, words: str, colour: str, size: int, anchor: str = "middle") -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' fill='{colour}' text-anchor='{anchor}'>"
        f"{escape(words)}</text>"
    )


def _gridline(left: float, right: float, y: float, words: str) -> str:
    line = f"<line x1='{left:g}' x2='{right:g}' y1='{y:.1f}' y2='{y:.1f}' stroke='{RULE}'/>"
    return line + _text(left - 6, y + 4, words, FAINT, 11, "end")


def _dot(x: float, y: float, colour: str) -> str:
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='2.4' fill='{colour}'/>"


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Give the stretches of known values, each with its places."""
    runs: list[list[tuple[int, float]]] = [[]]
    for index, value in enumerate(values):
        if value is not None:
            runs[-1].append((index, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _round_up(value: float) -> float:
    """Give the next of 1, 2, 4, 6, 8 x 10^n from a value on; halves of these are round, too."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 4, 6, 8, 10) if step * size >= value)


def _thinned(ticks: Sequence[str]) -> list[tuple[int, str]]:
    """Give at most eight of the ticks with their places, the last one among them."""
    every = -(-len(ticks) // 8)
    last = len(ticks) - 1
    return [(index, tick) for index, tick in enumerate(ticks) if (last - index) % every == 0]


def _on(colour: str) -> str:
    """Give the ink that can be read on a colour: dark on light, white on dark (luminance of WCAG 2, threshold 0.4)."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return INK if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.3 else "#ffffff"  # noqa: PLR2004
