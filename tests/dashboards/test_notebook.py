"""The data as tables of pandas: the figures of the documents, absent as NaN; the example runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import trueload
from dashboards import notebook
from dashboards.notebook import Connection
from warehouse.client import open_client
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.settings import Settings
from warehouse.importer import ImportOptions
from warehouse.loading import importers, load_files

JOBS = """job_id,name,user,gpu_count,start_at,end_at,driver_util_ratio
1,train-lr0.1,ann,2,2026-11-02T00:00:00Z,2026-11-02T01:00:00Z,0.25
2,train-lr0.2,ann,1,2026-11-02T01:00:00Z,2026-11-02T02:00:00Z,0.5
3,other,bob,1,2026-11-02T00:00:00Z,2026-11-02T01:00:00Z,
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Give a directory with three jobs: two of ann's, measured, and one of bob's, of which nothing is known."""
    path, folder = tmp_path / "jobs.csv", tmp_path / "data"
    path.write_text(JOBS, encoding="utf-8")
    client = open_client(folder, trueload.answers(), Settings(), create=True)
    report = load_files(client, importers()["jobs_csv"], [path], ImportOptions("c", "UTC"))
    client.close()
    assert report.rejected == {}
    return folder


@pytest.fixture
def tl(data: Path) -> Iterator[Connection]:
    """Give the connection of a notebook."""
    with trueload.connect(data) as connection:
        yield connection


def test_waste_by_user_is_a_row_each_in_gpu_seconds(tl: Connection) -> None:
    frame = tl.waste(by="user").set_index("key")
    assert frame.loc["ann", "allocated_gpu_seconds"] == 3 * 3600
    assert frame.loc["ann", "used_gpu_seconds"] == pytest.approx(2 * 3600 * 0.25 + 3600 * 0.5)
    assert frame.attrs["rung"] == "driver_util"
    assert frame.attrs["zone"] == "UTC"


def test_what_is_not_known_is_nan_and_never_zero(tl: Connection) -> None:
    frame = tl.waste(by="user").set_index("key")
    assert frame.loc["bob", "unknown_gpu_seconds"] == 3600
    assert frame["used_ratio"].isna().to_dict() == {"ann": False, "bob": True}
    assert frame["capacity_gpu_seconds"].isna().all()
    assert frame["capacity_gpu_seconds"].dtype == "float64"


def test_without_a_group_waste_is_one_row(tl: Connection) -> None:
    frame = tl.waste()
    assert len(frame) == 1
    assert frame["jobs"].tolist() == [3]
    assert tl.waste(since="2026-11-02T01:00:00Z")["jobs"].tolist() == [1]


def test_a_job_has_its_attempts_and_its_ladder(tl: Connection) -> None:
    job = tl.job("c/1#0")
    assert job.identity["name"] == "train-lr0.1"
    assert job.attempts["start_at"].tolist() == [pd.Timestamp("2026-11-02T00:00:00Z")]
    reading = job.ladder.set_index("rung").loc["driver_util_ratio"]
    assert reading["value"] == pytest.approx(0.25)
    assert reading["coverage_ratio"] == 1
    with pytest.raises(NotFoundError):
        tl.job("nothing")


def test_all_jobs_come_however_many_pages_they_take(tl: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "PAGE_ROWS", 2)
    assert sorted(tl.jobs()["job_key"]) == ["c/1#0", "c/2#0", "c/3#0"]


def test_advice_and_refusals_are_tables(tl: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    item = {"title": "Fuse", "saving_gpu_seconds": {"low": 1, "likely": None, "high": 5}, "subject": {"id": "f"}}
    document = {"recommendations": [item], "refusals": [], "since": "2026-11-02T00:00:00Z"}

    def ask(_question: str, _parameters: Mapping[str, str]) -> dict[str, Any]:
        return document

    monkeypatch.setattr(tl.client, "ask", ask)
    advice = tl.recommend()
    assert advice.recommendations["saving_gpu_seconds_high"].tolist() == [5.0]
    assert advice.recommendations["saving_gpu_seconds_likely"].isna().all()
    assert advice.recommendations["subject_id"].tolist() == ["f"]
    assert advice.refusals.empty
    assert advice.recommendations.attrs == {"since": "2026-11-02T00:00:00Z"}


def test_a_parameter_that_no_question_knows_is_refused(tl: Connection) -> None:
    with pytest.raises(BadUseError, match="unknown parameter 'weak'"):
        tl.waste(weak="2026-W45")  # type: ignore[call-arg]


def test_a_server_elsewhere_wants_a_token_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUELOAD_TOKEN_FILE", raising=False)
    with pytest.raises(BadUseError, match="give token_file, or set TRUELOAD_TOKEN_FILE"):
        trueload.connect("https://127.0.0.1:1")
    with pytest.raises(BadUseError, match="the token cannot be read"):
        trueload.connect("https://127.0.0.1:1", token_file=tmp_path / "none")
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    with pytest.raises(BadUseError, match="holds no token"):
        trueload.connect("https://127.0.0.1:1", token_file=tmp_path / "empty")


def test_the_example_notebook_runs(repository: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUELOAD_DATA", str(data))
    path = repository / "docs" / "notebooks" / "a-week.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 7
    room: dict[str, Any] = {}
    for number, cell in enumerate(code):
        exec(compile(cell, f"{path.name}, cell {number}", "exec"), room)  # noqa: S102 - our own notebook
    assert room["hours"].loc["ann", "allocated_gpu_seconds"] == 3
