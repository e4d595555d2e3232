"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import units
from dashboards.units import ABSENT, NARROW_SPACE


@pytest.mark.parametrize(
    ("gpu_seconds", "shown"),
    [
        (0.0, "0.00 GPU-h"),
        (3600.0, "1.00 GPU-h"),
        (36_000.0, "10.0 GPU-h"),
        (2873.827 * 3600, f"2{NARROW_SPACE}873.8 GPU-h"),
        (None, ABSENT),
    ],
)
def test_gpu_hours_show_what_a_reader_can_use(gpu_seconds: float | None, shown: str) -> None:
    assert units.gpu_hours(gpu_seconds) == shown


@pytest.mark.parametrize(("ratio", "shown"), [(0.0, "0.0"), (0.807, "80.7"), (1.0, "100.0")])
def test_a_ratio_becomes_percent(ratio: float, shown: str) -> None:
    assert units.percent(ratio) == f"{shown}{NARROW_SPACE}%"


@pytest.mark.parametrize(
    "shown",
    [
        units.number(None),
        units.count(None),
        units.gpu_hours(None),
        units.percent(None),
        units.points(None),
        units.gib(None),
        units.money(None, "EUR"),
        units.money(3.0, None),
        units.span(None),
        units.clock(None),
        units.change(None, 1.0),
        units.change(1.0, None),
        units.change(1.0, 0.0),
    ],
)
def test_what_is_absent_is_a_dash_and_never_zero(shown: str) -> None:
    assert shown == ABSENT


def test_a_change_is_relative_to_what_was_before() -> None:
    assert units.change(110.0, 100.0) == f"+10{NARROW_SPACE}%"
    assert units.change(50.0, 100.0) == f"-50{NARROW_SPACE}%"


def test_an_inflation_is_told_in_points() -> None:
    assert units.points(0.64) == "+64.0 points"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59.6, "1 min"), (303, "5 min 3 s"), (7200, "2 h"), (187_200, "2 d 4 h"), (90_061, "1 d 1 h")],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, shown: str) -> None:
    assert units.span(seconds) == shown


def test_bytes_become_gib_and_money_has_its_currency() -> None:
    assert units.gib(80 * 1024**3) == "80.0 GiB"
    assert units.money(1234.4, "EUR") == f"1{NARROW_SPACE}234 EUR"


def test_an_instant_is_told_in_utc_and_says_so() -> None:
    assert units.clock("2026-11-29T15:47:13+01:00") == "2026-11-29 14:47 UTC"


def test_a_bound_says_that_it_is_one() -> None:
    assert units.bounds(0.0, None, 72_000.0) == "between 0.00 and 20.0 GPU-h"
    assert units.bounds(36_000.0, 64_800.0, 108_000.0) == "18.0 GPU-h (10.0 to 30.0)"


@given(st.floats(min_value=0, max_value=1e12))
def test_a_number_survives_the_way_to_the_screen(value: float) -> None:
    shown = float(units.number(value).replace(NARROW_SPACE, ""))
    assert shown == pytest.approx(value, abs=0.0501)
