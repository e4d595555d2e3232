"""The benchmarks of sharing and fusion: their bars on the sample data, and what they say without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.benchmark import Benchmark, BenchRequest
from analysis.benchmarks import fusion, sharing
from warehouse.contract.settings import Settings


def no_client(_data: Path, _create: bool) -> Any:
    raise AssertionError("nothing is to be imported")


@pytest.mark.parametrize("benchmark", [fusion.BENCHMARK, sharing.BENCHMARK], ids=lambda one: one.name)
def test_the_bars_hold_on_the_sample_data(benchmark: Benchmark, data_root: Path) -> None:
    found = benchmark.run(BenchRequest(data_root, full=False, open_client=no_client, settings=Settings()))
    assert [bar.name for bar in found.bars if not bar.holds] == []


@pytest.mark.parametrize("benchmark", [fusion.BENCHMARK, sharing.BENCHMARK], ids=lambda one: one.name)
def test_a_source_that_is_not_there_is_named(benchmark: Benchmark, tmp_path: Path) -> None:
    found = benchmark.run(BenchRequest(tmp_path, full=False, open_client=no_client, settings=Settings()))
    assert not any(bar.holds for bar in found.bars)
    assert "not below" in found.not_shown[-1]
