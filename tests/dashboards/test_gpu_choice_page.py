"""The page of GPU choice shows a family on every GPU; another price changes the order, and no price is no cost."""

from __future__ import annotations

from typing import Any


def names(page: Any) -> list[str]:
    """Give the GPUs of the table in order, slices by their profile."""
    table = page.dataframe[0].value
    return [
        profile if isinstance(profile, str) else name
        for name, profile in zip(table["GPU"], table["Slice"], strict=True)
    ]


def test_the_cheapest_comes_first_and_what_has_no_price_last(show: Any) -> None:
    page = show("gpu_choice")
    assert names(page) == ["L4", "H100 <b>x</b>", "1g.10gb"]
    table = page.dataframe[0].value
    assert table["Cost x"].tolist()[:2] == [0.5, 0.65]
    assert table["Cost x"].isna().tolist() == [False, False, True]
    assert table["Fits"].tolist() == ["yes", "yes", "no"]


def test_another_price_changes_the_order(show: Any) -> None:
    page = show("gpu_choice")
    page.selectbox(key="gpu_moved").select("L4").run()
    page.slider[0].set_value(2.0).run()
    assert names(page)[:2] == ["H100 <b>x</b>", "L4"]


def test_the_family_of_the_address_is_asked_for(show: Any, client: Any, documents: dict[str, Any]) -> None:
    family = documents["families"]["families"][-1]["family_id"]
    show("gpu_choice", {"family": family})
    assert client.asked_with("gpu_options") == [{"id": family}]


def test_what_it_has_now_is_said(show: Any, written: Any) -> None:
    said = written(show("gpu_choice")).replace("\\", "")
    assert "now on NVIDIA A100-SXM4-80GB" in said
    assert "60.0 GPU-h held" in said


def test_what_is_not_estimable_says_why(show: Any, documents: dict[str, Any]) -> None:
    page = show("gpu_choice")
    assert page.dataframe[1].value["Why"].tolist() == ["no data sheet"]


def test_a_family_of_which_nothing_can_be_told_is_explained(show: Any, documents: dict[str, Any]) -> None:
    documents["gpu_options"] = None
    assert "nothing to say on gpu" in show("gpu_choice").info[0].value


def test_without_families_there_is_nothing_to_choose_for(show: Any, documents: dict[str, Any]) -> None:
    documents["families"]["families"] = []
    assert show("gpu_choice").info
