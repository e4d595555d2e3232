"""The archive shows the report of a week as it was written, and gives it in every format."""

from __future__ import annotations

from typing import Any


def test_the_report_of_the_last_week_is_shown(show: Any, written: Any, client: Any) -> None:
    page = show("reports")
    assert client.asked_with("weekly") == [{}]
    said = written(page)
    assert "GPU time in week 2026-W44" in said
    assert "\\<script\\>" in said
    assert "<script>" not in said


def test_a_week_of_the_address_is_asked_for(show: Any, client: Any) -> None:
    page = show("reports", {"report": "2026-W44"})
    assert client.asked_with("weekly") == [{"week": "2026-W44"}]
    assert page.selectbox[0].value == "2026-W44"


def test_the_period_beside_the_page_does_not_narrow_a_report(show: Any, client: Any) -> None:
    show("reports", period={"since": "2026-10-27", "rung": "engine_active"})
    assert client.asked_with("weekly") == [{}]
