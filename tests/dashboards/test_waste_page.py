"""The waste page ranks who holds GPUs without using them."""

from __future__ import annotations

from typing import Any

HOSTILE = '<script>alert("x")</script> **bold** [x](http://evil.example) $x$ :smile: & <b>'


def test_the_metrics_are_the_documents_figures_in_gpu_hours(show: Any, metrics: Any) -> None:
    shown = metrics(show("waste"))
    assert shown["Allocated"] == "560.0"
    assert shown["Used"] == "440.0"
    assert shown["Held idle"] == "110.0"
    assert shown["Unknown"] == "10.0"
    assert shown["No process"] == "25.0"
    assert shown["Used ratio"] == "80.0\u202f%"


def test_the_table_keeps_the_documents_order_and_the_users_own_words(show: Any) -> None:
    table = show("waste").dataframe[0].value
    assert list(table["User"]) == ["amy", "ben", HOSTILE]
    assert list(table["Held idle"]) == [60.0, 30.0, 20.0]


def test_what_is_null_is_a_dash_and_never_zero(show: Any, metrics: Any, documents: dict[str, Any]) -> None:
    for account in (documents["waste"], *documents["waste"]["rows"]):
        seconds = account["gpu_seconds"]
        seconds.update(used=None, held_idle=None, no_process=None, with_process=None, gaps=None)
        seconds["unknown"] = seconds["allocated"]
        account.update(used_ratio=None, coverage_ratio=0.0)
    test = show("waste")
    shown = metrics(test)
    assert [shown[label] for label in ("Used", "Held idle", "No process", "Used ratio")] == ["—"] * 4
    assert test.dataframe[0].value["Used"].isna().all()


def test_the_grouping_and_the_period_are_asked_for(show: Any, client: Any) -> None:
    show("waste", query={"by": "gpu_model"}, period={"week": "2026-W44"})
    assert client.asked_with("waste") == [{"by": "gpu_model", "week": "2026-W44"}]


def test_by_job_each_row_leads_to_the_page_of_its_job(show: Any, documents: dict[str, Any]) -> None:
    documents["waste"]["rows"][0]["key"] = "demo/3#0"
    table = show("waste", query={"by": "job"}).dataframe[0].value
    assert table["Page"][0] == "job?id=demo%2F3%230"


def test_a_row_opens_into_its_jobs(show: Any, client: Any) -> None:
    test = show("waste")
    test.selectbox[0].select("amy").run(timeout=60)
    assert client.asked_with("jobs") == [{"limit": "10000"}]
    assert list(test.dataframe[1].value["Job"]) == ["demo/3#0"]
    test.selectbox[0].select("ben").run(timeout=60)
    assert len(test.dataframe) == 1


def test_an_empty_store_says_what_to_do_next(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["waste"].update(gpu_seconds={"allocated": 0.0, "unknown": 0.0, "failed": 0.0}, rows=[])
    test = show("waste")
    assert "no data yet" in written(test)
    assert "trueload import" in test.code[0].value
    assert not test.metric


def test_an_empty_period_says_so(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["waste"].update(gpu_seconds={"allocated": 0.0, "unknown": 0.0, "failed": 0.0}, rows=[])
    assert "Nothing in this period" in written(show("waste", period={"week": "2026-W01"}))
