"""Nobody reads another person's jobs, by no question, id, page, cache or error; the own ones are seen whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analysis import pipeline
from tests.analysis.worlds import T0, World, allocation, attempt, job, sample
from warehouse.contract import model
from warehouse.contract.errors import NotFoundError, TrueloadError
from warehouse.viewer import Viewer

SECRETS = ("bob", "c/2", "c/3", "secret", "carol", "team-b")
ALICE = Viewer("alice")
QUESTIONS: dict[str, list[dict[str, str]]] = {
    "waste": [{"by": by} for by in ("user", "account", "gpu_model", "partition", "week", "job")],
    "jobs": [{}, {"limit": "1", "offset": "1"}, {"limit": "10000"}],
    "families": [{}],
    "recommend": [{}],
    "job": [{"id": "1"}],
    "fleet": [{}],
    "weekly": [{"week": "2026-W45"}],
    "gpu_options": [{"id": "c/1#0"}],
    "analyze": [{}],
}


def words(user: str, account: str, name: str) -> dict[str, Any]:
    """Give what a job says of its owner."""
    return {"user": user, "account": account, "name": name, "command": f"{name}.py", "work_dir": f"/home/{user}"}


@pytest.fixture
def shared(world: World) -> World:
    """Give a store in which alice and bob share a device, and carol of bob's team holds another."""
    return world.fill(
        [
            model.Device("GPU-0", "c", "n1", T0, gpu_model="A100"),
            model.Device("GPU-1", "c", "n2", T0, gpu_model="A100"),
            job(1, **words("alice", "team-a", "mine")),
            job(2, **words("bob", "team-b", "secret")),
            job(3, **words("carol", "team-b", "secret2")),
            *(attempt(number) for number in (1, 2, 3)),
            allocation(1, "GPU-0"),
            allocation(2, "GPU-0", 1800.0),
            allocation(3, "GPU-1"),
            model.Event("c", "n1", "gap", T0 + 60.0, "GPU-0", "c/2#0:1", "secret of bob"),
            model.Event("c", "n1", "lost", T0 + 70.0, "GPU-0", None, "pid 7 of bob"),
        ],
        [
            sample(at, device, number, driver_util_ratio=0.5, process_count=1.0)
            for number, device in ((1, "GPU-0"), (2, "GPU-0"), (3, "GPU-1"))
            for at in range(0, 3600, 60)
        ],
    )


def ask(world: World, viewer: Viewer, question: str, **parameters: str) -> dict[str, Any]:
    """Ask as somebody."""
    return pipeline.ANSWERS[question](world.store.seen_by(viewer), world.settings, parameters)


def test_every_question_is_tried() -> None:
    assert set(QUESTIONS) == set(pipeline.ANSWERS)


@pytest.mark.parametrize("question", pipeline.ANSWERS)
def test_no_question_tells_a_person_of_somebody_elses_jobs(shared: World, question: str) -> None:
    for parameters in QUESTIONS[question]:
        # An operator asked the same before: nothing may come from memory.
        whole = json.dumps(shared.ask(question, **parameters))
        told = json.dumps(ask(shared, ALICE, question, **parameters))
        assert [secret for secret in SECRETS if secret in told] == [], (question, parameters)
        assert whole == json.dumps(shared.ask(question, **parameters))


@pytest.mark.parametrize("question", ["waste", "jobs", "families", "fleet", "weekly"])
def test_an_operator_is_told_of_everybody(shared: World, question: str) -> None:
    told = "".join(json.dumps(shared.ask(question, **parameters)) for parameters in QUESTIONS[question])
    assert any(secret in told for secret in SECRETS)


@pytest.mark.parametrize("name", ["2", "c/2#0", "3", "c/3#0", "secret"])
def test_a_job_that_one_may_not_see_is_not_found_as_one_that_is_not_there(shared: World, name: str) -> None:
    with pytest.raises(NotFoundError) as refused:
        ask(shared, ALICE, "job", id=name)
    with pytest.raises(NotFoundError) as absent:
        ask(shared, ALICE, "job", id="999")
    assert str(refused.value).replace(name, "999") == str(absent.value)


def test_one_sees_the_own_job_as_an_operator_does_with_its_share_of_a_shared_device(shared: World) -> None:
    own, whole = ask(shared, ALICE, "job", id="1"), shared.ask("job", id="1")
    assert own["attempts"] == whole["attempts"]
    assert own["attempts"][0]["gpu_seconds"]["allocated"] == pytest.approx(1800.0 + 1800.0 / 2)


def test_capacity_is_not_known_from_the_own_jobs_and_is_from_the_fleet(shared: World) -> None:
    own = ask(shared, ALICE, "waste")["gpu_seconds"]
    assert (own["capacity"], own["unallocated"]) == (None, None)
    fleet = ask(shared, ALICE, "fleet")
    assert fleet["gpu_seconds"] == shared.ask("fleet")["gpu_seconds"]
    assert (fleet["by_node"], [event["detail"] for event in fleet["events"]]) == ([], [None])


def test_a_lead_sees_the_jobs_of_the_own_accounts_and_no_others(shared: World) -> None:
    rows = ask(shared, Viewer("dan", ("team-b",)), "waste", by="job")["rows"]
    assert sorted(row["key"] for row in rows) == ["c/2#0", "c/3#0"]


@pytest.mark.parametrize("name", ["' OR 1=1 --", "alice' OR 'a'='a", "", "ALICE", "%"])
def test_a_name_is_a_text_and_never_sql(shared: World, name: str) -> None:
    assert ask(shared, Viewer(name, (name,)), "waste", by="job")["rows"] == []


def test_who_sees_nothing_gets_answers_or_errors_that_tell_nothing(shared: World) -> None:
    for question in pipeline.ANSWERS:
        for parameters in QUESTIONS[question]:
            try:
                told = json.dumps(ask(shared, Viewer("nobody"), question, **parameters))
            except TrueloadError as error:
                told = str(error)
            assert [secret for secret in (*SECRETS, "alice", "mine") if secret in told] == [], question
