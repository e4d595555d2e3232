from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from collector.simulate.player import Player, jobs_file, state_file
from collector.simulate.scenario import Scenario, load_scenario
from collector.simulate.standin import StandinDevice, StandinState
from warehouse.contract.model import Attempt, Record

EPOCH_AT = 1_800_000_000.0


@pytest.fixture(scope="module")
def demo() -> Scenario:
    return load_scenario()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[StandinDevice]:
    """Collect every device that is written to a state file."""
    found: list[StandinDevice] = []
    write = StandinState.write

    def spy(self: StandinState, devices: list[StandinDevice], *, init_return_code: int = 0) -> None:
        found.extend(devices)
        write(self, devices, init_return_code=init_return_code)

    monkeypatch.setattr(StandinState, "write", spy)
    return found


def start_of(demo: Scenario) -> float:
    return EPOCH_AT - demo.history_minutes * 60


def test_the_scheduler_says_who_holds_what_and_with_which_processes(demo: Scenario, tmp_path: Path) -> None:
    with Player(demo, start_of(demo), tmp_path, lambda _records: None) as player:
        player.tick(EPOCH_AT + 30.5)
    holdings = json.loads(jobs_file(tmp_path).read_text())["holdings"]
    now = [held for held in holdings if held["start_at"] <= EPOCH_AT + 30.5 and held["end_at"] is None]
    assert len({held["device_uuid"] for held in now}) == len(now)
    assert len(now) == 16 + 4 + 4 + 2 + 2 + 1 + 1  # pretrain, sweep, stalled, simulation, crashed, notebook, folding
    assert all(held["pids"] for held in now)
    assert all(state_file(tmp_path, node).exists() for node in demo.nodes)


def test_what_ends_is_told_once_with_its_end(demo: Scenario, tmp_path: Path) -> None:
    told: list[list[Record]] = []
    with Player(demo, start_of(demo), tmp_path, told.append) as player:
        for second in range(0, 30 * 60, 10):
            player.tick(EPOCH_AT + second + 0.5)
    ended = [
        record.attempt_key
        for records in told[1:]
        for record in records
        if isinstance(record, Attempt) and record.end_at is not None
    ]
    # Within half an hour the second lane of the sweep ends one attempt (at minute 22) and nobody else does.
    assert len(ended) == len(set(ended)) == 1


def test_at_its_start_the_player_tells_the_last_day(demo: Scenario, tmp_path: Path) -> None:
    told: list[list[Record]] = []
    with Player(demo, start_of(demo), tmp_path, told.append) as player:
        player.tick(EPOCH_AT + 0.5)
    ends = [record.end_at for record in told[0] if isinstance(record, Attempt)]
    assert ends.count(None) == 4 + 6  # four lanes of the sweep, and all others but finetune and evaluation
    assert all(end is None or end > EPOCH_AT - 86_400 for end in ends)


def test_totals_grow_by_what_was_done_in_the_time_that_passed(
    demo: Scenario, tmp_path: Path, written: list[StandinDevice]
) -> None:
    with Player(demo, start_of(demo), tmp_path, lambda _records: None) as player:
        player.tick(EPOCH_AT + 0.5)
        written.clear()
        player.tick(EPOCH_AT + 2.5)
    for device in written:
        assert device.gpm is not None
        assert device.gpm.elapsed_seconds == pytest.approx(2.0, abs=1e-6)
        assert 0 <= device.gpm.engine_active_seconds <= 2.0
        assert device.energy_joules == pytest.approx(device.power_watts * 2.0, abs=1e-3)


def test_energy_never_falls_while_the_demo_plays(demo: Scenario, tmp_path: Path, written: list[StandinDevice]) -> None:
    with Player(demo, start_of(demo), tmp_path, lambda _records: None) as player:
        for second in range(0, 600, 7):
            player.tick(EPOCH_AT + second + 0.5)
    joules: dict[str, float] = {}
    for device in written:
        assert device.energy_joules >= joules.get(device.uuid, 0.0)
        joules[device.uuid] = device.energy_joules


def test_the_driver_calls_the_simulation_fully_busy_and_its_engine_is_not(
    demo: Scenario, tmp_path: Path, written: list[StandinDevice]
) -> None:
    with Player(demo, start_of(demo), tmp_path, lambda _records: None) as player:
        player.tick(EPOCH_AT + 0.5)
        player.tick(EPOCH_AT + 10.5)
    simulation = next(workload for workload in demo.workloads if workload.name == "simulation")
    card = next(device for device in reversed(written) if device.uuid == simulation.lanes[0][0].uuid)
    assert card.gpm is not None
    assert card.driver_util_ratio == 1.0
    assert card.gpm.engine_active_seconds / card.gpm.elapsed_seconds == pytest.approx(0.09)


def test_the_crashed_job_shows_no_process_and_the_notebook_one(
    demo: Scenario, tmp_path: Path, written: list[StandinDevice]
) -> None:
    with Player(demo, start_of(demo), tmp_path, lambda _records: None) as player:
        player.tick(EPOCH_AT + 30.5)
    cards = {device.uuid: device for device in written}
    lanes = {workload.name: workload.lanes[0] for workload in demo.workloads}
    assert [len(cards[device.uuid].processes) for device in lanes["crashed"]] == [0, 0]
    assert [len(cards[device.uuid].processes) for device in lanes["notebook"]] == [1]
    assert cards[lanes["notebook"][0].uuid].memory_used_bytes > 0


def test_a_lost_card_is_lost_to_the_driver(demo: Scenario, tmp_path: Path, written: list[StandinDevice]) -> None:
    with Player(demo, start_of(demo), tmp_path, lambda _records: None) as player:
        player.tick(EPOCH_AT + 0.5)
    assert [device.uuid for device in written if device.lost] == [demo.losses[0].device.uuid]


def test_a_scenario_without_losses_has_all_cards(demo: Scenario, tmp_path: Path, written: list[StandinDevice]) -> None:
    whole = replace(demo, losses=())
    with Player(whole, start_of(whole), tmp_path, lambda _records: None) as player:
        player.tick(EPOCH_AT + 0.5)
    assert not [device.uuid for device in written if device.lost]
