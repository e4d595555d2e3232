"""LLview's reports and tables: hand-worked ones, and those of a computing centre."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warehouse.importer import ImportOptions
from warehouse.imports.llview import IMPORTER
from warehouse.loading import ImportReport, load_files

Make = Callable[[], Any]
OPTIONS = ImportOptions("c", "UTC")
T0 = 1_790_000_000
REPORT: dict[str, Any] = {
    "job": {
        "jobid": "501",
        "owner": "alice",
        "account": "ml",
        "queue": "gpu",
        "name": "train",
        "numgpus": 2,
        "numnodes": 1,
        "nodelist": "gpu1",
        "wallh": 2,
        "queuedate": "2026-09-21 11:00:00",
        "starttime": "2026-09-21 12:00:00",
        "runtime": 1.0,
    },
    "gpu": {
        "gpu_usage_avg": 46.25,
        "gpu_memu_avg": 2**30,
        "gpu_memu_max": 2**31,
        "gpu_pu_avg": 150_000,
        "gpulist": "gpu1_00 gpu1_01",
    },
    "rc": {"stepspec": f"(job::name=a::rc=0::beg={T0 - 20}::end={T0 + 180}::st=COMPLETED)(0::name=x::st=FAILED)"},
}
TABLE = f"""\
jobid  ts      nodeid   gpu_usage gpu_memu gpu_pu
501   {T0}     gpu1_00     90.000   12.000 280.000
501   {T0}     gpu1_01      0.000    0.500  55.000
501   {T0 + 60}  gpu1_00     95.000   12.000 285.000
501   {T0 + 60}  gpu1_01      0.000    0.500  55.000
"""


def load(client: Any, path: Path) -> ImportReport:
    return load_files(client, IMPORTER, [path], OPTIONS)


def write(folder: Path, name: str, content: str | dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_report_is_a_job_with_its_devices_and_means(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    report = load(client, write(tmp_path, "jobreport_501.json", REPORT))
    (job,), (attempt,), (summary,) = (client.table(name) for name in ("job", "attempt", "attempt_summary"))
    assert (job["job_key"], job["user"], job["account"], job["time_limit_seconds"]) == ("c/501#0", "alice", "ml", 7200)
    assert (attempt["start_at"], attempt["end_at"], attempt["state"]) == (T0 - 20, T0 + 180, "completed")
    assert [row["device_uuid"] for row in client.table("allocation")] == ["gpu1/gpu0", "gpu1/gpu1"]
    assert (summary["driver_util_ratio"], summary["power_watts"]) == (pytest.approx(0.4625), 150.0)
    assert (summary["gpu_memory_used_bytes"], summary["gpu_memory_peak_bytes"]) == (2**30, 2**31)
    assert (report.read, report.kept, client.gpu_seconds) == (1, 1, 400)


def test_a_report_without_steps_takes_its_own_times_in_the_zone(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    path = write(tmp_path, "r.json", REPORT | {"rc": {}})
    load_files(client, IMPORTER, [path], ImportOptions("c", "Europe/Berlin"))
    (attempt,) = client.table("attempt")
    assert (attempt["start_at"], attempt["end_at"]) == (1_789_984_800, 1_789_984_800 + 3600)


def test_devices_that_are_not_all_named_are_a_number(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, write(tmp_path, "r.json", REPORT | {"gpu": {"gpulist": "gpu1_00"}}))
    (held,) = client.table("allocation")
    assert (held["device_uuid"], held["gpu_count"]) == (None, 2.0)
    assert client.table("attempt_summary") == []


def test_a_folder_gives_the_rows_of_its_tables_to_the_jobs_of_its_reports(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    write(tmp_path, "jobreport_501.json", REPORT)
    (tmp_path / "GPU_501_node.dat.gz").write_bytes(gzip.compress(TABLE.encode()))
    write(tmp_path, "LoadMem_501_node.dat", "jobid ts nodeid load\n501 1 gpu1 2\n")
    report = load(client, tmp_path)
    assert {row["attempt_key"] for row in client.table("device_sample")} == {f"c/501#0:{T0 - 20}"}
    assert (report.read, report.kept, list(report.rejected)) == (6, 5, ["no report or table of GPUs"])
    assert len(client.table("attempt")) == 1


def test_rows_of_a_table_are_readings_with_their_minute(memory_client: Make, tmp_path: Path) -> None:
    client = memory_client()
    load(client, write(tmp_path, "GPU_501_node.dat", TABLE))
    rows = client.table("device_sample")
    first = rows[0]
    assert (first["driver_util_ratio"], first["memory_used_bytes"], first["power_watts"]) == (0.9, 12 * 2**30, 280.0)
    assert {row["cadence_seconds"] for row in rows} == {60.0}
    (attempt,) = client.table("attempt")
    assert (attempt["start_at"], attempt["end_at"], client.gpu_seconds) == (T0, T0 + 120, 240)


BAD_ROWS = {
    "too few fields": f"501 {T0} gpu1_00",
    "bad device": f"501 {T0} gpu1 1 1 1",
    "bad time": "501 soon gpu1_00 1 1 1",
    "bad job id": f"x {T0} gpu1_00 1 1 1",
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_a_bad_row_costs_only_itself(memory_client: Make, tmp_path: Path, reason: str) -> None:
    report = load(memory_client(), write(tmp_path, "t.dat", f"{TABLE}{BAD_ROWS[reason]}\n"))
    assert (report.kept, list(report.rejected)) == (4, [reason])


@pytest.mark.parametrize(
    "text", ["a b c\n", "{", '{"job": 1}', "[]", '{"job": {}}', '{"job": {"jobid": "1"}}', "\n\n", "{" * 100_000]
)
def test_what_is_neither_is_refused(memory_client: Make, tmp_path: Path, text: str) -> None:
    report = load(memory_client(), write(tmp_path, "t.dat", text))
    assert report.exit_code == 1
    assert len(report.errors) + len(report.rejected) == 1


# ------------------------------------------------------------------------------------------------ a computing centre


@pytest.mark.data
def test_the_means_of_a_table_are_those_of_the_centres_own_report(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    folder = data_root / "llview_jsc_gpu"
    told = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    for name, expected in told.items():
        (path,) = folder.rglob(name)
        report = load(client, path)
        assert (report.read, report.kept) == (expected["rows"], expected["rows"])
        rows = client.table("device_sample")
        by_device: dict[str, list[float]] = {}
        for row in rows:
            by_device.setdefault(row["device_uuid"], []).append(100 * row["driver_util_ratio"])
        means = {device: sum(values) / len(values) for device, values in by_device.items()}
        assert sum(map(sum, by_device.values())) / len(rows) == pytest.approx(expected["mean gpu_usage"], abs=5e-4)
        named = {name.replace("_0", "/gpu"): mean for name, mean in expected["per_gpu"].items()}
        assert means == pytest.approx(named, abs=5e-4)
        assert sum(mean < 1 for mean in means.values()) == expected["gpus under 1%"]


@pytest.mark.data
def test_a_report_of_a_centre_gives_job_and_gpu_hours(memory_client: Make, data_root: Path) -> None:
    client = memory_client()
    (path,) = (data_root / "llview_jsc_gpu" / "errormessage").glob("jobreport_*.json")
    report = load(client, path)
    (attempt,), (summary,) = client.table("attempt"), client.table("attempt_summary")
    assert (report.kept, report.altered) == (1, {})
    assert len(client.table("allocation")) == 256
    assert attempt["end_at"] - attempt["start_at"] == 1709938196 - 1709932077
    assert summary["driver_util_ratio"] == pytest.approx(0.960723236)
    assert attempt["state"] == "failed"
