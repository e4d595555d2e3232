from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.job_source import Holding
from collector.jobs.scenario import JOB_SOURCE, JOBS_FILE
from warehouse.contract.errors import BadInputError, BadUseError
from warehouse.contract.settings import Settings

HELD: dict[str, Any] = {"attempt_key": "a", "device_uuid": "GPU-0", "start_at": 1, "end_at": None, "pids": [7, 8]}


def write(path: Path, holdings: list[dict[str, Any]]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"holdings": holdings}))
    fresh.replace(path)


def test_the_file_is_read_again_when_it_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    write(path, [HELD])
    reader = JOB_SOURCE.open(Settings({JOBS_FILE.name: str(path)}))
    assert list(reader.holdings()) == [Holding("a", "GPU-0", 1.0, None, 1.0, frozenset({7, 8}))]
    write(path, [{**HELD, "end_at": 5}])
    assert [held.end_at for held in reader.holdings()] == [5.0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"holdings": [{}]}', '{"holdings": [{"attempt_key": 1}]}'])
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jobs.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=r"jobs\.json: cannot be read as holdings"):
        JOB_SOURCE.open(Settings({JOBS_FILE.name: str(path)})).holdings()


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"absent\.json"):
        JOB_SOURCE.open(Settings({JOBS_FILE.name: str(tmp_path / "absent.json")})).holdings()


def test_without_its_setting_it_says_which_one_is_missing() -> None:
    with pytest.raises(BadUseError, match=r"agent\.scenario_jobs_file"):
        JOB_SOURCE.open(Settings())
