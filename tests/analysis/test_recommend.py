"""One ranked list of advice, and what was refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from analysis import recommend
from analysis.account import GpuSeconds
from analysis.evidence import AttemptEvidence, IdleStretch
from analysis.recommend import Advice, advise, recommend_document, remedies
from analysis.remedy import NodeFacts, Remedy
from analysis.repetition import find_families
from warehouse.contract.documents import RecommendDocument
from warehouse.contract.metrics import Rung
from warehouse.contract.model import AttemptState
from warehouse.contract.settings import Settings

HOUR = 3600.0


def job(number: int, name: str, idle_hours: float = 0, gap_hours: float = 0, **more: Any) -> AttemptEvidence:
    """Ten hours on one GPU: idle at the end for so long, in short gaps for so long, used else."""
    held_idle = (idle_hours + gap_hours) * HOUR
    stretch = IdleStretch(f"GPU-{number}", (10 - idle_hours) * HOUR, 10 * HOUR, "with_process", 1.0)
    facts: dict[str, Any] = {
        "attempt_key": f"c/{number}#0:1",
        "job_key": f"c/{number}#0",
        "scheduler_job_id": str(number),
        "cluster": "c",
        "state": AttemptState.COMPLETED,
        "start_at": 0.0,
        "end_at": 10 * HOUR,
        "gpu_count": 1.0,
        "node_count": 1,
        "gpu_seconds": GpuSeconds(
            10 * HOUR, 0.0, 0.0, 10 * HOUR - held_idle, held_idle, 0.0, idle_hours * HOUR, gap_hours * HOUR
        ),
        "name": name,
        "user": "ada",
        "device_uuids": (f"GPU-{number}",),
        "idle_stretches": (stretch,) if idle_hours else (),
    }
    return AttemptEvidence(**(facts | more))


@pytest.fixture(autouse=True)
def three_remedies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge by these, so that a new remedy does not change what is said of the list."""
    if "repository" not in request.fixturenames:
        chosen = {name: one for name, one in remedies().items() if name in {"fuse", "release", "share"}}
        monkeypatch.setattr(recommend, "remedies", lambda: chosen)


def advise_on(*jobs: AttemptEvidence, **values: object) -> Advice:
    settings = Settings({f"recommend.{key}": value for key, value in values.items()})
    return advise(jobs, find_families(jobs, settings), Rung.GPU_BOUND, 0.0, 10 * HOUR, settings)


def titles(advice: Advice) -> list[tuple[str, str]]:
    return [(one.remedy, one.title.partition(": ")[2]) for one in advice.recommendations]


NOTEBOOK = job(1, "bash", idle_hours=9)
SWEEP = tuple(job(number, f"unet_{number}", gap_hours=8) for number in range(10, 14))
BUSY = job(2, "llm")
NIGHTS = tuple(job(number, "dream", idle_hours=4) for number in (20, 21))


def test_advice_is_ranked_by_its_likely_saving_and_bounds_stand_last() -> None:
    advice = advise_on(*SWEEP, BUSY, *NIGHTS, NOTEBOOK)
    assert titles(advice) == [
        ("share", "ada: unet_#"),  # 40 card-hours on one card at 0.945 of their speed
        ("release", "ada: bash"),  # 9 h less 1 h
        ("release", "ada: dream"),  # 2 x (4 h less 1 h)
        ("fuse", "ada: unet_#"),  # 30 h, but a bound
    ]
    likely = [one.saving_gpu_seconds.likely for one in advice.recommendations]
    assert likely == [pytest.approx(HOUR * (40 - 10 * 1.12**0.5)), 8 * HOUR, 6 * HOUR, None]


def test_work_that_fills_its_card_gets_neither_advice_nor_refusal() -> None:
    advice = advise_on(BUSY)
    assert (advice.recommendations, advice.refusals) == ((), ())


def test_advice_on_the_same_subject_excludes_each_other() -> None:
    mixed = tuple(job(number, "unet", idle_hours=4, gap_hours=4) for number in (1, 2, 3))
    found = advise_on(*mixed).recommendations
    assert {one.remedy for one in found} == {"fuse", "release", "share"}
    for one in found:
        assert set(one.excludes) == {other.recommendation_id for other in found if other is not one}


