from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from collector.simulate.activity import NOISE_LENGTH, at_second, minute_mean
from collector.simulate.scenario import DEMO, IDLE, Level, Scenario, load_scenario
from collector.simulate.schedule import attempts, holders, inventory, level_of, records
from warehouse.contract.errors import BadInputError
from warehouse.contract.model import Allocation, Attempt, AttemptState, Device, Event, Job

EPOCH_AT = 1_800_000_000.0
MINUTE = 60


@pytest.fixture(scope="module")
def demo() -> Scenario:
    return load_scenario()


def start_of(demo: Scenario) -> float:
    return EPOCH_AT - demo.history_minutes * MINUTE


def test_the_demo_has_four_nodes_of_eight_cards_that_all_have_gpm(demo: Scenario) -> None:
    assert [len(demo.devices_of(node)) for node in demo.nodes] == [8, 8, 8, 8]
    assert {device.model.name for device in demo.devices} == {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}
    assert len({device.uuid for device in demo.devices}) == 32


def test_no_card_is_ever_held_by_two_attempts(demo: Scenario) -> None:
    start_at = start_of(demo)
    by_device: dict[str, list[tuple[float, float]]] = {}
    for attempt in attempts(demo, start_at, start_at, EPOCH_AT + 14 * 86400):
        for device in attempt.devices:
            by_device.setdefault(device.uuid, []).append((attempt.start_at, attempt.end_at))
    for held in by_device.values():
        held.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(held))


def test_every_planted_problem_but_the_evaluation_runs_when_the_demo_first_starts(demo: Scenario) -> None:
    running = holders(attempts(demo, start_of(demo), EPOCH_AT, EPOCH_AT + 60), EPOCH_AT + 30)
    assert {attempt.workload.name for attempt in running.values()} == {
        *("sweep", "stalled", "simulation", "notebook", "crashed", "pretrain", "folding"),
    }
    assert sum(attempt.workload.name == "sweep" for attempt in running.values()) == 4


def test_forty_jobs_in_a_row_of_the_sweep_have_forty_names(demo: Scenario) -> None:
    start_at = start_of(demo)
    sweep = [a for a in attempts(demo, start_at, start_at, EPOCH_AT) if a.workload.name == "sweep"]
    sweep.sort(key=lambda attempt: attempt.occurrence)
    names = [next(r.name for r in records(demo, a, EPOCH_AT) if isinstance(r, Job)) for a in sweep]
    assert len(set(names[:40])) == 40
    assert names[40:80] == names[:40]
    assert "resnet-sweep-lr0.01-seed3" in names


def test_job_ids_are_unique_and_grow_with_the_start(demo: Scenario) -> None:
    start_at = start_of(demo)
    planned = attempts(demo, start_at, start_at, EPOCH_AT)
    ids = [attempt.job_id for attempt in planned]
    assert ids == sorted(set(ids))


def test_the_same_attempts_are_found_in_any_window_that_touches_them(demo: Scenario) -> None:
    start_at = start_of(demo)
    whole = {attempt.job_id: attempt for attempt in attempts(demo, start_at, start_at, EPOCH_AT)}
    for hours in range(0, 336, 29):
        at = start_at + hours * 3600
        inside = {a.job_id: a for a in attempts(demo, start_at, at, at + 1)}
        assert inside == {key: a for key, a in whole.items() if a.start_at < at + 1 and a.end_at > at}


def test_a_running_attempt_has_no_end_and_an_ended_one_has(demo: Scenario) -> None:
    start_at = start_of(demo)
    attempt = attempts(demo, start_at, start_at, EPOCH_AT)[0]
    running = records(demo, attempt, attempt.end_at - 1)
    ended = records(demo, attempt, attempt.end_at)
    states = [[(r.state, r.end_at) for r in found if isinstance(r, Attempt)] for found in (running, ended)]
    assert states == [[(AttemptState.RUNNING, None)], [(AttemptState.COMPLETED, attempt.end_at)]]
    assert [r.end_at for r in running if isinstance(r, Allocation)] == [None]


