"""The documents that the questions give, on small stores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analysis import pipeline
from tests.analysis.worlds import T0, World, allocation, attempt, job, sample
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.model import Attempt, AttemptState, AttemptSummary, Device, Event
from warehouse.contract.units import iso

HOUR, WEEK = 3600, 7 * 86400


def small_site(world: World) -> World:
    """Two jobs of an hour on one node with two devices: one half busy, one idle without a process. Then an event."""
    records = [
        Device("GPU-0", "c", "n0", T0, gpu_model="A", memory_bytes=80),
        Device("GPU-1", "c", "n1", T0, gpu_model="B", memory_bytes=40),
        *(job(1, user="ann", name="train"), attempt(1), allocation(1)),
        *(job(2, user="bob", name="notebook"), attempt(2, state=AttemptState.FAILED), allocation(2, "GPU-1")),
        Event("c", "n1", "device_lost", T0 + 3000, "GPU-1", detail="Xid 79"),
    ]
    samples = [
        sample(
            at, f"GPU-{owner - 1}", owner, driver_util_ratio=busy, process_count=busy and 1.0, memory_used_bytes=20.0
        )
        for at in range(0, HOUR, 60)
        for owner, busy in [(1, 0.5), (2, 0.0)]
    ]
    return world.fill(records, samples)


@pytest.mark.parametrize("question", ["waste", "jobs", "families", "recommend", "fleet", "analyze"])
def test_an_empty_store_has_an_answer_to_everything_about_the_whole(question: str, world: World) -> None:
    document = world.ask(question)
    assert (document["zone"], document["rung"], document["coverage_ratio"]) == ("UTC", None, None)


@pytest.mark.parametrize("question", sorted(set(pipeline.ANSWERS) - {"job", "weekly", "gpu_options"}))
def test_every_document_is_json_and_names_window_zone_and_rung(question: str, world: World) -> None:
    document = small_site(world).ask(question)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["since"], document["until"]) == (iso(T0), iso(T0 + HOUR))
    assert (document["zone"], document["rung"]) == ("UTC", "driver_util")


@pytest.mark.parametrize("question", sorted(pipeline.ANSWERS))
def test_no_question_takes_a_parameter_it_does_not_know(question: str, world: World) -> None:
    with pytest.raises(BadUseError, match="unknown parameter 'colour'; there are"):
        world.ask(question, colour="blue")


def test_a_job_tells_its_attempts_its_ladder_and_what_is_worth_knowing(world: World) -> None:
    document = small_site(world).ask("job", id="2")
    assert document["job"]["job_key"] == "c/2#0"
    (own,) = document["attempts"]
    assert (own["node"], own["devices"], own["gpu_model"], own["state"]) == ("n1", ["GPU-1"], "B", "failed")
    assert own["gpu_seconds"]["no_process"] == 3600.0
    assert own["ladder"]["driver_util_ratio"] == {
        "value": 0.0,
        "source": "nvml",
        "coverage_ratio": 1.0,
        "assumed": False,
    }
    assert own["ladder"]["engine_active_ratio"]["value"] is None
    assert [(finding["rule"], finding["threshold"]) for finding in document["findings"]] == [
        ("no_process", 300.0),
        ("failed", 0.0),
    ]
    assert document["timeline"]["idle_stretches"] == [
        {"device_uuid": "GPU-1", "start_at": iso(T0), "end_at": iso(T0 + HOUR), "kind": "no_process"}
    ]


def test_a_timeline_has_a_hole_where_data_are_missing(world: World) -> None:
    times = [0, 60, 300, 360]
    samples = [sample(at, driver_util_ratio=0.5, gpu_bound_seconds=6.0) for at in times]
    world.fill([job(), attempt(end=600.0), allocation(end=600.0)], samples)
    points = world.ask("job", id="c/1#0")["timeline"]["points"]
    assert [point["driver_util_ratio"] for point in points] == [0.5, 0.5, None, None, None, 0.5, 0.5]
    assert points[0]["gpu_bound_ratio"] == pytest.approx(0.1)


def test_inflation_is_driver_utilization_less_the_best_known_share(world: World) -> None:
    samples = [
        sample(at, driver_util_ratio=1.0, engine_active_ratio=0.5, gpu_bound_seconds=6.0) for at in range(0, HOUR, 60)
    ]
    document = world.fill([job(), attempt(), allocation()], samples).ask("job", id="1")
    assert document["attempts"][0]["inflation_ratio"] == pytest.approx(0.9)
    assert [finding["rule"] for finding in document["findings"]] == ["inflation"]
    without = [sample(at, driver_util_ratio=1.0) for at in range(0, HOUR, 60)]
    document = world.fill([job(), attempt(), allocation()], without).ask("job", id="1")
    assert document["attempts"][0]["inflation_ratio"] is None


def test_a_job_without_a_gpu_or_a_start_still_has_a_page(world: World) -> None:
    pending = Attempt("c/2#0:1", "c/2#0", AttemptState.PENDING, None, None, None, "t")
    world.fill([job(1), attempt(1), job(2), pending])
    assert world.ask("job", id="1")["attempts"][0]["gpu_seconds"]["allocated"] == 0.0
    assert world.ask("job", id="2")["attempts"][0]["start_at"] is None


def test_a_job_that_was_cancelled_before_it_began_is_no_gpu_job(world: World) -> None:
    world.fill([job(), Attempt("c/1#0:1", "c/1#0", AttemptState.CANCELLED, None, None, T0, "t")])
    assert world.ask("waste")["jobs"] == 0
    assert world.ask("job", id="1")["attempts"][0]["state"] == "cancelled"


def test_a_bare_id_must_be_unique(world: World) -> None:
    world.fill([job(1), job(2, scheduler_job_id="1"), job(3, array_job_id="30", array_task_index=4)])
    with pytest.raises(BadUseError, match="c/1#0, c/2#0; give the whole key"):
        world.ask("job", id="1")
    assert world.ask("job", id="c/1#0")["job"]["job_key"] == "c/1#0"
    assert world.ask("job", id="30_4")["job"]["job_key"] == "c/3#0"
    world.fill([Attempt("c/1#0:1", "c/1#0", AttemptState.RUNNING, None, T0, None, "t")])
    assert world.ask("job", id="c/1#0:1")["job"]["job_key"] == "c/1#0"  # as metrics name it
    with pytest.raises(NotFoundError, match="no job '99'"):
        world.ask("job", id="99")
    with pytest.raises(BadUseError, match="id: name a job"):
        world.ask("job")


def test_jobs_come_by_page_most_idle_first(world: World) -> None:
    document = small_site(world).ask("jobs", limit="1", offset="1")
    assert (document["total"], [row["job_key"] for row in document["jobs"]]) == (2, ["c/1#0"])
    row = document["jobs"][0]
    assert (row["user"], row["start_at"], row["end_at"]) == ("ann", iso(T0), iso(T0 + HOUR))
    with pytest.raises(BadUseError, match="limit: 'all' is no whole number"):
        world.ask("jobs", limit="all")


def test_the_fleet_is_told_over_time_by_model_and_by_node(world: World) -> None:
    document = small_site(world).ask("fleet", until=str(iso(T0 + 2 * HOUR)))
    assert (document["device_count"], document["as_of"]) == (2, iso(T0 + HOUR))
    assert {row["key"]: row["gpu_seconds"]["capacity"] for row in document["by_model"]} == {"A": 3600.0, "B": 3600.0}
    assert {row["key"]: row["used_ratio"] for row in document["by_node"]} == {"n0": 0.5, "n1": 0.0}
    assert [point["gpu_seconds"]["used"] for point in document["series"]] == [1800.0]
    assert [(event["kind"], event["happened_at"]) for event in document["events"]] == [("device_lost", iso(T0 + 3000))]


def test_a_mean_is_spread_evenly_over_the_fleet_s_time(world: World) -> None:
    summary = AttemptSummary("c/1#0:1", "t", 1.0, coverage_assumed=True, driver_util_ratio=0.25)
    world.fill([job(), attempt(end=2.0 * HOUR), allocation(device=None, end=2.0 * HOUR), summary])
    points = [point["gpu_seconds"] for point in world.ask("fleet")["series"]]
    assert [(point["used"], point["held_idle"], point["gaps"]) for point in points] == [(900.0, 2700.0, None)] * 2


def two_weeks(world: World) -> World:
    """One job in week 44 (half busy), one in week 45 (all busy), one GPU each."""
    records: list[Any] = []
    samples = []
    for number, start, busy in [(1, HOUR - WEEK, 0.5), (2, HOUR, 1.0)]:
        words = {"user": "ann", "name": f"unet_lr{number}"}
        records += [
            job(number, **words),
            attempt(number, start, start + HOUR),
            allocation(number, start=start, end=start + HOUR),
        ]
        samples += [
            sample(start + at, "GPU-0", number, driver_util_ratio=busy, process_count=1.0) for at in range(0, HOUR, 60)
        ]
    return world.fill(records, samples)


def test_a_week_is_told_beside_the_one_before(world: World) -> None:
    document = two_weeks(world).ask("weekly", week="2026-W45")
    assert (document["since"], document["until"], document["audience"]) == (iso(T0), iso(T0 + WEEK), "operator")
    waste = document["waste"]
    assert (waste["gpu_seconds"]["used"], waste["previous_week"]) == (3600.0, "2026-W44")
    assert waste["previous_gpu_seconds"]["used"] == 1800.0
    assert waste["by_user"][0]["previous_gpu_seconds"]["held_idle"] == 1800.0
    assert [(week["week"], week["used_ratio"]) for week in waste["trend"]] == [("2026-W44", 0.5), ("2026-W45", 1.0)]
    assert document["families"]["ungrouped"] == ["c/2#0"]
    assert document["outcomes"]["outcomes"] == []
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_last_complete_week_with_data_is_the_default(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    two_weeks(world)
    monkeypatch.setattr(pipeline, "now", lambda: T0 + WEEK - 1.0)
    assert world.ask("weekly")["week"] == "2026-W44"
    two_weeks(world)
    monkeypatch.setattr(pipeline, "now", lambda: T0 + WEEK + 1.0)
    assert world.ask("weekly")["week"] == "2026-W45"


def test_a_job_that_runs_on_into_the_new_week_was_held_in_the_old_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill([job(), attempt(start=-HOUR, end=None), allocation(start=-HOUR, end=HOUR)])
    monkeypatch.setattr(pipeline, "now", lambda: T0 + HOUR)
    assert world.ask("weekly")["week"] == "2026-W44"


def test_a_week_that_is_not_over_must_be_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.fill([job(), attempt(), allocation()])
    monkeypatch.setattr(pipeline, "now", lambda: T0 + 2 * HOUR)
    with pytest.raises(NotFoundError, match="no complete week"):
        world.ask("weekly")
    assert world.ask("weekly", week="2026-W45")["waste"]["jobs"] == 1


@pytest.mark.parametrize(
    "window",
    [
        {"since": "2030-01-01"},
        {"until": "1999-01-01"},
        {"since": "0001-01-02", "until": "9998-01-01"},
        {"week": "2026-W20"},
    ],
)
@pytest.mark.parametrize("question", ["waste", "jobs", "families", "recommend", "fleet", "analyze"])
def test_a_window_far_from_the_data_is_answered_too(question: str, window: dict[str, str], world: World) -> None:
    document = small_site(world).ask(question, **window, **({"by": "week"} if question == "waste" else {}))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    amounts = document.get("gpu_seconds")
    if amounts is not None:
        assert amounts["allocated"] == (7200.0 if window.get("since") == "0001-01-02" else 0.0)


def test_the_time_axis_ends_where_the_data_end(world: World) -> None:
    series = small_site(world).ask("fleet", week="2026-W45")["series"]
    assert [(point["start_at"], point["end_at"]) for point in series] == [(iso(T0), iso(T0 + HOUR))]


def test_families_and_advice_rest_on_the_same_accounts_as_waste(world: World) -> None:
    two_weeks(world)
    waste, families, advice = (world.ask(question) for question in ("waste", "families", "recommend"))
    (family,) = families["families"]
    assert family["gpu_seconds"] == waste["gpu_seconds"]
    assert advice["rung"] == waste["rung"]
    assert world.ask("job", id="1")["family_id"] == family["family_id"]
    assert world.ask("analyze")["families"] == 1


def test_nothing_is_advised_where_nothing_is_known(world: World) -> None:
    document = world.fill([job(), attempt(), allocation(device=None)]).ask("recommend")
    assert (document["recommendations"], document["rung"]) == ([], None)


def test_equal_questions_to_the_same_data_run_once(world: World) -> None:
    small_site(world)
    first = world.ask("waste")
    assert world.ask("waste") is first
    assert small_site(world).ask("waste") is not first
