"""Instants, weeks and days as people write them."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.window import day_edges, edge, parse_instant, week_of, week_window, weeks_before, weeks_between, zone_of
from warehouse.contract.errors import BadUseError

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600.0


def at(text: str) -> float:
    """Give an instant in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("week", "hours"), [("2026-W13", 167), ("2026-W14", 168), ("2026-W43", 169), ("2026-W44", 168)]
)
def test_a_week_has_fewer_or_more_hours_where_clocks_change(week: str, hours: int) -> None:
    window = week_window(week, BERLIN)
    assert edge(window.until_at) - edge(window.since_at) == hours * HOUR


def test_a_week_begins_on_monday_at_midnight_of_its_zone() -> None:
    assert week_window("2026-W45", BERLIN).since_at == at("2026-11-01T23:00:00")
    assert week_window("2026-W45", UTC).since_at == at("2026-11-02T00:00:00")


@pytest.mark.parametrize("text", ["2026-W54", "2026-W00", "2025-W53", "W44", "2026-44", "0000-W01", "", "2026-W4"])
def test_what_is_no_week_is_refused(text: str) -> None:
    with pytest.raises(BadUseError, match="2026-W44"):
        week_window(text, UTC)


@given(st.floats(0, 4e9), st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"]))
def test_every_instant_lies_in_its_own_week(moment: float, name: str) -> None:
    zone = zone_of(name)
    window = week_window(week_of(moment, zone), zone)
    assert edge(window.since_at) <= moment < edge(window.until_at)


@given(st.floats(1e9, 2e9), st.floats(1, 1e7))
def test_weeks_cover_a_stretch_without_holes(since: float, long: float) -> None:
    weeks = weeks_between(since, since + long, BERLIN)
    assert [window.until_at for _, window in weeks[:-1]] == [window.since_at for _, window in weeks[1:]]
    assert edge(weeks[0][1].since_at) <= since
    assert edge(weeks[-1][1].until_at) >= since + long


def test_weeks_before_go_over_the_turn_of_the_year() -> None:
    assert [name for name, _ in weeks_before("2027-W01", 3, UTC)] == ["2026-W52", "2026-W53", "2027-W01"]


def test_an_instant_without_an_offset_is_in_the_zone() -> None:
    assert parse_instant("2026-11-02", BERLIN, "since") == at("2026-11-01T23:00:00")
    assert parse_instant("2026-11-02T01:00:00", BERLIN, "since") == at("2026-11-02T00:00:00")
    assert parse_instant("2026-11-02T01:00:00+00:00", BERLIN, "since") == at("2026-11-02T01:00:00")
    assert parse_instant("2026-11-02T01:00:00Z", BERLIN, "since") == at("2026-11-02T01:00:00")


@pytest.mark.parametrize("text", ["tomorrow", "20261102", "2026-13-01", "2026-11-02T25:00", "1", "\N{BULLET}"])
def test_what_is_no_instant_is_refused_by_the_name_of_its_option(text: str) -> None:
    with pytest.raises(BadUseError, match=r"since: .* is no date or time"):
        parse_instant(text, UTC, "since")


@pytest.mark.parametrize("name", ["Mars", "", "../etc/passwd", "Europe/Berlin\0"])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(BadUseError, match="unknown time zone"):
        zone_of(name)


def test_days_are_cut_at_midnight_of_the_zone() -> None:
    edges = day_edges(at("2026-10-24T12:00:00"), at("2026-10-26T12:00:00"), BERLIN)
    lengths = [(later - earlier) / HOUR for earlier, later in itertools.pairwise(edges)]
    assert (edges[0], lengths) == (at("2026-10-23T22:00:00"), [24, 25, 24])
