from __future__ import annotations

from pathlib import Path

import pytest

import build_native
from collector.tracer import bench
from warehouse.contract.errors import TrueloadError

RATIO_BAR = 600
"""Measured 100 to 160 on an idle machine; the walk takes about a nanosecond a record, the callback may take 300."""


@pytest.mark.parametrize("streams", [1, 4])
def test_the_callback_is_cheap_and_its_union_exact(streams: int) -> None:
    build_native.build(build_native.ROOT)
    figures = bench.measure(records=200_000, streams=streams)
    assert figures.records_count == 200_000
    assert figures.difference_nanoseconds == 0
    assert figures.refused_buffers_count == 0
    assert 0 < figures.callback_to_walk_ratio < RATIO_BAR
    assert figures.callback_nanoseconds_per_record > figures.walk_nanoseconds_per_record
    assert 0 < figures.resident_bytes < 6_000_000


def test_what_is_not_compiled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "library_path", lambda: Path("/nowhere/libtrueload_tracer.so"))
    with pytest.raises(TrueloadError, match=r"/nowhere/libtrueload_tracer.so: not compiled; run python build_native"):
        bench.measure()


def test_a_measured_process_that_fails_is_told_of_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    build_native.build(build_native.ROOT)
    monkeypatch.setattr(bench, "_environment", lambda: {"TRUELOAD_CUPTI_PATH": "/nowhere/libcupti.so"})
    with pytest.raises(
        TrueloadError, match=r"(?s)the measured process failed \(1\): .*lent no buffer \(state 4, step 1\)"
    ):
        bench.measure(records=10, streams=1)
