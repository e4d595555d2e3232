"""The benchmark of imports: every job once, and what it says without its source."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import trueload
from analysis.benchmark import BenchRequest
from analysis.benchmarks import import_
from warehouse.client import open_client
from warehouse.contract.settings import Settings


def request(data_root: Path) -> BenchRequest:
    settings = Settings()
    return BenchRequest(
        data_root,
        full=False,
        open_client=lambda data, create: open_client(data, trueload.answers(), settings, create=create),
        settings=settings,
    )


def test_import_keeps_every_job_once_with_its_gpu_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "philly_jobs"
    folder.mkdir()
    lines = ["timestamp,duration,num_gpus,gpu_time,cluster", "2017-10-09 07:01:55,3600.0,2,7200.0,a"]
    lines.append("2017-10-09 07:01:55,1800.0,1,1800.0,b")
    (folder / "philly.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    result = import_.run(request(tmp_path))
    held = {bar.name: bar.holds for bar in result.bars if "per second" not in bar.name}
    assert all(held.values()), held
    assert result.figures["jobs"] == 2 * import_.SMALL_COPIES
    assert result.figures["gpu_hours"] == pytest.approx(2.5 * import_.SMALL_COPIES)


def test_import_says_that_its_source_is_not_there(tmp_path: Path) -> None:
    result = import_.run(request(tmp_path))
    assert (result.bars, result.figures) == ((), {})
    assert any("philly_jobs" in line for line in result.not_shown)
