"""Tables of the pages: columns with a unit and an explanation, absent values as ``—``, a cap on the rows sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from dashboards.account import ALLOCATED_PARTS, DOWN, FAILED, HELD_IDLE, UNALLOCATED, UNKNOWN, UNREPORTED, USED
from dashboards.document import Row, number, seconds, text
from dashboards.settings import MAX_TABLE_ROWS
from dashboards.text import plain
from dashboards.units import ABSENT, count
from warehouse.contract.units import BYTES_PER_GIB, SECONDS_PER_HOUR

Read = Callable[[Row], object]
LONGEST_CELL = 300


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, what it means, how to read it from a row, and its kind.

    Kinds: ``text``, ``count``, ``hours`` (read in seconds), ``percent`` (read as a ratio), ``ratio``, ``gib`` (read in
    bytes), ``time`` (read as ISO 8601) and ``link`` (read as an address in the pages). ``wide`` gives long text room.
    """

    heading: str
    meaning: str
    read: Read
    kind: str = "text"
    wide: bool = False


def show(items: Sequence[Row], columns: Sequence[Column], key: str) -> None:
    """Draw a table; a search and a CSV export stand in its corner."""
    cap = MAX_TABLE_ROWS.default
    frame = pd.DataFrame({column.heading: [_cell(column, item) for item in items[:cap]] for column in columns})
    st.dataframe(
        frame,
        hide_index=True,
        placeholder=ABSENT,
        column_config={column.heading: _config(column) for column in columns},
        key=key,
    )
    if len(items) > cap:
        st.caption(f"The first {count(cap)} of {count(len(items))} rows; narrow the period to see the others.")


def words(heading: str, meaning: str, key: str, kind: str = "text", *, wide: bool = False) -> Column:
    """Give a column of text, instants or addresses read by key."""
    return Column(heading, meaning, lambda row: text(row, key), kind, wide)


def figures(heading: str, meaning: str, key: str, kind: str = "count") -> Column:
    """Give a column of numbers read by key."""
    return Column(heading, meaning, lambda row: number(row, key), kind)


def job_address(key: str | None) -> str | None:
    """Give the address of a job's page, relative to any page, so that it holds below a path prefix too."""
    return None if key is None else f"job?{urlencode({'id': key})}"


def family_address(key: str) -> str:
    """Give the address of a family on the page of families, relative to any page."""
    return f"families?{urlencode({'family': key})}"


def node_address(name: str | None) -> str | None:
    """Give the address of a node's page, relative to any page."""
    return None if name is None else f"nodes?{urlencode({'node': name})}"


def account_columns() -> list[Column]:
    """Give the columns of the account of GPU time, those that decide first."""
    apart = [piece for piece in ALLOCATED_PARTS if piece not in (USED, UNKNOWN)]
    pieces = (HELD_IDLE, *reversed(apart), USED, UNKNOWN, FAILED)
    return [
        _hours("Allocated", "held by jobs, busy or not", "allocated"),
        *(_hours(piece.heading, piece.meaning, piece.key) for piece in pieces),
        figures("Used ratio", "used / (used + held idle)", "used_ratio", "percent"),
        figures("Coverage", "share of the allocated time with data", "coverage_ratio", "percent"),
    ]


def capacity_columns() -> list[Column]:
    """Give the columns of the account of capacity: what was there, and what nobody held."""
    return [
        _hours("Capacity", "all devices in the inventory over the whole time", "capacity"),
        _hours(UNALLOCATED.word, UNALLOCATED.meaning, UNALLOCATED.key),
        _hours(DOWN.word, DOWN.meaning, DOWN.key),
        _hours(UNREPORTED.word, UNREPORTED.meaning, UNREPORTED.key),
    ]


def _hours(heading: str, meaning: str, key: str) -> Column:
    return Column(heading, f"GPU-hours: {meaning}", lambda row: seconds(row, key), "hours")


def _cell(column: Column, item: Row) -> object:
    value = column.read(item)
    if value is None:
        return None
    if column.kind == "time":
        return pd.Timestamp(str(value))
    if column.kind in _SCALES and isinstance(value, (int, float)):
        scaled = value * _SCALES[column.kind]
        return 0.0 if column.kind == "seconds" and -_LEAST_SHOWN < scaled < 0 else scaled
    return plain(str(value), LONGEST_CELL) if column.kind == "text" else value


_LEAST_SHOWN = 0.05
"""A negative number nearer to 0 than this would be shown as -0.0."""

_SCALES = {"hours": 1 / SECONDS_PER_HOUR, "percent": 100.0, "gib": 1 / BYTES_PER_GIB, "count": 1.0} | {
    "seconds": 1.0,
    "ratio": 1.0,
    "microseconds": 1e6,
}


_FORMATS = dict.fromkeys(_SCALES, "%.1f") | {"count": "%.0f", "ratio": "%.2f", "percent": "%.1f %%"}


def _config(column: Column) -> ColumnConfig:
    config = st.column_config
    if column.kind == "link":
        return config.LinkColumn(column.heading, help=column.meaning, display_text="open")
    if column.kind == "time":
        return config.DatetimeColumn(column.heading, help=column.meaning, format="YYYY-MM-DD HH:mm", timezone="UTC")
    if column.kind in _FORMATS:
        return config.NumberColumn(column.heading, help=column.meaning, format=_FORMATS[column.kind])
    return config.TextColumn(column.heading, help=column.meaning, width="large" if column.wide else None)
