from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import trueload
from collector.benchmarks import tracer as benchmark
from collector.tracer import bench
from tests.collector.tracer.testbed import build_tracer
from warehouse.contract.errors import TrueloadError


@pytest.mark.parametrize(
    ("records", "streams"), [(200_000, 1), pytest.param(4_000_000, 4, id="a million on each", marks=pytest.mark.slow)]
)
def test_the_callback_is_cheap_and_its_union_exact(records: int, streams: int) -> None:
    build_tracer()
    figures = bench.measure(records, streams)
    assert figures.records_count == records
    assert figures.difference_nanoseconds == 0
    assert figures.refused_buffers_count == 0
    assert 0 < figures.callback_to_walk_ratio < benchmark.RATIO_BAR
    assert figures.callback_nanoseconds_per_record > figures.walk_nanoseconds_per_record
    assert 0 < figures.resident_bytes < benchmark.RESIDENT_BYTES_MAX
    assert figures.step_nanoseconds > 0


def test_what_is_not_compiled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "library_path", lambda: Path("/nowhere/libtrueload_tracer.so"))
    with pytest.raises(TrueloadError, match=r"/nowhere/libtrueload_tracer.so: not compiled; run python build_native"):
        bench.measure()


def test_a_measured_process_that_fails_is_told_of_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    build_tracer()
    monkeypatch.setattr(bench, "traced_environment", lambda: {"TRUELOAD_CUPTI_PATH": "/nowhere/libcupti.so"})
    with pytest.raises(
        TrueloadError, match=r"(?s)the measured process failed \(1\): .*lent no buffer \(state 4, step 1\)"
    ):
        bench.measure(records=10, streams=1)


EXACT = ("difference from the exact union, ns", "buffers refused")
"""Bars that hold however busy the machine is; those of time are the benchmark's to judge, on a quiet one."""


def test_the_benchmark_runs_without_any_source_and_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_tracer()
    monkeypatch.setattr(benchmark, "RECORDS", 50_000)
    monkeypatch.setattr(benchmark, "READ_PROCESSES", 4)
    monkeypatch.setattr(benchmark, "READ_ROUNDS", 5)
    done = CliRunner().invoke(trueload.cli, ["bench", "tracer", "--data-root", str(tmp_path / "none"), "--json"])
    document = json.loads(done.stdout)
    assert document["figures"]["records_count"] == 50_000
    reading = document["figures"]["reading"]
    assert reading["samples_count"] >= 4  # every process told something
    assert reading["cpu_milliseconds_per_process_second"] > 0
    bars = {bar["name"]: bar for bar in document["bars"]}
    assert bars["difference from the exact union, ns"]["bar"] == "0"
    assert all(bars[name]["holds"] for name in EXACT)
    assert done.exit_code == (0 if all(bar["holds"] for bar in document["bars"]) else 1), done.output
