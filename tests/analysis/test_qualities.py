"""Qualities beside the account: how well used time fills the card, and how failed time ended."""

from __future__ import annotations

import pytest

from analysis.account import GpuSeconds
from analysis.qualities import idle_money
from tests.analysis.worlds import World, allocation, attempt, job, sample
from warehouse.contract.model import AttemptState


def test_activity_is_told_of_used_time_alone(world: World) -> None:
    # Busy in every second minute, then 40 % of the SMs: of the used time 40 %, of all time 20 %.
    samples = [
        sample(60.0 * at, engine_active_ratio=float(at % 2), sm_active_ratio=0.4 * (at % 2), process_count=1.0)
        for at in range(60)
    ]
    document = world.fill([job(user="ada"), attempt(), allocation()], samples).ask("waste")
    (row,) = document["rows"]
    for known in (document["qualities"], row["qualities"]):
        assert known["of_used"]["sm_active_ratio"]["value"] == pytest.approx(0.4)
        assert known["of_used"]["sm_active_ratio"]["coverage_ratio"] == pytest.approx(1.0)
        assert known["of_used"]["tensor_active_ratio"] is None


def test_failed_time_is_told_by_how_it_ended_and_sums_to_the_account(world: World) -> None:
    states = {1: AttemptState.TIMEOUT, 2: AttemptState.NODE_FAIL, 3: AttemptState.TIMEOUT, 4: AttemptState.COMPLETED}
    records = [
        one
        for number, state in states.items()
        for one in (job(number), attempt(number, state=state), allocation(number, f"GPU-{number}"))
    ]
    document = world.fill(records).ask("waste")
    failed = document["qualities"]["failed_by_state"]
    assert failed == {"node_fail": 3600.0, "timeout": 7200.0}
    assert sum(failed.values()) == document["gpu_seconds"]["failed"]


def test_what_nobody_measures_is_not_zero(world: World) -> None:
    known = world.fill([job(), attempt(), allocation()]).ask("waste")["qualities"]
    assert (known["of_used"]["sm_active_ratio"], known["fragmented_gpu_seconds"]) == (None, None)
    assert known["fragmented_reason"]


def test_idle_time_has_a_price_where_both_are_known() -> None:
    account = GpuSeconds(7200.0, 0.0, 0.0, 3600.0, 3600.0)
    assert idle_money(account, 2.5) == 2.5
    assert idle_money(account, -1.0) is None
    assert idle_money(GpuSeconds(7200.0, 7200.0, 0.0), 2.5) is None
