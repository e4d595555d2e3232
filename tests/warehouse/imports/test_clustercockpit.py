"""ClusterCockpit's job table: the published figures of a real one, and small cases for every rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warehouse.importer import ImportOptions
from warehouse.imports.clustercockpit import IMPORTER
from warehouse.loading import ImportReport, load_files

Make = Callable[[], Any]
OPTIONS = ImportOptions("c", "UTC")
HEADER = (
    "job_id,start_time,duration,num_acc,num_nodes,job_state,subcluster,"
    "footprint_acc_utilization_avg,footprint_acc_mem_used_avg"
)
MIB = 1024**2


def load(client: Any, folder: Path, *rows: str, header: str = HEADER) -> ImportReport:
    path = folder / "jobs.csv"
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return load_files(client, IMPORTER, [path], OPTIONS)


@pytest.mark.data
def test_a_real_job_table_gives_its_published_figures(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    report = load_files(client, IMPORTER, [data_root / "clustercockpit_nhr" / "jobs.csv"], OPTIONS)
    assert (report.read, report.kept, report.rejected, report.altered) == (423, 423, {}, {})
    held = client.table("allocation")
    assert len(held) == 182
    assert len(client.table("job")) == 423
    assert client.gpu_seconds / 3600 == pytest.approx(2873.827, abs=0.001)
    busy = {row["attempt_key"]: row["driver_util_ratio"] for row in client.table("attempt_summary")}
    idle = sum(
        row["gpu_count"] * (row["end_at"] - row["start_at"]) * (1 - busy[row["attempt_key"]]) for row in held
    )  # fmt: skip
    assert idle / 3600 == pytest.approx(770.242, abs=0.001)
    assert client.rows["job"][("alex/679694#0",)]["user"] == "user017"
    assert {row["gpu_model"] for row in held} == {"a40", "a100", "a100m80"}


@pytest.mark.data
def test_memory_per_card_fits_the_cards_of_a_real_job_table(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    load_files(client, IMPORTER, [data_root / "clustercockpit_nhr" / "jobs.csv"], OPTIONS)
    used = {row["attempt_key"]: row["gpu_memory_used_bytes"] for row in client.table("attempt_summary")}
    highest = {"a40": 0.0, "a100": 0.0, "a100m80": 0.0}
    for row in client.table("allocation"):
        highest[row["gpu_model"]] = max(highest[row["gpu_model"]], used[row["attempt_key"]] / 1024**3)
    # The cards have 45, 40 and 80 GiB for programs.
    assert 40 < highest["a40"] < 45
    assert 35 < highest["a100"] < 40
    assert 75 < highest["a100m80"] < 80


def test_a_job_becomes_job_attempt_allocation_and_summary(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, "7,1000,100,2,1,completed,a40,25.5,1208.5")
    assert client.gpu_seconds == 200
    (attempt,) = client.table("attempt")
    assert (attempt["attempt_key"], attempt["state"], attempt["end_at"]) == ("c/7#0:1000", "completed", 1100)
    (summary,) = client.table("attempt_summary")
    assert summary["driver_util_ratio"] == 0.255
    assert summary["gpu_memory_used_bytes"] == 604.25 * MIB
    assert (summary["coverage_ratio"], summary["coverage_assumed"]) == (1.0, True)
    assert summary["sm_active_ratio"] is None


def test_memory_is_the_sum_over_the_cards_of_a_node(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, "7,1000,100,24,3,completed,a100,0,4721.0")
    assert client.table("attempt_summary")[0]["gpu_memory_used_bytes"] == 590.125 * MIB


@pytest.mark.parametrize(
    ("memory", "reason"),
    [("40.5", "MiB or GB, left out"), ("300000000", "impossible value, left out"), ("x", "not a number, left out")],
)
def test_memory_that_cannot_be_understood_is_absent_and_counted(
    memory_client: Make, tmp_path: Path, memory: str, reason: str
) -> None:
    client = memory_client()
    report = load(client, tmp_path, f"7,1000,100,1,1,completed,a40,50,{memory}")
    assert list(report.altered) == [("footprint_acc_mem_used_avg", reason)]
    (summary,) = client.table("attempt_summary")
    assert (summary["gpu_memory_used_bytes"], summary["driver_util_ratio"]) == (None, 0.5)


def test_an_impossible_driver_utilization_is_absent_and_the_job_kept(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    report = load(client, tmp_path, "7,1000,100,1,1,completed,a40,101,")
    assert report.kept == 1
    assert list(report.altered) == [("footprint_acc_utilization_avg", "impossible value, left out")]
    assert client.table("attempt_summary") == []


def test_a_cpu_job_is_kept_and_holds_no_gpu(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, "7,1000,100,0,1,completed,main,,")
    assert (len(client.table("job")), client.table("allocation")) == (1, [])


def test_a_running_job_has_no_end(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, "7,1000,100,1,1,running,a40,50,")
    assert client.table("allocation")[0]["end_at"] is None
    load(client, tmp_path, "7,1000,250,1,1,completed,a40,50,")
    assert client.gpu_seconds == 250


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("7,1000,-5,1,1,completed,a40,50,", "negative count"),
        ("7,1000,5,-1,1,completed,a40,50,", "negative count"),
        ("7,0,5,1,1,completed,a40,50,", "no start"),
        ("seven,1000,5,1,1,completed,a40,50,", "bad count"),
        ("7,1000,5,1,1,completed,a40", "too few fields"),
    ],
)
def test_a_bad_row_says_why(memory_client: Make, tmp_path: Path, row: str, reason: str) -> None:
    report = load(memory_client(), tmp_path, row, "8,1000,5,1,1,completed,a40,50,")
    assert (report.kept, list(report.rejected)) == (1, [reason])


def test_a_missing_column_is_named(memory_client: Make, tmp_path: Path) -> None:
    report = load(memory_client(), tmp_path, "7,1000", header="job_id,start_time")
    assert "found no duration, num_acc, job_state" in str(report.errors[0])
