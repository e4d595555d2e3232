"""The benchmark of profiler timelines: what it says without data, and that it holds on the sample data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.benchmark import BenchRequest
from analysis.benchmarks import trace
from warehouse.contract.errors import BadInputError
from warehouse.contract.settings import Settings


def no_client(_data: Path, _create: bool) -> Any:
    raise AssertionError("nothing is to be imported")


def request_for(data_root: Path) -> BenchRequest:
    return BenchRequest(data_root, full=False, open_client=no_client, settings=Settings())


def test_absent_reference_values_are_named_and_have_no_bars(tmp_path: Path) -> None:
    result = trace.run(request_for(tmp_path))
    assert not result.bars
    assert any("no reference_values.json" in gap for gap in result.not_shown)


def test_reference_values_that_cannot_be_read_are_one_line_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "hta").mkdir()
    (tmp_path / "hta" / "reference_values.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(BadInputError, match="reference_values"):
        trace.run(request_for(tmp_path))


@pytest.mark.data
@pytest.mark.slow
def test_the_direct_values_of_the_sample_traces_hold(data_root: Path) -> None:
    if not (data_root / "hta").is_dir():
        pytest.skip("needs the sample data: no folder hta")
    result = trace.run(request_for(data_root))
    direct = [bar for bar in result.bars if "faster" not in bar.name]
    assert len(direct) >= 12
    assert [bar.name for bar in direct if not bar.holds] == []
