"""The conventions of HolisticTraceAnalysis 0.5.0: its own figures for real traces, and each convention by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.benchmarks.trace import differing_tables
from analysis.traces.document import Convention, rank_document
from analysis.traces.hta import hta_tables, hta_view, kind_of, temporal_breakdown
from warehouse.imports.kineto import read_timeline

TRACES = (
    "a100_alexnet",
    "a100_resnet_ddp_rank0",
    "v100_resnet_rank0_ns",
    "v100_2gpu_rank1",
    "sampled_128gpu_rank0",
    "mi250_rocm62_minitoy",
)


@pytest.mark.data
@pytest.mark.parametrize("name", TRACES)
def test_its_figures_of_real_traces_are_reproduced(data_root: Path, name: str) -> None:
    folder = data_root / "hta"
    if not folder.is_dir():
        pytest.skip("needs the source hta")
    expected = json.loads((folder / "reference_values.json").read_text())[f"{name}_kineto.json.gz"]["hta_0_5_0"]
    timeline = read_timeline(folder / f"{name}_kineto.json.gz")
    rank: Any = rank_document(timeline, name, Convention.HTA)
    assert differing_tables(rank["hta"], expected) == []
    (times,) = expected["temporal_breakdown"]
    assert rank["span_ns"] == 1000 * times["kernel_time(us)"]
    assert rank["idle_ns"] == 1000 * times["idle_time(us)"]
    assert rank["compute_ns"] == 1000 * times["compute_time(us)"]
    assert rank["non_compute_ns"] == 1000 * times["non_compute_time(us)"]


def test_the_comparison_sees_a_figure_that_differs() -> None:
    assert differing_tables({"t": [{"sum": 5}]}, {"t": [{"sum": 6}]}) == ["t"]
    assert differing_tables({"t": []}, {"t": [{"sum": 6}]}) == ["t"]
    assert differing_tables({"t": {"n": 5}}, {"t": {"n": 6}}) == ["t"]


def launch(at: float, correlation: int) -> dict[str, object]:
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at, "dur": 2}
    return call | {"args": {"correlation": correlation}}


def kernel(at: float, length: float, correlation: int, name: str = "gemm", cat: str = "kernel") -> dict[str, object]:
    args = {"device": 0, "stream": 7, "correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": at, "dur": length, "args": args}


def step(number: int, at: float) -> dict[str, object]:
    name = f"ProfilerStep#{number}"
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 100}


def tables(folder: Path, *events: dict[str, object]) -> dict[str, Any]:
    path = folder / "rank.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return hta_tables(hta_view(read_timeline(path)), 0)


def test_what_the_last_of_several_steps_launched_is_left_out(tmp_path: Path) -> None:
    work = [launch(10, 1), kernel(20, 30, 1), launch(110, 2), kernel(120, 30, 2)]
    (one,) = tables(tmp_path, step(1, 0), *work)["temporal_breakdown"]
    (two,) = tables(tmp_path, step(1, 0), step(2, 100), *work)["temporal_breakdown"]
    assert (one["kernel_time(us)"], two["kernel_time(us)"]) == (130, 30)


def test_begins_are_rounded_up_and_ends_down(tmp_path: Path) -> None:
    (row,) = tables(tmp_path, kernel(20.5, 9.75, 1))["temporal_breakdown"]
    assert row["kernel_time(us)"] == 9  # [20.5, 30.25) becomes [21, 30)
    (whole,) = tables(tmp_path, kernel(20, 9, 1))["temporal_breakdown"]
    assert whole["kernel_time(us)"] == 9


def test_a_wait_on_a_stream_counts_as_an_event_without_class(tmp_path: Path) -> None:
    (row,) = tables(tmp_path, kernel(0, 10, 1), kernel(10, 20, 2, "Stream Sync", "cuda_sync"))["temporal_breakdown"]
    assert (row["kernel_time(us)"], row["idle_time(us)"]) == (30, 0)
    assert (row["compute_time(us)"], row["non_compute_time(us)"]) == (10, 20)


def test_gaps_are_sorted_by_what_the_host_did(tmp_path: Path) -> None:
    work = [
        kernel(0, 10, 1),
        launch(5, 2),
        kernel(20, 10, 2),  # launched in time, 10 us late: kernel_wait
        launch(6, 3),
        kernel(70, 10, 3),  # launched in time, 40 us late: other
        launch(100, 4),
        kernel(110, 10, 4),  # launched after the one before had ended: host_wait
    ]
    rows = tables(tmp_path, *work)["idle_time_breakdown_30"]
    assert {row["idle_category"]: row["idle_time"] for row in rows} == {
        "host_wait": 30,
        "kernel_wait": 10,
        "other": 40,
    }


def test_a_launch_is_judged_by_how_long_it_and_its_kernel_took(tmp_path: Path) -> None:
    stats = tables(tmp_path, launch(0, 1), kernel(10, 1, 1), launch(20, 2), kernel(200, 5, 2))["launch_stats"]
    assert (stats["n"], stats["cpu_duration_mean"], stats["gpu_duration_mean"]) == (2, 2.0, 3.0)
    assert (stats["launch_delay_mean"], stats["launch_delay_median"]) == (93.0, 93.0)  # 8 and 178
    assert (stats["n_gpu_shorter_than_cpu"], stats["n_launch_delay_gt_100"]) == (1, 1)


def test_classes_go_by_name_alone() -> None:
    assert [
        kind_of(name) for name in ("ncclDevKernel_AllReduce", "Memcpy DtoH", "Event Sync", "gemm", "rcclKernel")
    ] == [
        "COMMUNICATION",
        "MEMORY",
        "OTHER",
        "COMPUTATION",
        "COMPUTATION",
    ]


def test_without_events_there_is_nothing_to_tell(tmp_path: Path) -> None:
    path = tmp_path / "rank.json"
    path.write_text(json.dumps({"traceEvents": [step(1, 0)]}))
    view = hta_view(read_timeline(path))
    assert temporal_breakdown(view) is None
    found: dict[str, Any] = hta_tables(view, 0)
    assert (found["temporal_breakdown"], found["kernel_type"], found["launch_stats"]["n"]) == ([], [], 0)
    assert found["launch_stats"]["launch_delay_mean"] is None
