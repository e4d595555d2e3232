"""The families page shows work that is repeated."""

from __future__ import annotations

from typing import Any


def test_families_and_loners_are_counted(show: Any, metrics: Any) -> None:
    assert metrics(show("families")) == {"Families": "1", "Jobs in no family": "1"}


def test_a_family_tells_what_varies_and_why_it_is_one(show: Any) -> None:
    table = show("families").dataframe[0].value
    assert list(table["Varies"]) == ["--lr"]
    assert list(table["Reason"]) == ["same command, one argument differs"]
    assert list(table["Jobs"]) == [2.0]


def test_an_address_opens_one_family_with_links_to_its_members(show: Any) -> None:
    table = show("families", query={"family": "f1"}).dataframe[1].value
    assert list(table["Page"]) == ["job?id=demo%2F1%230", "job?id=demo%2F2%230"]


def test_an_unknown_family_in_the_address_opens_none(show: Any) -> None:
    assert len(show("families", query={"family": "gone"}).dataframe) == 1


def test_a_label_of_users_is_no_markup(show: Any, written: Any) -> None:
    text = written(show("families", query={"family": "f1"}))
    assert "<script>" not in text.replace("\\<", "")
    assert "\\*\\*bold\\*\\*" in text


def test_without_repeats_the_page_says_so(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["families"]["families"] = []
    assert "No work was repeated" in written(show("families"))


def test_an_empty_store_says_what_to_do_next(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["families"] = {"families": [], "ungrouped": [], "share_of_gpu_seconds": {}}
    assert "no data yet" in written(show("families"))
