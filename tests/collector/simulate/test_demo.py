from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collector.simulate.demo import DemoFolder, PlayedTime, children, is_playing, spans_to_tell, tell_history
from collector.simulate.player import jobs_file, state_file
from collector.simulate.scenario import Scenario, load_scenario
from warehouse.contract import wire
from warehouse.contract.errors import BadInputError

HOUR = 3600


@pytest.fixture(scope="module")
def short() -> Scenario:
    """Give the demo cluster with two hours of history."""
    return replace(load_scenario(), history_minutes=120)


@pytest.fixture
def folder(tmp_path: Path) -> DemoFolder:
    return DemoFolder(tmp_path)


def tell(folder: DemoFolder, scenario: Scenario, now: float) -> list[wire.Batch]:
    found: list[wire.Batch] = []
    tell_history(folder, scenario, now, found.append)
    return found


def test_the_first_start_is_remembered(folder: DemoFolder) -> None:
    first = folder.epoch_at()
    assert first % 60 == 0
    assert DemoFolder(folder.data).epoch_at() == first


def test_a_damaged_memory_says_what_to_do(folder: DemoFolder) -> None:
    folder.epoch_at()
    (folder.path / "epoch.json").write_text("{")
    with pytest.raises(BadInputError, match=r"epoch\.json: cannot be read .*remove .*demo to begin anew"):
        folder.epoch_at()


def test_the_first_start_tells_the_whole_history_and_the_second_nothing(folder: DemoFolder, short: Scenario) -> None:
    epoch_at = int(folder.epoch_at())
    assert spans_to_tell(folder, short, epoch_at + 40) == [(epoch_at - 2 * HOUR, epoch_at)]
    told = [batch.tables.get("device_sample") for batch in tell(folder, short, epoch_at + 40)[1:]]
    assert sum(table.rows for table in told if table is not None) > 32 * 120
    assert tell(folder, short, epoch_at + 45) == []


def test_after_a_pause_only_what_was_missed_is_told(folder: DemoFolder, short: Scenario) -> None:
    epoch_at = int(folder.epoch_at())
    tell(folder, short, epoch_at + 40)
    played = PlayedTime(folder)
    played.extend(epoch_at + 31)
    played.extend(epoch_at + 605)
    now = epoch_at + 1800.5
    assert spans_to_tell(folder, short, now) == [(epoch_at + 660, epoch_at + 1800)]
    tell(folder, short, now)
    assert spans_to_tell(folder, short, now) == []


def test_what_was_played_after_the_last_note_is_not_told_again(folder: DemoFolder, short: Scenario) -> None:
    epoch_at = int(folder.epoch_at())
    tell(folder, short, epoch_at + 40)
    played = PlayedTime(folder)
    for second in range(31, 610):  # noted last at 601, killed at 609
        played.extend(epoch_at + second)
    assert max(until for _, until in folder.spans("played")) < epoch_at + 609
    folder.note("played", [(epoch_at + 31, epoch_at + 600)])
    assert spans_to_tell(folder, short, epoch_at + 1800) == [(epoch_at + 660, epoch_at + 1800)]


def test_a_pause_shorter_than_two_minutes_is_left_open(folder: DemoFolder, short: Scenario) -> None:
    epoch_at = int(folder.epoch_at())
    tell(folder, short, epoch_at + 40)
    folder.note("played", [(epoch_at + 31, epoch_at + 600)])
    assert spans_to_tell(folder, short, epoch_at + 700) == []


def test_after_a_long_pause_no_more_than_the_history_is_told(folder: DemoFolder, short: Scenario) -> None:
    epoch_at = int(folder.epoch_at())
    tell(folder, short, epoch_at + 40)
    now = epoch_at + 100 * HOUR
    assert spans_to_tell(folder, short, now) == [(now - 2 * HOUR, now)]


def test_a_history_that_was_cut_short_is_told_again_under_the_same_names(folder: DemoFolder, short: Scenario) -> None:
    epoch_at = int(folder.epoch_at())
    first: list[wire.Batch] = []

    def fail_at_third(batch: wire.Batch) -> None:
        if batch.sequence == 3:
            raise ConnectionError
        first.append(batch)

    with pytest.raises(ConnectionError):
        tell_history(folder, short, epoch_at + 40, fail_at_third)
    again = tell(folder, short, epoch_at + 400)
    names = [(batch.agent, batch.boot_id, batch.sequence) for batch in again]
    assert [(batch.agent, batch.boot_id, batch.sequence) for batch in first] == names[:3]
    assert [wire.encode(batch) for batch in first] == [wire.encode(batch) for batch in again[:3]]


def test_the_demo_is_one_player_an_agent_per_node_and_a_teller_that_ends(tmp_path: Path, short: Scenario) -> None:
    found = children(tmp_path, "http://127.0.0.1:1", tmp_path / "token", short)
    assert [child.name for child in found] == [
        *("demo-player", "agent-gpu-a1", "agent-gpu-a2", "agent-gpu-b1", "agent-gpu-b2", "demo-history"),
    ]
    assert [child.ends for child in found] == [False] * 5 + [True]
    assert len({child.environment.get("TRUELOAD_AGENT__SPOOL_DIR") for child in found[1:5]}) == 4


def test_what_an_earlier_run_left_is_not_taken_for_the_present(tmp_path: Path, short: Scenario) -> None:
    folder = DemoFolder(tmp_path)
    folder.epoch_at()
    for path in (jobs_file(folder.path), *(state_file(folder.path, node) for node in short.nodes)):
        path.write_text("")
    assert is_playing(tmp_path, short)
    children(tmp_path, "http://127.0.0.1:1", tmp_path / "token", short)
    assert not is_playing(tmp_path, short)


def test_a_slow_start_tells_the_inventory_all_the_same(folder: DemoFolder, short: Scenario) -> None:
    epoch_at = int(folder.epoch_at())
    found = tell(folder, short, epoch_at + 130)
    assert sum(batch.tables["device"].rows for batch in found if "device" in batch.tables) >= len(short.devices)