def test_the_lost_card_fails_its_attempt_and_is_lost_from_then_on(demo: Scenario) -> None:
    start_at = start_of(demo)
    loss = demo.losses[0]
    lost_at = start_at + loss.minute * MINUTE
    planned = attempts(demo, start_at, start_at, EPOCH_AT)
    failed = [attempt for attempt in planned if attempt.state is AttemptState.NODE_FAIL]
    assert [(attempt.workload.name, attempt.end_at) for attempt in failed] == [("finetune", lost_at)]
    assert failed[0].start_at < lost_at
    assert not [a for a in planned if loss.device in a.devices and a.end_at > lost_at]
    told = inventory(demo, start_at, EPOCH_AT)
    lost = [r for r in told if isinstance(r, Device) and r.device_uuid == loss.device.uuid]
    assert [(r.state, r.since_at, r.until_at) for r in lost] == [("up", start_at, lost_at), ("lost", lost_at, None)]
    events = [r for r in told if isinstance(r, Event)]
    assert [(e.kind, e.happened_at, e.attempt_key) for e in events] == [
        ("device_lost", lost_at, failed[0].attempt_key("demo"))
    ]


def test_the_crashed_job_holds_its_cards_without_a_process(demo: Scenario) -> None:
    start_at = start_of(demo)
    crashed = next(a for a in attempts(demo, start_at, start_at, EPOCH_AT) if a.workload.name == "crashed")
    before, after = crashed.start_at + 240 * MINUTE - 1, crashed.start_at + 240 * MINUTE
    assert level_of(crashed, before).processes == 1
    assert level_of(crashed, after) is IDLE
    assert crashed.end_at - after == 16 * 3600
    assert crashed.state is AttemptState.TIMEOUT


def test_the_notebook_computes_ninety_minutes_of_twenty_two_hours(demo: Scenario) -> None:
    start_at = start_of(demo)
    notebook = next(a for a in attempts(demo, start_at, start_at, EPOCH_AT) if a.workload.name == "notebook")
    levels = [notebook.level_at(notebook.start_at + minute * MINUTE) for minute in range(22 * 60)]
    assert sum(level.engine > 0 for level in levels) == 90
    assert all(level.processes == 1 and level.memory > 0 for level in levels)


def test_the_seconds_of_a_minute_average_to_its_mean(demo: Scenario) -> None:
    for workload in demo.workloads:
        device = workload.lanes[0][0]
        for phase in workload.phases:
            for index in (0, 1, NOISE_LENGTH - 1):
                mean = minute_mean(phase.level, device.model, index)
                seconds = [at_second(phase.level, device.model, index, second) for second in range(60)]
                for name in ("driver_util_ratio", "engine_active_ratio", "sm_active_ratio", "dram_active_ratio"):
                    values = [getattr(activity, name) for activity in seconds]
                    assert sum(values) / 60 == pytest.approx(getattr(mean, name), abs=1e-9)
                    assert all(0 <= value <= 1 for value in values)


def test_the_stalled_job_never_pauses_for_a_whole_minute(demo: Scenario) -> None:
    level = next(w for w in demo.workloads if w.name == "stalled").phases[0].level
    model = demo.devices[0].model
    busy = [
        at_second(level, model, index, second).engine_active_ratio > 0 for index in range(20) for second in range(60)
    ]
    pauses = "".join("b" if value else "." for value in busy).split("b")
    assert max(map(len, pauses)) == 36


def test_power_stays_between_idle_and_the_limit(demo: Scenario) -> None:
    for workload in demo.workloads:
        model = workload.lanes[0][0].model
        for phase in workload.phases:
            for index in range(0, NOISE_LENGTH, 97):
                watts = minute_mean(phase.level, model, index).power_watts
                assert model.idle_watts <= watts <= model.limit_watts


def test_a_level_that_could_exceed_the_whole_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a share would reach 1\.045"):
        Level(driver=0.95, spread=0.1)


def broken(tmp_path: Path, old: str, new: str) -> Path:
    text = DEMO.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "broken.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('cluster = "demo"', "cluster = ", "broken.toml"),
        ('[["gpu-a1:6"]]', '[["gpu-z9:6"]]', r"\[\[workload\]\] notebook: KeyError: 'gpu-z9:6'"),
        ("duration_minutes = 112", "duration_minutes = 121", r"\[\[workload\]\] sweep: .*at most period_minutes"),
        ("driver = 0.19", "driver = 1.9", r"\[level\]: .*a share would reach"),
        ('ends_as = "timeout"', 'ends_as = "bored"', r"\[\[workload\]\] crashed: .*'bored'"),
        ('device = "gpu-a2:7"', 'device = "gpu-a2:8"', r"\[\[loss\]\]: KeyError"),
    ],
)
def test_what_is_wrong_in_a_scenario_is_named(tmp_path: Path, old: str, new: str, place: str) -> None:
    with pytest.raises(BadInputError, match=place):
        load_scenario(broken(tmp_path, old, new))


def test_an_absent_scenario_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"absent\.toml: cannot be read"):
        load_scenario(tmp_path / "absent.toml")
