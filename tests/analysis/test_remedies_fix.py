"""What broken cards, nodes and work cost, and what mending them in time would have spared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.account import GpuSeconds
from analysis.evidence import AttemptEvidence, Happening, RankWork, Reading
from analysis.remedies.fix import REMEDY
from analysis.remedy import Case, NodeFacts
from warehouse.contract.metrics import Rung
from warehouse.contract.model import AttemptState, Recommendation, Refusal, Saving, Subject
from warehouse.contract.settings import Settings

HOUR = 3600.0
DAY = 24 * HOUR


def job(number: int, state: AttemptState = AttemptState.COMPLETED, hours: float = 10.0, **more: Any) -> AttemptEvidence:
    """The attempt that begins at this hour x 100, on one GPU."""
    facts: dict[str, Any] = {
        "attempt_key": f"c/{number}#0:1",
        "job_key": f"c/{number}#0",
        "scheduler_job_id": str(number),
        "cluster": "c",
        "state": state,
        "start_at": number * 100 * HOUR,
        "end_at": (number * 100 + hours) * HOUR,
        "gpu_count": 1.0,
        "node_count": 1,
        "gpu_seconds": GpuSeconds(hours * HOUR, 0.0, 0.0, hours * HOUR, 0.0, 0.0, 0.0, 0.0),
        "nodes": ("n0",),
    }
    return AttemptEvidence(**(facts | more))


def judge(
    *attempts: AttemptEvidence, node: NodeFacts | None = None, kind: str = "family"
) -> Recommendation | Refusal | None:
    label = "n0" if kind == "node" else "ada: train"
    case = Case(Subject(kind, label), label, attempts, Rung.ENGINE_ACTIVE, 0.0, 10_000 * HOUR, node)
    return REMEDY.judge(case, Settings())


def advice(*attempts: AttemptEvidence, node: NodeFacts | None = None, kind: str = "family") -> Recommendation:
    found = judge(*attempts, node=node, kind=kind)
    assert isinstance(found, Recommendation)
    return found


def xid(at: float = 0.0) -> Happening:
    return Happening("xid", at, "n0", "GPU-0", "79")


def test_a_card_lost_for_a_week_is_worth_the_week_less_the_repair() -> None:
    found = advice(node=NodeFacts("n0", {"GPU-7": ((0.0, 7 * DAY),)}), kind="node")
    assert found.saving_gpu_seconds == Saving(4 * DAY, 6 * DAY, 7 * DAY - 4 * HOUR)
    assert (found.title, found.confidence) == ("Bring lost cards back: n0", "modelled")
    assert found.evidence == (
        "1 of its cards were lost for 168.0 GPU-hours",
        "the first is GPU-7, since 1970-01-01T00:00:00Z",
    )
    assert found.action.startswith('scontrol update nodename=n0 state=drain reason="lost GPU"')


def test_a_node_that_ended_four_attempts_is_a_bound() -> None:
    # After the first two: 20 h at most; after five, with an hour each since the last checkpoint: nothing.
    ended = [job(number, AttemptState.NODE_FAIL) for number in range(3)]
    ended.append(job(3, AttemptState.FAILED, events=(xid(),)))
    found = advice(*ended, job(4), job(5, AttemptState.FAILED), kind="node")
    assert found.saving_gpu_seconds == Saving(0.0, None, 20 * HOUR)
    assert found.title == "Drain a node that ends work: n0"
    assert found.evidence == ("it ended 4 attempts that held 40.0 GPU-hours", "events of hardware: 1 of xid")


def test_of_several_nodes_the_one_with_the_event_is_blamed() -> None:
    wide = [job(number, AttemptState.NODE_FAIL, nodes=("n0", "n1")) for number in range(4)]
    assert judge(*wide, kind="node") is None
    assert judge(*(job(n, AttemptState.NODE_FAIL, nodes=("n0", "n1"), events=(xid(),)) for n in range(4)), kind="node")


def test_heat_costs_at_most_the_clock_that_was_lost() -> None:
    # Slowed 30 % of 100 h to 1.2 of 1.5 GHz: 30 h x 0.2.
    board = {
        "thermal_slowed_ratio": Reading(0.3, "samples", 1.0),
        "slowed_clock_hertz": Reading(1.2e9, "samples", 0.3),
        "free_clock_hertz": Reading(1.5e9, "samples", 0.7),
    }
    found = advice(job(1, hours=100, board=board), kind="node")
    assert found.saving_gpu_seconds == Saving(0.0, None, pytest.approx(6 * HOUR))  # type: ignore[arg-type]
    assert found.evidence[1] == "at worst 1.20 GHz in place of 1.50 GHz"


@pytest.mark.parametrize("absent", ["thermal_slowed_ratio", "slowed_clock_hertz", "free_clock_hertz"])
def test_without_clocks_nothing_is_said_of_heat(absent: str) -> None:
    board = {
        name: Reading(value, "samples", 1.0)
        for name, value in (
            *(("thermal_slowed_ratio", 0.3), ("slowed_clock_hertz", 1.2e9)),
            ("free_clock_hertz", 1.5e9),
        )
        if name != absent
    }
    assert judge(job(1, hours=100, board=board), kind="node") is None


def test_a_crash_loop_is_spared_after_the_first_failures() -> None:
    # Eight in a row of 10 h: after 5, 3 and 2 there are 3, 5 and 6 left.
    crashes = [job(number, AttemptState.FAILED) for number in range(8)]
    found = advice(*crashes, job(8), job(9, AttemptState.OUT_OF_MEMORY))
    assert found.saving_gpu_seconds == Saving(30 * HOUR, 50 * HOUR, 60 * HOUR)
    assert found.evidence == ("9 of 10 attempts failed and held 90.0 GPU-hours", "8 failed, 1 out of memory")
    assert "afterok" in found.action


def test_a_success_between_failures_ends_the_loop() -> None:
    states = [AttemptState.FAILED, AttemptState.FAILED, AttemptState.COMPLETED] * 4
    assert judge(*(job(number, state) for number, state in enumerate(states))) is None


def test_time_limits_that_end_work_again_and_again_are_a_bound() -> None:
    found = advice(*(job(number, AttemptState.TIMEOUT) for number in range(4)))
    assert found.saving_gpu_seconds == Saving(0.0, None, 20 * HOUR)
    assert found.title == "Ends at its time limit again and again: ada: train"


def test_a_slow_rank_is_named_with_what_the_others_waited() -> None:
    # Three ranks compute 30 min of each hour, the fourth 60: without its excess all four save 30 min, in 9 hours.
    ranks = tuple(RankWork(f"r{rank}", (1800.0 if rank < 3 else 3600.0,) * 9) for rank in range(4))
    found = advice(job(1, hours=40, gpu_count=4.0, ranks=ranks))
    assert found.saving_gpu_seconds == Saving(18 * HOUR, 18 * HOUR, 18 * HOUR)
    # 3600 x (3 / 1800 + 1 / 3600) / 4
    assert found.evidence[:2] == (
        "ranks paid 1.75 times the time that they would have needed without waiting",
        "r3 of c/1#0:1 is the slowest",
    )


def test_the_costliest_problem_is_told_and_the_others_are_named() -> None:
    ranks = tuple(RankWork(f"r{rank}", (1800.0 if rank < 3 else 3600.0,) * 9) for rank in range(4))
    crashes = [job(number, AttemptState.FAILED) for number in range(8)]
    found = advice(*crashes, job(9, ranks=ranks))
    assert found.title.startswith("Stop what crashes")
    assert found.evidence[-1] == "also: mend or move the slowest rank"


def test_sound_work_and_sound_nodes_get_no_advice() -> None:
    assert judge(job(1), job(2)) is None
    assert judge(job(1), node=NodeFacts("n0"), kind="node") is None
    assert judge(job(1, ranks=tuple(RankWork(f"r{rank}", (100.0,) * 4) for rank in range(4)))) is None


def test_a_hostile_node_name_never_becomes_a_command() -> None:
    case = Case(Subject("node", "x"), "x; reboot", (), None, 0.0, DAY, NodeFacts("x", {"GPU-0": ((0.0, 9 * DAY),)}))
    found = REMEDY.judge(case, Settings())
    assert isinstance(found, Recommendation)
    assert found.action == "# drain node 'x; reboot'"


STATES = st.sampled_from([AttemptState.COMPLETED, AttemptState.FAILED, AttemptState.TIMEOUT, AttemptState.NODE_FAIL])


@given(st.lists(st.tuples(STATES, st.floats(0.1, 50.0)), min_size=1, max_size=12), st.sampled_from(["family", "node"]))
def test_a_saving_is_ordered_within_the_allocation_and_never_falls_with_more_failures(
    drawn: list[tuple[AttemptState, float]], kind: str
) -> None:
    def high(states: list[tuple[AttemptState, float]]) -> float:
        attempts = [job(number, state, hours) for number, (state, hours) in enumerate(states)]
        found = judge(*attempts, kind=kind)
        if not isinstance(found, Recommendation):
            return 0.0
        saving = found.saving_gpu_seconds
        likely = saving.high if saving.likely is None else saving.likely
        assert 0 <= saving.low <= likely <= saving.high
        assert saving.high <= sum(one.gpu_seconds.allocated for one in attempts) * (1 + 1e-9)
        return saving.high

    crashed = [one for one in drawn if one[0] is AttemptState.NODE_FAIL]
    if kind == "node":
        assert high(crashed) <= high([*crashed, (AttemptState.NODE_FAIL, 10.0)])
    else:
        high(drawn)
