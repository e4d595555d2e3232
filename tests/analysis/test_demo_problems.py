"""The problems that were planted in the demo cluster: each is found, named rightly, ranked by GPU-hours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from analysis import pipeline
from collector.simulate.history import write_history
from collector.simulate.scenario import load_scenario
from collector.simulate.schedule import attempts
from warehouse.contract.settings import Settings
from warehouse.store import open_store

DAY = 86_400.0
START_AT = 1_793_577_600.0 - 14 * DAY


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Give the advice on the demo's two weeks, with the workload of each subject."""
    demo = load_scenario()
    store = open_store(tmp_path_factory.mktemp("demo"), create=True)
    until = START_AT + demo.history_minutes * 60

    def send(batch: Any) -> None:
        with store.transaction() as transaction:
            transaction.write(batch.tables)

    write_history(demo, START_AT, START_AT, until, send, with_inventory=True)
    settings = Settings()
    document: dict[str, Any] = pipeline.ANSWERS["recommend"](store, settings, {})
    families: Any = pipeline.ANSWERS["families"](store, settings, {})["families"]
    work = {one.job_key("demo"): one.workload.name for one in attempts(demo, START_AT, START_AT, until)}
    of = work | {one["family_id"]: work[one["members"][0]] for one in families}
    for one in (*document["recommendations"], *document["refusals"]):
        one["workload"] = of.get(one["subject"]["id"], one["subject"]["id"])
    yield document
    store.close()


def found(advice: dict[str, Any], workload: str) -> dict[str, dict[str, Any]]:
    """Give the best advice of each remedy on a workload."""
    best: dict[str, dict[str, Any]] = {}
    for one in advice["recommendations"]:
        if one["workload"] == workload:
            best.setdefault(one["remedy"], one)
    return best


def test_the_job_that_waits_for_data_is_fed(advice: dict[str, Any]) -> None:
    assert found(advice, "stalled")["feed"]["title"].startswith("Feed GPUs that wait for storage")


def test_the_job_that_its_simulator_bounds_lacks_cores(advice: dict[str, Any]) -> None:
    assert found(advice, "simulation")["feed"]["title"].startswith("Feed GPUs that wait for work on the CPU")


def test_the_notebook_is_released(advice: dict[str, Any]) -> None:
    assert "release" in found(advice, "notebook")


def test_the_work_that_holds_cards_after_its_end_is_released(advice: dict[str, Any]) -> None:
    assert "release" in found(advice, "crashed")


def test_the_lost_card_is_brought_back(advice: dict[str, Any]) -> None:
    lost = found(advice, "gpu-a2")["fix"]
    assert lost["title"] == "Bring lost cards back: gpu-a2"
    # Lost at minute 10860 of 20160: 155 h, less a day.
    assert lost["saving_gpu_seconds"]["likely"] == pytest.approx((155 - 24) * 3600.0, rel=0.01)


def test_the_sweep_shares_cards(advice: dict[str, Any]) -> None:
    assert {"share", "fuse"} & set(found(advice, "sweep"))


def test_the_good_citizen_gets_no_advice(advice: dict[str, Any]) -> None:
    assert found(advice, "pretrain") == {}


def test_advice_is_ranked_by_likely_gpu_hours_and_bounds_stand_last(advice: dict[str, Any]) -> None:
    likely = [one["saving_gpu_seconds"]["likely"] for one in advice["recommendations"]]
    known = [one for one in likely if one is not None]
    assert likely == [*sorted(known, reverse=True), *[None] * (len(likely) - len(known))]
