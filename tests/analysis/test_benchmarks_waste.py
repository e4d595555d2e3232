"""The benchmark of waste: how it judges, and what it finds in the sample data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import trueload
from analysis.benchmark import BenchRequest
from analysis.benchmarks import waste
from warehouse.client import open_client
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
    return open_client(data, trueload.answers(), trueload.load_settings(), create=create)


@pytest.mark.data
@pytest.mark.slow
def test_waste_of_measured_jobs_meets_the_published_figures(real_request: BenchRequest) -> None:
    result = waste.run(real_request)
    assert [bar.name for bar in result.bars if not bar.holds] == []
    assert len(result.bars) == 21
    sources = {"clustercockpit_nhr", "llview_jsc_gpu", "alibaba_genai_v2026", "alibaba_gpu_v2023"}
    assert sources <= result.figures.keys()


def packed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def write_pods(folder: Path, rows: str, expected: Mapping[str, float]) -> None:
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    packed(folder / "openb_pod_list_default.csv.gz", f"{header}scheduled_time\n{rows}")
    (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")


def test_shares_of_a_card_count_as_shares_in_each_part_and_together(tmp_path: Path) -> None:
    """Two parts: half a card for two hours; two cards for one hour, a CPU pod, and one that never started."""
    source = tmp_path / "alibaba_gpu_v2023"
    told = {"pods": 1, "gpu_pods": 1, "unscheduled": 0, "gpu_hours_allocated": 1, "whole_gpu_hours_if_no_sharing": 2}
    write_pods(source / "a", "p1,1,1,1,500,,LS,Succeeded,0,7200,0\n", told)
    more = {"pods": 3, "gpu_pods": 2, "unscheduled": 1, "gpu_hours_allocated": 2, "whole_gpu_hours_if_no_sharing": 2}
    rows = "p2,1,1,2,1000,,LS,Failed,0,3700,100\np3,1,1,0,0,,BE,Running,0,9,0\np4,1,1,1,1000,,LS,Pending,5,9,\n"
    write_pods(source / "b", rows, more)
    request = BenchRequest(tmp_path, full=False, open_client=_open, settings=trueload.load_settings())
    result = waste.run(request)
    assert [bar.name for bar in result.bars if not bar.holds] == []
    assert len(result.bars) == 10
    together = result.figures["alibaba_gpu_v2023"]
    assert together == {
        "pods": 4,
        "gpu_pods": 3,
        "unscheduled_pods": 1,
        "gpu_hours": pytest.approx(3.0),
        "gpu_hours_if_nobody_shared": pytest.approx(4.0),
    }


def test_idle_serving_pods_are_told_by_samples_and_by_time(tmp_path: Path) -> None:
    """One pod at 0 % and 40 % by the minute, one at 5 %: samples mean 15 %, and so does time."""
    source = tmp_path / "alibaba_genai_v2026"
    duty = "value,timestamp_anon,container_ip\n0,60,a\n40,120,a\n5,60,b\n"
    packed(source / "pod_gpu_duty_cycle_anon.csv.gz", duty)
    memory = f"timestamp_anon,value,container_ip\n60,{2**30},a\n61,{3 * 2**30},b\n"
    packed(source / "pod_gpu_memory_used_bytes_anon.csv.gz", memory)
    request = BenchRequest(tmp_path, full=False, open_client=_open, settings=trueload.load_settings())
    figures: Any = waste.run(request).figures["alibaba_genai_v2026"]
    assert figures["sample_mean_used_percent"] == pytest.approx(15)
    assert figures["time_weighted_used_percent"] == pytest.approx((0 * 60 + 40 * 60 + 5 * 57) / 177)
    assert (figures["samples"], figures["gpu_jobs"], figures["pods_with_a_mean_below_10_percent"]) == (3, 2, 1)
    assert figures["sample_mean_memory_gib"] == pytest.approx(2)
