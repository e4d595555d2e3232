"""The fleet page shows what there is, what is allocated, and how much of that is used."""

from __future__ import annotations

from typing import Any

import pytest


def test_the_metrics_are_the_account_of_the_capacity(show: Any, metrics: Any) -> None:
    shown = metrics(show("fleet"))
    assert shown["Capacity"] == "680.0"
    assert (shown["Unallocated"], shown["Down"], shown["Unreported"]) == ("100.0", "16.0", "4.00")


def test_the_page_says_what_its_numbers_rest_on(show: Any, written: Any) -> None:
    text = written(show("fleet"))
    assert "driver utilization" in text
    assert "98\\.2" in text


def test_there_is_a_table_by_model_by_node_and_of_events(show: Any) -> None:
    tables = [frame.value for frame in show("fleet").dataframe]
    assert [next(iter(table.columns)) for table in tables] == ["GPU model", "Node", "When"]
    assert list(tables[2]["Detail"]) == ["Xid 79"]


RIGHT = {"sender": "n1", "is_off": False, "ahead_low_seconds": -0.01, "ahead_high_seconds": 0.02}


def test_clocks_that_are_right_are_not_told(show: Any, documents: dict[str, Any]) -> None:
    documents["clocks"] = {"limit_seconds": 2.0, "off": 0, "senders": [RIGHT]}
    page = show("fleet")
    assert not page.warning
    assert len(page.dataframe) == 3


def test_clocks_that_are_off_are_told(show: Any, documents: dict[str, Any]) -> None:
    wrong = {"sender": "n2", "is_off": True, "ahead_low_seconds": 29.9, "ahead_high_seconds": None}
    documents["clocks"] = {"limit_seconds": 2.0, "off": 1, "senders": [wrong, RIGHT]}
    page = show("fleet")
    assert page.warning[0].value.startswith("The clocks of 1 nodes are off by more than 2 s")
    assert list(page.dataframe[0].value["Node"]) == ["n2"]
    assert list(page.dataframe[0].value["Ahead at least (s)"]) == [29.9]


@pytest.mark.parametrize("key", ["series", "by_model", "by_node", "events"])
def test_the_page_stands_without_a_part_of_the_document(show: Any, documents: dict[str, Any], key: str) -> None:
    del documents["fleet"][key]
    assert show("fleet").metric


def test_capacity_that_nobody_reports_is_a_dash(show: Any, metrics: Any, documents: dict[str, Any]) -> None:
    documents["fleet"]["gpu_seconds"].update(capacity=None, unallocated=None, down=None, unreported=None)
    shown = metrics(show("fleet"))
    assert [shown[label] for label in ("Capacity", "Unallocated", "Down")] == ["—"] * 3


def test_an_empty_store_says_what_to_do_next(show: Any, documents: dict[str, Any]) -> None:
    documents["fleet"] = {"gpu_seconds": {}}
    assert "trueload agent run" in show("fleet").code[0].value
