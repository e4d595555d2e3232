"""The nodes page shows each node's trouble, its account, and what is not known of it."""

from __future__ import annotations

from typing import Any


def test_each_node_has_its_account_and_its_trouble(show: Any, documents: dict[str, Any]) -> None:
    node = documents["fleet"]["by_node"][0]
    name = node["key"]
    documents["fleet"]["events"] = [
        {"happened_at": "2026-10-30T00:00:00Z", "node": name, "kind": "xid", "device_uuid": "GPU-1", "detail": "79"},
        {"happened_at": "2026-10-29T00:00:00Z", "node": name, "kind": "driver_changed", "detail": "1 to 2"},
    ]
    page = show("nodes")
    table, events = (frame.value for frame in page.dataframe)
    assert table["Node"].tolist() == [row["key"] for row in documents["fleet"]["by_node"]]
    assert table["Trouble"].tolist()[0] == 1
    assert table["Page"].tolist()[0] == f"nodes?node={name}"
    assert len(events) == 2


def test_one_node_of_the_address_is_shown_alone(show: Any, documents: dict[str, Any], metrics: Any) -> None:
    other = {"happened_at": "2026-10-30T00:00:00Z", "node": "elsewhere", "kind": "xid"}
    documents["fleet"]["events"] = [other]
    name = documents["fleet"]["by_node"][0]["key"]
    page = show("nodes", {"node": name})
    assert page.selectbox[0].value == name
    assert "Allocated" in metrics(page)
    assert not page.dataframe


def test_a_node_that_is_not_there_is_all_nodes(show: Any) -> None:
    page = show("nodes", {"node": "<b>nowhere</b>"})
    assert page.selectbox[0].value is None
    assert page.dataframe


def test_nodes_without_inventory_are_named(show: Any, documents: dict[str, Any]) -> None:
    documents["fleet"]["nodes_without_inventory"] = ["n<b>7"]
    assert "n\\<b\\>7" in show("nodes").warning[0].value


def test_who_may_not_see_nodes_is_told_why(show: Any, documents: dict[str, Any]) -> None:
    documents["fleet"]["by_node"] = []
    assert "shown to operators" in show("nodes").info[0].value


def test_an_empty_store_says_what_to_do_next(show: Any, documents: dict[str, Any]) -> None:
    documents["fleet"] = {"gpu_seconds": {}}
    assert "no data yet" in show("nodes").info[0].value
