"""The benchmark of GPU choice: how it reads sources, how it judges, and what it finds in the sample data."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from analysis.benchmark import BenchRequest
from analysis.benchmarks import _gpu_choice_sources as sources
from analysis.benchmarks import gpu_choice
from analysis.benchmarks._outcome import Outcome, best_constant_error, binomial_band
from analysis.benchmarks._reference import reference_text
from analysis.estimate import Range
from analysis.reference_times import FILE
from warehouse.contract.settings import Settings


def no_client(_data: Path, _create: bool) -> Any:
    raise AssertionError("nothing is to be imported")


def run(data_root: Path) -> Any:
    return gpu_choice.run(BenchRequest(data_root, full=False, open_client=no_client, settings=Settings()))


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("LambdaOD_1x_Texas_1xH100_80GB_SXM5_host6decbb_v2", {"H100"}),
        ("Quadro RTX 8000", {"Quadro RTX 8000"}),
        ("RAIDZ1 H100 80GB SXM5", {"H100"}),
        ("LambdaOD_1x_1xGH200_80GB_hostb7fa1c_v2", {"GH200"}),
        ("pro 6000 maxq", {"RTX PRO 6000"}),
        ("A5500", set()),
        ("N/A", set()),
    ],
)
def test_a_row_is_of_the_gpu_that_its_name_means(name: str, models: set[str]) -> None:
    assert {gpu.model for gpu in sources.gpus_of(name)} == models


def test_the_best_constant_in_hindsight_is_the_weighted_median() -> None:
    # Constants 1 and 2 for times 1, 2, 4: |1-1| + |1/2-1| + |1/4-1| = 1.25; 1 + 0 + 0.5 = 1.5.
    assert best_constant_error([4.0, 1.0, 2.0]) == pytest.approx(1.25 / 3)


def test_the_band_of_a_binomial_narrows_with_the_number() -> None:
    assert binomial_band(0.8, 100) == pytest.approx((0.7216, 0.8784))


def outcome(likely: float, truth: float, item: str = "w", target: str = "B") -> Outcome:
    baselines = {"peak ratio": 3.0, "bandwidth ratio": None}
    return Outcome(("s", "A", target), item, item, Range(likely / 2, likely, likely * 2), truth, baselines)


def test_errors_coverage_and_the_faster_one_by_hand() -> None:
    right, wrong = outcome(0.5, 0.4), outcome(1.2, 0.5, "v")
    judged = gpu_choice._judged([right, wrong], [])
    assert right.error == pytest.approx(0.25)
    assert wrong.error == pytest.approx(1.4)
    assert right.is_covered
    assert not wrong.is_covered
    assert judged.figures["median_error"] == pytest.approx((0.25 + 1.4) / 2)
    assert judged.figures["faster_of_two_right"] == 0.5
    assert judged.figures["coverage_of_80_percent_intervals"] == 0.5
    assert judged.figures["share_of_pairs_better_than_both_ratios"] == 1.0  # 3 for 0.4 and 0.5 is further off
    assert [bar.holds for bar in judged.bars] == [False, False, True, False, False, True]


def test_a_pair_of_gpus_is_judged_from_five_workloads_on(tmp_path: Path) -> None:
    folder = tmp_path / sources.ZEUS / "part"
    folder.mkdir(parents=True)
    for gpu, factor in (("v100", 1.0), ("p100", 2.0)):
        rows = [["dataset", "network", "batch_size", "optimizer", "power_limit", "time_per_epoch", "average_power"]]
        for number in range(5):
            for watts, seconds in (("100", factor), ("50", 2 * factor)):
                rows.append(["d", f"net{number}", "8", "adam", watts, str(seconds), "1"])
        with (folder / f"summary_power_{gpu}.csv").open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(rows)
    pairs = sources.SOURCES[sources.ZEUS](tmp_path)
    assert {pair.key[1:] for pair in pairs} == {("P100", "V100"), ("V100", "P100")}
    assert {pair.ratio for pair in pairs} == {2.0, 0.5}
    assert len(pairs) == 10
    (folder / "summary_power_p100.csv").unlink()
    assert sources.SOURCES[sources.ZEUS](tmp_path) == []


def test_absent_sources_are_named_and_nothing_is_judged(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert not any(bar.holds for bar in result.bars)
    assert sum("below" in gap for gap in result.not_shown) == 6


@pytest.mark.data
def test_measured_speeds_are_foretold_within_what_can_be_known(data_root: Path, tmp_path: Path) -> None:
    for name in (sources.ZEUS, sources.GAVEL, sources.LAMBDA, sources.MLPERF, "hta", "miso_a100_mig"):
        (tmp_path / name).symlink_to(data_root / name)
    result = run(tmp_path)
    figures = result.figures
    assert figures["pairs_of_gpus"] == 56
    assert figures["median_error"] < 0.22
    assert figures["median_error"] < 0.8 * figures["median_error_by_baseline"]["bandwidth ratio"]
    assert figures["median_error_with_three_measured"] < 0.22
    assert figures["faster_of_two_right"] > 0.9
    zeus = {(row["from"], row["to"]): row for row in figures["by_source"][sources.ZEUS]}
    assert zeus["V100", "Quadro RTX 6000"]["count"] == 51  # as the source's expected.json has it
    assert zeus["V100", "P100"]["count"] == 44
    slices = figures["slices"]
    assert [slices[name]["count"] for name in ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb")] == [17, 22, 24, 24]
    assert all(one["coverage"] > 0.6 for one in slices.values())
    assert result.prediction_columns == ("source", "item", "from", "to", "low", "likely", "high", "truth")
    assert len(result.predictions) == figures["predictions"]


@pytest.mark.data
def test_the_references_that_ship_are_those_of_the_sources(data_root: Path) -> None:
    shipped = (Path(gpu_choice.__file__).parent.parent / FILE).read_text(encoding="utf-8")
    assert reference_text(data_root) == shipped
