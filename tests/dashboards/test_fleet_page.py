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
