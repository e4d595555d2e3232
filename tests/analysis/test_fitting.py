"""A table in a narrow terminal: what stays is whole, what goes is named."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from analysis.fitting import Fitting

HEADINGS = ("user", "jobs", "allocated", "held idle", "with process", "gaps")
TABLE = Fitting(
    "GPU-hours",
    HEADINGS,
    [("alexandria", "24", "12,345.6", "1,234.5", "1,000.0", "234.5")],
    spared=("gaps", "with process", "failed"),
    total=("all", "24", "12,345.6", "1,234.5", "1,000.0", "234.5"),
)


def drawn(width: int, table: Fitting = TABLE) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


def test_a_wide_terminal_gets_every_column_on_one_line() -> None:
    wide = drawn(120)
    assert all(heading in wide for heading in HEADINGS)
    assert "Left out" not in wide


def test_headings_break_before_anything_is_left_out() -> None:
    narrow = drawn(56)
    assert "held idle" not in narrow
    assert "idle" in narrow
    assert "234.5" in narrow
    assert "Left out" not in narrow


@pytest.mark.parametrize(("width", "named"), [(50, "gaps"), (44, "gaps, with process")])
def test_what_matters_least_goes_first_and_is_named(width: int, named: str) -> None:
    assert f"Left out for want of room: {named};" in " ".join(drawn(width).split())


@pytest.mark.parametrize("width", range(40, 130))
def test_what_stays_is_whole_at_any_width(width: int) -> None:
    shown = drawn(width)
    assert "…" not in shown
    assert all(word in shown for word in ("alexandria", "24", "12,345.6", "1,234.5"))
    assert max(map(len, shown.splitlines())) <= width


def test_an_instant_breaks_behind_its_date() -> None:
    table = Fitting("", ("attempt", "start", "used"), [("c/1#0:1", "2026-11-02T00:00:00Z", "1.0")], (), words=2)
    lines = [line.split() for line in drawn(28, table).splitlines()]
    assert ["c/1#0:1", "2026-11-02T", "1.0"] in lines
    assert ["00:00:00Z"] in lines
