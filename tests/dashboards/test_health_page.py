"""The page of data health says whether the data are complete, of whom nothing is known, and who is silent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any


def test_what_is_lacking_is_said_in_a_sentence(show: Any, written: Any) -> None:
    assert "4.00 GPU-h of capacity were told of by nobody" in written(show("health"))


def test_complete_data_are_said_to_be(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["fleet"]["gpu_seconds"]["unreported"] = 0.0
    assert "The data are complete" in written(show("health"))


def test_low_coverage_is_not_complete(show: Any, written: Any, client: Any) -> None:
    client.documents["waste"]["coverage_ratio"] = 0.5
    client.documents["fleet"]["gpu_seconds"]["capacity"] = None
    said = written(show("health"))
    assert "a share of 50.0\u202f% of the held time has no data" in said
    assert "what was free is not known" in said


def test_accounting_alone_is_said(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["waste"]["coverage_ratio"] = None
    assert "accounting data alone" in written(show("health"))


def test_whose_time_is_unknown_comes_largest_first(show: Any) -> None:
    table = show("health").dataframe[0].value
    assert table["User"].tolist()[0] == "amy"
    assert table["Unknown"].tolist() == sorted(table["Unknown"], reverse=True)


def test_who_is_silent_is_counted(show: Any, documents: dict[str, Any]) -> None:
    now = datetime.now(UTC)
    ages = {"n1": 10, "n2": 4000}
    senders = [
        {"sender": name, "is_off": False, "measured_at": (now - timedelta(seconds=age)).isoformat()}
        for name, age in ages.items()
    ]
    documents["clocks"] = {"senders": senders}
    page = show("health")
    assert page.warning[0].value == "1 of 2 have been silent for more than five minutes."
    table = page.dataframe[-1].value
    assert table["Sender"].tolist() == ["n2", "n1"]


def test_without_agents_the_page_stands(show: Any, written: Any) -> None:
    assert "No server with agents" in written(show("health"))
