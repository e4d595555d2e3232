"""The benchmark of families' speed: what it makes, and that no job is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.benchmark import BenchRequest
from analysis.benchmarks import family_speed
from warehouse.contract.settings import Settings


def no_client(_data: Path, _create: bool) -> Any:
    raise AssertionError("nothing is to be imported")


def test_made_jobs_are_grouped_by_user_and_work_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 200 users with ten works each: 4,000 jobs are two of each.
    monkeypatch.setattr(family_speed, "USERS", 200)
    result = family_speed.measure(4_000, BenchRequest(tmp_path, full=False, open_client=no_client, settings=Settings()))
    assert result.figures["families"] == 2_000
    assert [bar.holds for bar in result.bars] == [True]
