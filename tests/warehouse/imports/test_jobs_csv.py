"""The generic format: what each column does, and rows without an id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.importer import ImportOptions
from warehouse.imports.jobs_csv import COLUMNS, IMPORTER, REQUIRED
from warehouse.loading import ImportReport, load_files

Make = Callable[[], Any]
OPTIONS = ImportOptions("c", "UTC")


def load(
    client: Any, folder: Path, header: str, *rows: str, name: str = "jobs.csv", options: ImportOptions = OPTIONS
) -> ImportReport:
    path = folder / name
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return load_files(client, IMPORTER, [path], options)


def test_the_template_is_read_whole(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    report = load(client, tmp_path, *IMPORTER.example.splitlines())
    assert (report.read, report.kept, report.rejected, report.altered) == (4, 4, {}, {})
    # 4 GPUs for 4 h and 1 GPU for 30 min have ended; the notebook still runs, one job has no GPU.
    assert client.gpu_seconds == 4 * 4 * 3600 + 1800
    assert [row["state"] for row in client.table("attempt")] == ["completed", "failed", "running", "completed"]
    assert client.rows["job"][("c/1002#0",)]["command"] == "python sweep.py --rates 0.1,0.2"


def test_identical_rows_without_id_all_count_and_a_second_import_changes_nothing(
    memory_client: Make, tmp_path: Path
) -> None:
    client = memory_client()
    header, row = ",".join(REQUIRED), "1,1000,1100"
    first = load(client, tmp_path, header, row, row, row)
    assert (first.kept, client.gpu_seconds) == (3, 300)
    again = load(client, tmp_path, header, row, row, row)
    assert (again.unchanged, client.gpu_seconds) == (3, 300)
    more = load(client, tmp_path, header, row, row, row, row)
    assert (more.kept, more.unchanged, client.gpu_seconds) == (1, 3, 400)


@given(order=st.permutations(list(COLUMNS)[:12]))
def test_the_order_of_columns_does_not_matter(
    memory_client: Make, tmp_path_factory: pytest.TempPathFactory, order: list[str]
) -> None:
    values = {**dict.fromkeys(order, "x"), "gpu_count": "2", "start_at": "1000", "end_at": "1100", "job_id": ""}
    client = memory_client()
    folder = tmp_path_factory.mktemp("order")
    load(client, folder, ",".join(order), ",".join(values[name] for name in order))
    plain = sorted(order)
    report = load(client, folder, ",".join(plain), ",".join(values[name] for name in plain))
    assert report.unchanged == 1


def test_one_job_started_twice_is_two_attempts(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(
        client, tmp_path, "job_id,gpu_count,start_at,end_at,state", "7,1,1000,1100,preempted", "7,1,2000,2050,completed"
    )
    assert len(client.table("job")) == 1
    assert [row["attempt_key"] for row in client.table("attempt")] == ["c/7#0:1000", "c/7#0:2000"]
    assert client.gpu_seconds == 150


def test_a_share_of_a_gpu_counts_as_its_share(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, "gpu_count,start_at,end_at,share_ratio", "1,1000,1100,0.25")
    assert client.gpu_seconds == 25


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-07-01T12:00:00", 1782900000.0),
        ("2026-07-01 12:00:00", 1782900000.0),
        ("2026-07-01T12:00:00+02:00", 1782900000.0),
        ("2026-07-01T10:00:00Z", 1782900000.0),
        ("1782900000", 1782900000.0),
        ("1782900000.5", 1782900000.5),
    ],
)
def test_times_are_iso_with_offset_or_in_the_zone_or_epoch_seconds(
    memory_client: Make, tmp_path: Path, text: str, at: float
) -> None:
    client = memory_client()
    options = replace(OPTIONS, zone="Europe/Berlin")
    load(client, tmp_path, ",".join(REQUIRED), f"1,{text},", options=options)
    assert client.table("attempt")[0]["start_at"] == at


@pytest.mark.parametrize("text", ["1782900000000", "20260701", "-1", "2026-13-01T00:00:00", "nan", "1e400"])
def test_what_is_no_time_in_seconds_is_rejected(memory_client: Make, tmp_path: Path, text: str) -> None:
    report = load(memory_client(), tmp_path, ",".join(REQUIRED), f"1,{text},")
    assert list(report.rejected) == ["bad time"]


def test_means_become_a_summary_with_its_coverage(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    header = "job_id,gpu_count,start_at,end_at,driver_util_ratio,gpu_bound_ratio,coverage_ratio"
    load(client, tmp_path, header, "1,1,0,9,0.5,,", "2,1,0,9,,0.25,0.75", "3,1,0,9,,,0.5", "4,1,0,9,85,,")
    found = {row["attempt_key"]: row for row in client.table("attempt_summary")}
    assert list(found) == ["c/1#0:0", "c/2#0:0"], "without any mean there is no summary; 85 is a percentage, no ratio"
    assert (found["c/1#0:0"]["driver_util_ratio"], found["c/1#0:0"]["coverage_assumed"]) == (0.5, True)
    second = found["c/2#0:0"]
    assert (second["gpu_bound_ratio"], second["coverage_ratio"], second["coverage_assumed"]) == (0.25, 0.75, False)


def test_a_percentage_where_a_ratio_belongs_is_left_out_and_counted(memory_client: Make, tmp_path: Path) -> None:
    report = load(memory_client(), tmp_path, "gpu_count,start_at,end_at,driver_util_ratio", "1,1,2,85")
    assert report.kept == 1
    assert report.document()["altered"] == [
        {
            "column": "driver_util_ratio",
            "reason": "impossible value, left out",
            "count": 1,
            "first": {"file": str(tmp_path / "jobs.csv"), "line": 2, "detail": "85; expected 0 to 1"},
        }
    ]


def test_a_quoted_field_may_hold_delimiters_quotes_and_line_breaks(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, tmp_path, "gpu_count;start_at;end_at;name", '1;1000;1100;"a;""b""\nc"', "1;1000;1100;d")
    assert [row["name"] for row in client.table("job")] == ['a;"b"\nc', "d"]


def test_every_column_is_explained_in_the_how_to(repository: Path) -> None:
    page = (repository / "docs" / "import.md").read_text(encoding="utf-8")
    for name, meaning in COLUMNS.items():
        assert f"| `{name}` | {meaning} |" in page
