"""``trueload trace``: documents that keep the contract, tables for people, and broken files as single lines."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from analysis.trace_commands import trace_command
from warehouse.contract.documents import TraceDocument, TraceRank
from warehouse.imports.kineto import EXAMPLE


def trace(*arguments: str | Path) -> Result:
    return CliRunner().invoke(trace_command, [str(argument) for argument in arguments])


def document(*arguments: str | Path) -> dict[str, Any]:
    result = trace(*arguments, "--json")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "rank-0.json"
    path.write_text(EXAMPLE)
    return path


def test_a_small_profile_by_hand(profile: Path) -> None:
    (file,) = document(profile)["files"]
    (rank,) = file["ranks"]
    assert (file["file"], file["kind"], rank["rank"]) == (str(profile), "kineto", 0)
    # kernel [1020, 1050.125), copy [1045, 1060), host [1005, 1025.5), in microseconds
    assert (rank["span_ns"], rank["gpu_bound_ns"], rank["copy_ns"], rank["gpu_busy_ns"]) == (40000, 30125, 15000, 40000)
    assert (rank["cpu_only_ns"], rank["gpu_only_ns"], rank["overlap_ns"], rank["idle_ns"]) == (0, 34500, 5500, 0)
    assert (rank["compute_ns"], rank["communication_ns"], rank["memory_ns"]) == (30125, 0, 15000)
    assert (rank["communication_overlap_ratio"], rank["coverage_ratio"]) == (None, 1.0)
    assert rank["kernels"][0]["grid"] == [8, 16, 5]
    assert rank["begin_at"] == "2026-09-21T14:13:20.001Z"


def test_the_document_has_every_key_of_the_contract(profile: Path) -> None:
    for convention in ("own", "hta"):
        found = document(profile, "--convention", convention)
        assert {item.name for item in fields(TraceDocument)} <= set(found)
        assert {item.name for item in fields(TraceRank)} <= set(found["files"][0]["ranks"][0])


def test_under_the_conventions_of_hta_what_it_has_not_is_null(profile: Path) -> None:
    rank = document(profile, "--convention", "hta")["files"][0]["ranks"][0]
    assert (rank["span_ns"], rank["compute_ns"], rank["idle_ns"], rank["non_compute_ns"]) == (40000, 30000, 0, 10000)
    assert (rank["cpu_only_ns"], rank["gpu_bound_ns"]) == (None, None)
    assert rank["hta"]["temporal_breakdown"][0]["kernel_time(us)"] == 40


def test_without_gpu_events_times_are_null_and_not_zero(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps([{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]))
    rank = document(path)["files"][0]["ranks"][0]
    assert {rank[item.name] for item in fields(TraceRank) if item.name.endswith("_ns")} == {None}
    assert (rank["gpu_events"], rank["host_ns"], rank["kernels"]) == (0, 2000, [])
    assert "no work of a GPU" in trace(path).stdout


def test_a_folder_is_one_entry_with_its_ranks_in_order(tmp_path: Path) -> None:
    for rank in (10, 2):
        text = EXAMPLE.replace('"rank": 0', f'"rank": {rank}')
        (tmp_path / f"r{rank}.json.gz").write_bytes(gzip.compress(text.encode()))
    (entry,) = document(tmp_path)["files"]
    assert [rank["rank"] for rank in entry["ranks"]] == [2, 10]


def test_a_broken_file_is_one_line_and_costs_only_itself(tmp_path: Path, profile: Path) -> None:
    broken = tmp_path / "cut.json"
    broken.write_text(EXAMPLE[:900])
    result = trace(profile, broken, "--json")
    found = json.loads(result.stdout)
    assert [file["file"] for file in found["files"]] == [str(profile)]
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert f"{broken}, byte " in result.stderr
    assert found["errors"][0]["file"] == str(broken)


def test_other_json_in_a_folder_is_told_and_is_no_failure(tmp_path: Path, profile: Path) -> None:
    notes = tmp_path / "notes.json"
    notes.write_text('{"a": 1}')
    result = trace(tmp_path)
    assert (result.exit_code, len(result.stderr.splitlines())) == (0, 1)
    assert "notes.json: holds no profiler timeline" in result.stderr
    assert trace(profile, notes).exit_code == 1
    profile.unlink()
    assert trace(tmp_path).exit_code == 1


def test_people_get_milliseconds_percent_steps_and_kernels(profile: Path) -> None:
    result = trace(profile)
    assert result.exit_code == 0
    for words in ("rank 0 of 1", "NVIDIA A100-SXM4-40GB", "GPU-bound", "75.3 %", "ProfilerStep#1", "ampere_sgemm"):
        assert words in result.stdout
    assert "ampere_sgemm" not in trace(profile, "--top", "0").stdout


def test_hostile_names_cannot_steer_a_terminal(profile: Path) -> None:
    profile.write_text(EXAMPLE.replace("ampere_sgemm_128x64_nn", "[red]\\u001b[31m"))
    output = trace(profile).stdout
    assert "[red]" in output
    assert "\x1b" not in output


def test_naming_no_file_is_bad_use() -> None:
    assert trace().exit_code != 0
