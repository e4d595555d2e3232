"""The job page tells one job's story."""

from __future__ import annotations

from typing import Any


def test_an_address_opens_a_job(show: Any, client: Any) -> None:
    test = show("job", query={"id": "demo/3#0"})
    assert client.asked_with("job") == [{"id": "demo/3#0"}]
    assert test.subheader[0].value == "demo/3\\#0"


def test_without_a_job_there_is_a_list_with_links(show: Any) -> None:
    table = show("job").dataframe[0].value
    assert list(table["Page"]) == ["job?id=demo%2F3%230"]


def test_the_rungs_stand_side_by_side_with_source_and_coverage(show: Any, written: Any) -> None:
    text = written(show("job", query={"id": "demo/3#0"})).replace("\\", "")
    assert "**Driver utilization** 83.0\u202f% · from nvml, covers 93.0\u202f%" in text
    assert "**GPU-bound time** 19.0\u202f% · from kernels, covers 93.0\u202f%" in text
    assert "Engine active" not in text


def test_inflation_is_called_out_in_words(show: Any) -> None:
    warning = show("job", query={"id": "demo/3#0"}).warning[0].value.replace("\\", "")
    assert "The driver calls this attempt 83.0\u202f% busy" in warning
    assert "inflated by +64.0 points" in warning


def test_no_inflation_is_no_warning(show: Any, documents: dict[str, Any]) -> None:
    documents["job"]["findings"] = []
    documents["job"]["attempts"][0]["inflation_ratio"] = 0.05
    assert not show("job", query={"id": "demo/3#0"}).warning


def test_accounting_alone_says_that_it_knows_nothing_of_use(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["job"]["attempts"][0].update(ladder={}, inflation_ratio=None)
    assert "only accounting data" in written(show("job", query={"id": "demo/3#0"}))


def test_advice_for_the_job_stands_on_its_page(show: Any, written: Any) -> None:
    test = show("job", query={"id": "demo/3#0"})
    assert "would have saved 18.0 GPU-h (10.0 to 30.0)" in written(test).replace("\\", "")
    assert "#SBATCH --time=08:00:00" in [code.value for code in test.code]


def test_a_job_of_a_family_links_to_it(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["job"]["family_id"] = "f1"
    assert "link to families with [('family', 'f1')]" in written(show("job", query={"id": "demo/3#0"}))


def test_a_name_of_users_is_no_markup(show: Any, written: Any) -> None:
    text = written(show("job", query={"id": "demo/3#0"}))
    assert "\\<script\\>" in text
    assert "\\[x\\]\\(http" in text


def test_an_unknown_job_is_one_line(show: Any, documents: dict[str, Any]) -> None:
    del documents["job"]
    assert show("job", query={"id": "nope"}).warning[0].value == "nothing to say on job"


def test_an_empty_store_says_what_to_do_next(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["jobs"] = {"jobs": []}
    assert "no data yet" in written(show("job"))


def test_what_the_tracer_told_stands_below_the_ladder(show: Any, written: Any) -> None:
    text = written(show("job", query={"id": "demo/3#0"})).replace("\\", "").replace("\u202f", " ")
    assert "**launches per second** 5 210.4 · **mean kernel** 36.4 µs · **steps** 84 000" in text
    assert "from kernels, covers 93.0 %" in text
    assert "**copies** 2.0 % · **kernels or copies** 20.0 %" in text
    assert "**GPU-bound without the tracer's own cost** 20.0 % (19.0 % to 22.0 %)" in text
    assert "For 2 min the tracer saw nothing" in text


def test_the_longest_kernels_and_the_gaps_can_be_opened(show: Any) -> None:
    test = show("job", query={"id": "demo/3#0"})
    assert [one.label for one in test.expander] == [
        "How long the GPU waited between two pieces of work",
        "The kernels that took longest in all",
    ]
    kernels = next(frame.value for frame in test.dataframe if "Kernel" in frame.value)
    assert list(kernels["Mean (µs)"]) == [100.0]


def test_a_job_that_was_never_traced_has_nothing_of_it(show: Any, written: Any, documents: dict[str, Any]) -> None:
    documents["job"]["attempts"][0]["tracer"] = None
    test = show("job", query={"id": "demo/3#0"})
    assert not test.expander
    assert "launches" not in written(test)
