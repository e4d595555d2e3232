"""Accounting as JSON: the same jobs as the text of the same moment, and every shape of a number or state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warehouse.importer import ImportOptions
from warehouse.imports import sacct, sacct_json
from warehouse.loading import load_files

Make = Callable[[], Any]
OPTIONS = ImportOptions("c", "UTC")
COMPARED = ("job_key", "state", "start_at", "end_at", "submit_at", "node_count", "node_list", "cpu_count")


def job(**words: Any) -> dict[str, Any]:
    return {
        "job_id": 7,
        "name": "train",
        "association": {"cluster": "alex", "user": "alice", "account": "ml"},
        "state": {"current": "COMPLETED"},
        "nodes": "n1",
        "time": {"submission": 100, "start": 110, "end": 200, "limit": 60},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 2}], "requested": []},
        "steps": [],
    } | words


def load(client: Any, folder: Path, *jobs: Any) -> Any:
    path = folder / "sacct.json"
    path.write_text(json.dumps({"meta": {}, "jobs": list(jobs)}))
    return load_files(client, sacct_json.IMPORTER, [path], OPTIONS)


@pytest.mark.data
def test_a_capture_gives_the_same_starts_as_the_text_of_the_same_moment(memory_client: Make, data_root: Path) -> None:
    text, tree = memory_client(), memory_client()
    folder = data_root / "slurm-22.05"
    report = load_files(tree, sacct_json.IMPORTER, [folder / "sacct.json"], OPTIONS)
    load_files(text, sacct.IMPORTER, [folder / "sacct_P_duplicates.txt"], OPTIONS)
    assert (report.rejected, report.errors) == ({}, [])

    def starts(client: Any) -> set[tuple[Any, ...]]:
        return {tuple(row[name] for name in COMPARED) for row in client.table("attempt")}

    assert starts(tree) == starts(text)
    assert tree.gpu_seconds == text.gpu_seconds == 960.0

    def words(client: Any) -> dict[str, tuple[Any, ...]]:
        names = ("name", "user", "account", "array_job_id", "array_task_index", "het_job_id", "het_offset", "partition")
        return {row["job_key"]: tuple(row[name] for name in names) for row in client.table("job")}

    assert words(tree) == words(text)
    steps = [len(client.table("step")) for client in (tree, text)]
    assert steps[0] == steps[1]


@pytest.mark.data
def test_text_and_json_one_after_the_other_are_the_same_jobs_once(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    folder = data_root / "slurm-22.05"
    load_files(client, sacct.IMPORTER, [folder / "sacct_P_duplicates.txt"], OPTIONS)
    before = {row["attempt_key"] for row in client.table("attempt")}
    load_files(client, sacct_json.IMPORTER, [folder / "sacct.json"], OPTIONS)
    assert {row["attempt_key"] for row in client.table("attempt")} == before
    assert client.gpu_seconds == 960.0


@pytest.mark.parametrize(
    "number", [110, {"set": True, "infinite": False, "number": 110}, {"set": True, "number": 110.0}]
)
@pytest.mark.parametrize(
    "state", [{"current": "RUNNING"}, {"current": ["RUNNING", "COMPLETING"]}, ["RUNNING"], "RUNNING"]
)
def test_numbers_and_states_are_read_in_every_shape_that_versions_gave_them(
    memory_client: Make, tmp_path: Path, number: Any, state: Any
) -> None:
    client = memory_client()
    end: Any = {"set": False, "infinite": False, "number": 0}
    load(client, tmp_path, job(state=state, time={"submission": 100, "start": number, "end": end, "limit": number}))
    (attempt,), (one,) = client.table("attempt"), client.table("job")
    assert (attempt["state"], attempt["start_at"], attempt["end_at"]) == ("running", 110.0, None)
    assert (one["user"], one["account"], one["time_limit_seconds"]) == ("alice", "ml", 6600.0)
    assert [row["gpu_count"] for row in client.table("allocation")] == [2.0]


def test_a_failed_job_of_a_version_that_gives_no_exit_code_has_none(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, job(state={"current": "FAILED"}, exit_code={"status": "SUCCESS", "return_code": 0}))
    assert [row["exit_code"] for row in client.table("attempt")] == [None]
    signal = {"signal_id": {"set": True, "infinite": False, "number": 9}, "name": "KILL"}
    code = {"status": ["SIGNALED"], "return_code": {"set": True, "infinite": False, "number": 3}, "signal": signal}
    # Both of slurmrestd's spellings of a signal's number.
    for told in (signal, {"id": {"set": True, "infinite": False, "number": 9}}):
        load(client, tmp_path, job(job_id=8, state=["FAILED"], exit_code=code | {"signal": told}))
    row = next(row for row in client.table("attempt") if row["job_key"] == "alex/8#0" or row["job_key"] == "c/8#0")
    assert (row["exit_code"], row["exit_signal"]) == (3, 9)


def test_the_rest_of_an_array_that_waits_is_no_job_yet(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    waits = job(
        job_id=9, array={"job_id": 9, "task_id": {"set": False, "number": 0}, "task": "3-9%3"}, state=["PENDING"]
    )
    task = job(job_id=10, array={"job_id": 9, "task_id": {"set": True, "infinite": False, "number": 0}, "task": ""})
    report = load(client, tmp_path, waits, task)
    assert report.kept == 2
    assert [(row["array_job_id"], row["array_task_index"]) for row in client.table("job")] == [("9", 0)]


def test_one_bad_job_costs_only_itself(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    report = load(client, tmp_path, job(), "nonsense", job(job_id=8, tres={"allocated": ["nonsense"]}))
    assert (report.kept, {name: tally.count for name, tally in report.rejected.items()}) == (
        1,
        {"not a job": 1, "bad job": 1},
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "expected a document of `sacct --json`"),
        ('{"jobs": [{"job_id": 1, "job_state": "RUNNING"}]}', "is not accounting"),
    ],
)
def test_what_is_no_accounting_is_said(memory_client: Make, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    (error,) = load_files(memory_client(), sacct_json.IMPORTER, [path], OPTIONS).errors
    assert message in error.detail


@pytest.mark.parametrize("steps", [1, "x", True, {"step": 1}, [1], [None]])
def test_steps_of_no_known_shape_cost_the_job_nothing(memory_client: Make, tmp_path: Path, steps: Any) -> None:
    client = memory_client()
    load(client, tmp_path, job(steps=steps))
    assert [row["state"] for row in client.table("attempt")] == ["completed"]
