"""The benchmark of families: how it judges, and what it finds in the sample data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trueload
from analysis.benchmark import BenchRequest, BenchResult
from analysis.benchmarks import families
from warehouse.client import open_client
from warehouse.contract.errors import BadInputError
from warehouse.contract.settings import Settings


def no_client(_data: Path, _create: bool) -> Any:
    raise AssertionError("nothing is to be imported")


def request_for(data_root: Path) -> BenchRequest:
    return BenchRequest(data_root, full=False, open_client=no_client, settings=Settings())


def test_an_absent_source_is_named_and_has_no_bars(tmp_path: Path) -> None:
    result = families.run(request_for(tmp_path))
    assert result.bars == []
    assert any("not below" in gap for gap in result.not_shown)


ARRAY_HEADER = "job_id,user,account,partition,nodes_req,start_time,run_time,name,work_dir\n"


def array_source(root: Path, *files: str) -> Path:
    for number, rows in enumerate(files):
        folder = root / "nrel_eagle_sample" / f"part{number}"
        folder.mkdir(parents=True)
        (folder / "sample_eagle_data.csv").write_text(ARRAY_HEADER + rows, encoding="utf-8")
    return root


def test_rows_with_one_job_id_are_one_family_and_no_node_hour_is_lost(tmp_path: Path) -> None:
    task = "7,ada,bio,cpu,2,2019-01-03 10:28:10,3600.0,name1,dir1\n"
    other = "8,bob,bio,cpu,1,2019-01-03 10:28:10,1800.0,name2,dir2\n"
    result = families.run(request_for(array_source(tmp_path, task * 3, other + other.replace("8,bob", "9,bob"))))
    figures: Any = result.figures["nrel_eagle_sample"]
    assert (figures["rows"], figures["arrays"], figures["rows_of_arrays"]) == (5, 1, 3)
    assert figures["node_hours"] == 7.0
    assert figures["node_hours_lost"] == 0.0
    assert all(bar.holds for bar in result.bars)
    groups = {group for source, _, group in result.predictions if source == "nrel_eagle_sample"}
    assert len(groups) == 2


def test_a_source_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    path = array_source(tmp_path, "") / "nrel_eagle_sample" / "part0" / "sample_eagle_data.csv"
    path.write_text("job_id,user\n1,ada\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="lacks the column account, partition"):
        families.run(request_for(tmp_path))


@pytest.fixture
def real_request(data_root: Path) -> BenchRequest:
    return BenchRequest(data_root, full=False, open_client=_open, settings=trueload.load_settings())


def _open(data: Path, create: bool) -> Any:
    return open_client(data, trueload.answers(), trueload.load_settings(), create=create)


@pytest.mark.data
@pytest.mark.slow
def test_families_of_labelled_jobs_reach_their_bars(real_request: BenchRequest) -> None:
    result = families.run(real_request)
    assert [bar.name for bar in result.bars if not bar.holds] == []
    figures: Any = result.figures["clustercockpit_nhr"]
    assert figures["jobs"] == 182
    assert figures["recurring_gpu_hours"] == pytest.approx(2346, rel=1e-3)
    assert figures["baseline_same_user_and_name"]["pair_precision"] == pytest.approx(0.960, abs=1e-3)
    assert figures["baseline_same_user_and_name"]["pair_recall"] == pytest.approx(0.620, abs=1e-3)
    arrays: Any = result.figures["nrel_eagle_sample"]
    assert (arrays["rows"], arrays["rows_of_arrays"]) == (977, 452)
    assert arrays["node_hours"] == pytest.approx(9572.47, abs=0.01)
    _every_item_once(result, 182 + 977)


def _every_item_once(result: BenchResult, count: int) -> None:
    items = [(source, item) for source, item, _ in result.predictions]
    assert len(items) == count
    assert len(set(items)) == count
