"""The benchmark of parsing: what it takes for whole, and what it finds in the sample data."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.benchmark import BenchRequest, BenchResult
from analysis.benchmarks import parsing
from warehouse.contract.settings import Settings


def no_client(_data: Path, _create: bool) -> Any:
    raise AssertionError("parsing needs no store")


def judged(data_root: Path) -> BenchResult:
    return parsing.run(BenchRequest(data_root, full=False, open_client=no_client, settings=Settings()))


def failing(result: BenchResult) -> list[str]:
    return [bar.name for bar in result.bars if not bar.holds]


def put(path: Path, content: str | bytes | dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content) if isinstance(content, dict) else content
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_absent_sources_are_named_and_have_no_bars(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert not result.bars
    assert sum("below" in gap for gap in result.not_shown) == 8


PAGE = 'nvidia_smi_utilization_gpu_ratio{uuid="a"} 0.5\nnvidia_smi_power_draw_watts{uuid="a"} 70\nother 1\n'


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({}, []),
        ({"samples": 4}, ["p.metrics: samples", "p.metrics: samples kept"]),
        ({"families": 2}, ["p.metrics: families"]),
        ({"nvidia_smi_power_draw_watts": ["71"]}, ["p.metrics: nvidia_smi_power_draw_watts"]),
        ({"nvidia_smi_utilization_gpu_ratio": []}, ["p.metrics: nvidia_smi_utilization_gpu_ratio"]),
    ],
)
def test_a_page_must_have_the_samples_families_and_values_that_are_told(
    tmp_path: Path, changed: dict[str, Any], fails: list[str]
) -> None:
    folder = tmp_path / "nvidia_smi_captures"
    told = {
        "samples": 3,
        "families": 3,
        "nvidia_smi_utilization_gpu_ratio": ["0.5"],
        "nvidia_smi_power_draw_watts": ["70"],
    }
    put(folder / "exposition" / "p.metrics", PAGE)
    put(folder / "expected.json", {"p.metrics": told | changed})
    assert failing(judged(tmp_path)) == fails


def test_a_card_in_slices_must_not_have_a_utilization(tmp_path: Path) -> None:
    head = "timestamp, driver_version, uuid, utilization.gpu [%], mig.mode.current"
    rows = ["2026/09/21 12:00:00, 1, GPU-a, [N/A], Enabled", "2026/09/21 12:00:00, 1, GPU-b, 40 %, Disabled"]
    text = "\n".join(["# a session", head, rows[0], "", head, rows[1], ""])
    put(tmp_path / "nvidia_smi_captures" / "c.txt.gz", gzip.compress(text.encode()))
    result = judged(tmp_path)
    assert result.figures["captures"] == {"rows": 2, "of_cards_in_slices": 1}
    assert failing(result) == []


SACCT = (
    "JobID|State|Start|End|ElapsedRaw|AllocTRES\n"
    "1|COMPLETED|1000|1100|100|gres/gpu=2\n"
    "1.0|COMPLETED|1000|1100|100|gres/gpu=2\n"
    "2|COMPLETED|1000|1010|10|cpu=1\n"
)


def test_a_file_of_sacct_is_held_against_a_plain_sum(tmp_path: Path) -> None:
    put(tmp_path / "slurm-22.05" / "sacct_P.txt", SACCT)
    result = judged(tmp_path)
    assert {bar.name: bar.value for bar in result.bars} == {
        "sacct_P.txt: rows read": 3,
        "sacct_P.txt: rows kept": 3,
        "sacct_P.txt: distinct rows": 3,
        "sacct_P.txt: GPU-seconds": 200,
    }
    assert failing(result) == []


def test_a_pair_of_files_that_differ_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "slurm_sacct_meta"
    put(folder / "a.txt", SACCT)
    put(folder / "a-expected.txt", SACCT.replace("=2", "=4"))
    assert failing(judged(tmp_path)) == ["a.txt: records that differ from the expected"]


def test_lines_of_a_monitor_are_counted_and_averaged(tmp_path: Path) -> None:
    texts = ["60, 10 %, 5 MiB", "61, 30 %, 5 MiB", "", "60, 80 %, 5 MiB"]
    table = pa.table({"config": ["a", "a", "a", "b"], "task": ["t"] * 4, "file": ["f"] * 4, "text": texts})
    folder = tmp_path / "lambda_gpu_benchmarks"
    told = {"monitor": {"lines": 4, "well_formed": 3, "empty": 1, "mean util pct": 40.0}}
    put(folder / "expected.json", told)
    pq.write_table(table, folder / "monitor_lines.parquet")
    assert failing(judged(tmp_path)) == []
    put(folder / "expected.json", {"monitor": told["monitor"] | {"mean util pct": 41.0}})
    (name,) = failing(judged(tmp_path))
    assert name.endswith("mean utilization, percent")


@pytest.mark.data
@pytest.mark.slow
def test_every_documented_figure_of_the_sample_data_is_met(data_root: Path) -> None:
    result = judged(data_root)
    assert failing(result) == []
    assert len(result.bars) == 94
