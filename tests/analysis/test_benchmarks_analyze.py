"""The benchmark of analyses measures what it says, on a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import pipeline
from analysis.benchmark import BenchRequest
from analysis.benchmarks import analyze
from analysis.benchmarks._fleet import Fleet
from warehouse.contract.settings import Settings
from warehouse.contract.units import SECONDS_PER_DAY


def request(folder: Path) -> BenchRequest:
    """Give the request of a short run."""
    return BenchRequest(
        folder, full=False, open_client=lambda *_given: None, settings=Settings(), answers=lambda: pipeline.ANSWERS
    )


@pytest.mark.slow
def test_a_week_from_samples_and_from_roll_ups_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(gpus=2, seconds=SECONDS_PER_DAY, cadence_seconds=300.0, job_seconds=9000.0)
    monkeypatch.setattr(analyze, "SMALL", fleet)
    result = analyze.run(request(tmp_path))
    assert result.figures["different"] == []
    assert result.figures["samples"] == fleet.samples == 576
    rolled = result.figures["roll_ups"]
    assert isinstance(rolled, dict)
    assert rolled["hours"] == 24
    assert rolled["rollup_1h_bytes"] > 0