def test_a_release_and_any_other_advice_never_claim_the_same_seconds() -> None:
    mixed = tuple(job(number, "unet", idle_hours=4, gap_hours=4) for number in (1, 2, 3))
    claimed = {one.remedy: one.saving_gpu_seconds.high for one in advise_on(*mixed).recommendations}
    for other in ("fuse", "share"):
        assert claimed["release"] + claimed[other] <= sum(one.gpu_seconds.held_idle or 0.0 for one in mixed)


@pytest.mark.parametrize(
    "excluded",
    [
        {"excluded_users": ("ada",)},
        {"excluded_partitions": ("reserve",)},
        {"excluded_name_prefixes": ("ba", "no")},
        {"min_gpu_seconds": 11 * HOUR},
    ],
)
def test_what_a_site_excludes_gets_no_advice(excluded: dict[str, object]) -> None:
    notebook = job(1, "bash", idle_hours=9, partition="reserve")
    assert len(advise_on(notebook).recommendations) == 1
    assert advise_on(notebook, **excluded).recommendations == ()


def test_refusals_beyond_the_limit_are_counted() -> None:
    blind = GpuSeconds(10 * HOUR, 10 * HOUR, 0.0)
    jobs = [job(number, "bash", gpu_seconds=blind) for number in range(5)]
    advice = advise_on(*jobs, max_refusals=2)
    assert (len(advice.refusals), advice.refusals_left_out) == (2, 3)


def test_money_is_null_without_a_price_and_multiplied_with_one() -> None:
    advice = advise_on(NOTEBOOK)
    unpriced = recommend_document(advice, Settings())["recommendations"]
    priced = recommend_document(advice, Settings({"cost.gpu_hour_price": 2.0, "cost.currency": "CHF"}))[
        "recommendations"
    ]
    assert isinstance(unpriced, list)
    assert isinstance(priced, list)
    assert unpriced[0]["money"] == {"low": None, "likely": None, "high": None, "currency": None}
    assert priced[0]["money"] == {"low": 14.0, "likely": 16.0, "high": 17.5, "currency": "CHF"}


def test_the_document_has_the_keys_of_the_contract() -> None:
    document = recommend_document(advise_on(NOTEBOOK, *SWEEP), Settings())
    assert document["since"] == "1970-01-01T00:00:00Z"
    assert document["until"] == "1970-01-01T10:00:00Z"
    recommendations = document["recommendations"]
    assert isinstance(recommendations, list)
    TypeAdapter(RecommendDocument).validate_python(document)
    assert recommendations[-1]["saving_gpu_seconds"]["likely"] is None


def test_every_remedy_is_found_and_documented(repository: Any) -> None:
    assert {"fuse", "release", "share"} <= set(remedies())
    for remedy in remedies().values():
        page = (repository / "docs" / "remedies" / f"{remedy.name}.md").read_text(encoding="utf-8")
        assert all(f"`{setting.name}`" in page for setting in remedy.settings)


def test_nodes_are_put_before_the_remedies_that_judge_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    for_nodes = Remedy("n", "n", "n", (), lambda case, _: seen.append(("n", case.subject.kind)), frozenset({"node"}))
    usual = Remedy("u", "u", "u", (), lambda case, _: seen.append(("u", case.subject.kind)))
    monkeypatch.setattr(recommend, "remedies", lambda: {"n": for_nodes, "u": usual})
    settings = Settings()
    jobs = (replace(BUSY, nodes=("n0",)),)
    advise(jobs, find_families(jobs, settings), Rung.GPU_BOUND, 0.0, 10 * HOUR, settings, [NodeFacts("n0")])
    assert seen == [("u", "job"), ("n", "node")]


def test_an_id_in_a_comment_marks_advice_as_followed() -> None:
    marked = job(3, "dream", comment="TRUELOAD_RECOMMENDATION=r-0123456789abcdef", gap_hours=1)
    assert advise_on(marked, BUSY).marked == ("r-0123456789abcdef",)
