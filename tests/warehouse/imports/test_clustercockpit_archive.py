"""ClusterCockpit's job archive: hand-worked jobs in folders."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warehouse.importer import ImportOptions
from warehouse.imports.clustercockpit_archive import IMPORTER
from warehouse.loading import ImportReport, importers, load_files

Make = Callable[[], Any]
OPTIONS = ImportOptions("c", "UTC")
T0 = 1_790_000_000
META: dict[str, Any] = json.loads(IMPORTER.example)
SERIES = META.pop("data")


def put(folder: Path, meta: dict[str, Any], data: dict[str, Any] | None = None, *, packed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    if data is not None:
        body = json.dumps(data).encode()
        (folder / ("data.json.gz" if packed else "data.json")).write_bytes(gzip.compress(body) if packed else body)
    return folder


def load(client: Any, path: Path) -> ImportReport:
    return load_files(client, IMPORTER, [path], OPTIONS)


def series(metric: str, unit: dict[str, str], values: list[float | None]) -> dict[str, Any]:
    part = {"unit": unit, "timestep": 60, "series": [{"hostname": "gpu1", "id": "GPU-a", "data": values}]}
    return {metric: {"accelerator": part}}


@pytest.mark.parametrize("packed", [False, True])
def test_a_job_has_its_devices_readings_and_means(memory_client: Make, tmp_path: Path, packed: bool) -> None:
    client = memory_client()
    report = load(client, put(tmp_path / "c" / "501" / "1790000000", META, SERIES, packed=packed))
    (job,), (attempt,), (summary,) = (client.table(name) for name in ("job", "attempt", "attempt_summary"))
    assert (job["job_key"], job["user"], job["account"], job["name"]) == ("example/501#0", "alice", "ml", "train")
    assert (attempt["start_at"], attempt["end_at"], attempt["state"]) == (T0, T0 + 180, "completed")
    assert [row["device_uuid"] for row in client.table("allocation")] == [
        "gpu1/00000000:01:00.0",
        "gpu1/00000000:41:00.0",
    ]
    utils = sorted(row["driver_util_ratio"] for row in client.table("device_sample"))
    assert utils == pytest.approx([0, 0, 0.9, 0.94, 0.95])  # the absent value is no reading
    assert summary["driver_util_ratio"] == pytest.approx(0.465)
    assert (report.read, report.kept, client.gpu_seconds) == (1, 1, 360)


@pytest.mark.parametrize(
    ("unit", "bytes_each"), [({"base": "B", "prefix": "M"}, 2**20), ({"base": "B", "prefix": "G"}, 2**30), ({}, 2**20)]
)
def test_units_of_memory_are_binary(memory_client: Make, tmp_path: Path, unit: dict[str, str], bytes_each: int) -> None:
    client = memory_client()
    load(client, put(tmp_path / "j", META, series("acc_mem_used", unit, [3])))
    assert [row["memory_used_bytes"] for row in client.table("device_sample")] == [3 * bytes_each]


def test_what_cannot_be_true_or_read_is_left_out_and_counted(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    data = series("acc_utilization", {"base": "percentage"}, [50, 120]) | series("acc_power", {"base": "J"}, [1])
    report = load(client, put(tmp_path / "j", META, data))
    assert {key[1]: tally.count for key, tally in report.altered.items()} == {
        "impossible value, left out": 1,
        "unit or timestep not understood, left out": 1,
    }


def test_job_table_and_archive_tell_of_the_same_jobs(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    table = importers()["clustercockpit"]
    (tmp_path / "jobs.csv").write_text(table.example, encoding="utf-8")
    load_files(client, table, [tmp_path / "jobs.csv"], OPTIONS)
    jobs = len(client.table("job"))
    load(client, put(tmp_path / "j", META, SERIES))
    assert len(client.table("job")) == jobs
    assert len([row for row in client.table("attempt") if row["job_key"] == "example/501#0"]) == 1


def test_a_broken_job_of_an_archive_costs_only_itself(memory_client: Make, tmp_path: Path) -> None:
    put(tmp_path / "a", META, SERIES)
    put(tmp_path / "b", META | {"jobId": 502, "startTime": "soon"})
    put(tmp_path / "c", META | {"jobId": "x"})
    (put(tmp_path / "d", META | {"jobId": 503}, SERIES) / "data.json").write_bytes(gzip.compress(b"{" * 9000)[:40])
    (put(tmp_path / "e", META) / "meta.json").write_text("[]", encoding="utf-8")
    report = load(memory_client(), tmp_path)
    assert (report.read, report.kept) == (5, 1)
    assert {reason: tally.count for reason, tally in report.rejected.items()} == {
        "no start": 1,
        "bad job id": 1,
        "no job of an archive": 2,
    }


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"jobId": 1}', "[" * 100_000])
def test_what_is_no_job_is_refused(memory_client: Make, tmp_path: Path, text: str) -> None:
    path = tmp_path / "meta.json"
    path.write_text(text, encoding="utf-8")
    report = load(memory_client(), path)
    assert report.exit_code == 1
    assert len(report.errors) + len(report.rejected) == 1


def test_a_folder_without_jobs_is_refused(memory_client: Make, tmp_path: Path) -> None:
    (error,) = load(memory_client(), tmp_path).errors
    assert "is a folder without jobs" in str(error)


@pytest.mark.data
def test_the_series_of_a_real_cpu_job_are_no_readings_of_gpus(
    memory_client: Make, tmp_path: Path, data_root: Path
) -> None:
    folder = put(tmp_path / "j", META | {"numAcc": 0, "resources": []})
    (folder / "data.json.gz").write_bytes(
        (data_root / "clustercockpit_nhr" / "emmy_cpu_job" / "data.json.gz").read_bytes()
    )
    client = memory_client()
    report = load(client, folder)
    assert (report.kept, report.altered, client.table("device_sample")) == (1, {}, [])
