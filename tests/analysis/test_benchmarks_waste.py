"""The benchmark of waste: how it judges, and what it finds in the sample data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trueload
from analysis.benchmark import BenchRequest
from analysis.benchmarks import waste
from warehouse.contract.settings import Settings


def no_client(_data: Path, _create: bool) -> Any:
    raise AssertionError("nothing is to be imported")


def request_for(data_root: Path) -> BenchRequest:
    return BenchRequest(data_root, full=False, open_client=no_client, settings=Settings())


def test_an_absent_source_is_named_and_has_no_bars(tmp_path: Path) -> None:
    result = waste.run(request_for(tmp_path))
    assert not result.bars
    assert any("not below" in gap for gap in result.not_shown)


def test_a_figure_is_met_within_a_thousandth() -> None:
    assert waste._met("p", "hours", 1000.9, 1000.0).holds
    assert not waste._met("p", "hours", 1001.1, 1000.0).holds
    assert not waste._met("p", "hours", None, 1000.0).holds
    assert not waste._met("p", "hours", 1.0, None).holds


@pytest.fixture
def real_request(data_root: Path) -> BenchRequest:
    return BenchRequest(data_root, full=False, open_client=_open, settings=trueload.load_settings())


def _open(data: Path, create: bool) -> Any:
    return trueload.connect(data, create=create)


@pytest.mark.data
@pytest.mark.slow
def test_waste_of_measured_jobs_meets_the_published_figures(real_request: BenchRequest) -> None:
    result = waste.run(real_request)
    assert [bar.name for bar in result.bars if not bar.holds] == []
    assert len(result.bars) == 4
    assert list(result.figures) == ["clustercockpit_nhr"]
