from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.tracer import launch_costs
from collector.tracer.commands import calibrate_command
from collector.tracer.launch_costs import LaunchCost, Measured, Setup
from collector.tracer.settings import LAUNCH_COSTS_FILE
from tests.collector.tracer.testbed import Bench
from warehouse.contract.errors import BadInputError, TrueloadError
from warehouse.contract.settings import Settings

COST = LaunchCost(2000.0, 3500.0, 1500.0, 300.0, 100_000, "NVIDIA H100 80GB HBM3", "00", 130200, 13000)
SETUP = Setup("NVIDIA H100 80GB HBM3", 130200, 13000)


class _Root:
    def __init__(self, path: Path) -> None:
        self._path = path

    def settings(self) -> Settings:
        return Settings({LAUNCH_COSTS_FILE.name: str(self._path)})


def test_costs_are_kept_by_gpu_model_cupti_and_driver(tmp_path: Path) -> None:
    path = tmp_path / "state" / "costs.json"
    assert launch_costs.read(path) == {}
    older, other = Measured(COST, 1.0), Measured(dataclasses.replace(COST, cupti_version=27), 2.0)
    newer = Measured(dataclasses.replace(COST, added_nanoseconds=-20.0), 3.0)
    for measured in (older, other, newer):
        launch_costs.store(path, measured)
    assert launch_costs.read(path) == {SETUP: newer, SETUP._replace(cupti_version=27): other}


def test_a_cost_of_another_setup_will_not_do() -> None:
    costs = {SETUP: Measured(COST, 1.0)}
    assert launch_costs.cost_of(costs, SETUP) == pytest.approx((1.2e-6, 1.5e-6, 1.8e-6))
    for other in (
        SETUP._replace(gpu_model="A100"),
        SETUP._replace(cupti_version=1),
        SETUP._replace(cuda_driver_version=1),
    ):
        assert launch_costs.cost_of(costs, other) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"version": 2, "launch_costs": []}',
        '{"version": 1}',
        '{"version": 1, "launch_costs": [{}]}',
        '{"version": 1, "launch_costs": [3]}',
        json.dumps(
            {"version": 1, "launch_costs": [{**dataclasses.asdict(COST), "added_nanoseconds": "x", "measured_at": 1}]}
        ),
        json.dumps(
            {
                "version": 1,
                "launch_costs": [{**dataclasses.asdict(COST), "traced_nanoseconds": float("nan"), "measured_at": 1}],
            }
        ),
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(content)
    with pytest.raises(BadInputError, match=r"costs\.json: .*calibrate anew"):
        launch_costs.store(path, Measured(COST, 1.0))
    assert path.read_text() == content


def test_a_folder_that_cannot_be_written_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrueloadError, match=r"cannot be .*launch"):
        launch_costs.store(tmp_path / "file" / "costs.json", Measured(COST, 1.0))


def test_calibrate_measures_and_keeps(testbed: Bench, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    options = ["--device", "3", "--rounds", "1"]
    environment = testbed.environment("12.9", CUDA_INJECTION64_PATH="")
    done = CliRunner().invoke(calibrate_command, [*options, "--json"], obj=_Root(path), env=environment)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    (measured,) = launch_costs.read(path).values()
    assert measured.setup == ("Stand-in GPU", 27, 13000)
    assert told == {**dataclasses.asdict(measured.cost), "launch_costs_file": str(path)}
    done = CliRunner().invoke(calibrate_command, options, obj=_Root(path), env=environment)
    assert done.stdout.startswith("Stand-in GPU, CUPTI 27, CUDA driver 13000\na launch takes ")
    assert len(launch_costs.read(path)) == 1
