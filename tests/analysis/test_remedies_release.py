"""What ending idle holders would have given back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.account import GpuSeconds
from analysis.evidence import AttemptEvidence, IdleStretch
from analysis.remedies.release import GRACE_LONG, GRACE_SHORT, GRACE_USUAL, REMEDY
from analysis.remedy import Case
from warehouse.contract.metrics import Rung
from warehouse.contract.model import AttemptState, Recommendation, Refusal, Saving, Subject
from warehouse.contract.settings import Settings

HOUR = 3600.0


def idle(start_hour: float, end_hour: float, device: str = "GPU-a", kind: str = "with_process") -> IdleStretch:
    return IdleStretch(device, start_hour * HOUR, end_hour * HOUR, kind, 1.0)


def holder(hours: float, *stretches: IdleStretch, gpus: int = 1, **more: Any) -> AttemptEvidence:
    """An attempt that starts at 0, is idle in the stretches and used in the rest."""
    by_kind = {"no_process": 0.0, "with_process": 0.0}
    for stretch in stretches:
        by_kind[stretch.kind] += stretch.gpu_seconds
    held_idle = sum(by_kind.values())
    account = GpuSeconds(hours * HOUR * gpus, 0.0, 0.0, hours * HOUR * gpus - held_idle, held_idle, **by_kind, gaps=0.0)
    facts: dict[str, Any] = {
        "attempt_key": "c/7#0:1",
        "job_key": "c/7#0",
        "scheduler_job_id": "7",
        "cluster": "c",
        "state": AttemptState.COMPLETED,
        "start_at": 0.0,
        "end_at": hours * HOUR,
        "gpu_count": float(gpus),
        "node_count": 1,
        "gpu_seconds": account,
        "device_uuids": ("GPU-a", "GPU-b")[:gpus],
        "idle_stretches": stretches,
    }
    return AttemptEvidence(**(facts | more))


def judge(
    *attempts: AttemptEvidence, settings: Settings | None = None, until_hour: float = 1000
) -> Recommendation | Refusal | None:
    case = Case(Subject("job", "c/7#0"), "ada: night", attempts, Rung.GPU_BOUND, 0.0, until_hour * HOUR)
    return REMEDY.judge(case, settings or Settings())


def advice(*attempts: AttemptEvidence, until_hour: float = 1000) -> Recommendation:
    found = judge(*attempts, until_hour=until_hour)
    assert isinstance(found, Recommendation)
    return found


def test_a_card_idle_for_ten_hours_gives_back_all_but_the_grace() -> None:
    # Idle 10 h: 8, 9 and 9.75 h are left after 2 h, 1 h and 15 min; the pause of 0.5 h adds 0.25 h to the last.
    found = advice(holder(14, idle(1, 1.5), idle(4, 14)))
    assert found.saving_gpu_seconds == Saving(8 * HOUR, 9 * HOUR, 10 * HOUR)
    assert (found.confidence, found.rung) == ("modelled", "gpu_bound")
    assert found.evidence == (
        "1 of 1 attempts have samples and ran long enough",
        "14.0 GPU-hours held, 0.0 of them without data",
        "0.0 GPU-hours without a process, 10.5 with a process that did nothing for long",
        "2 stretches longer than 900 s, the longest 10.0 h from 1970-01-01T04:00:00Z",
        "1 of these stretches were followed by more work",
        "1 attempts held their GPUs for 10.0 GPU-hours after their work had ended",
    )


def test_finished_work_says_how_long_it_took_and_what_limit_would_do() -> None:
    # The work of 4 h is over, 16 h are held: with a fifth to spare 4.8 h, in quarters of an hour 5 h.
    found = advice(holder(20, idle(4, 20, kind="no_process"), time_limit_seconds=20 * HOUR))
    assert found.evidence[-2:] == (
        "1 attempts held their GPUs for 16.0 GPU-hours after their work had ended",
        "the work took 4.0 h at most, the time limit was 20.0 h",
    )
    assert found.action.endswith("#SBATCH --time=05:00:00")


def test_a_session_has_no_end_of_work() -> None:
    found = advice(holder(20, idle(4, 20), interactive=True))
    assert not any("after their work" in row for row in found.evidence)


def test_stretches_of_both_kinds_that_follow_each_other_are_one() -> None:
    found = advice(holder(10, idle(2, 5, kind="no_process"), idle(5, 10)))
    assert found.saving_gpu_seconds.low == 6 * HOUR


def test_only_time_in_which_all_devices_of_the_job_are_idle_is_claimed() -> None:
    found = advice(holder(10, idle(2, 10), idle(5, 10, "GPU-b"), gpus=2))
    # Both are idle for 5 h: less 1 h of grace, on two cards.
    assert found.saving_gpu_seconds.likely == 8 * HOUR
    assert "3.0 GPU-hours idle on some of a job's devices" in found.evidence[-1]


def test_a_job_that_leaves_one_of_two_devices_idle_has_nothing_to_release() -> None:
    assert judge(holder(10, idle(0, 10), gpus=2)) is None


def test_a_running_idle_job_is_ended_by_its_id() -> None:
    found = advice(holder(10, idle(1, 10), end_at=None, interactive=True), until_hour=10)
    assert found.action.splitlines()[0] == "scancel 7"
    assert "shutdown_no_activity_timeout" in found.action


def test_a_running_job_that_works_again_is_not_ended() -> None:
    found = advice(holder(20, idle(1, 10), idle(19.5, 20), end_at=None), until_hour=20)
    assert "scancel" not in found.action
    assert "scancel" not in advice(holder(20, idle(1, 10), end_at=None), until_hour=20).action


def test_a_hostile_job_id_never_becomes_a_command() -> None:
    found = advice(holder(10, idle(1, 10), end_at=None, scheduler_job_id="7; rm -rf ~\nreboot"), until_hour=10)
    assert found.action.splitlines()[0] == "# end job '7; rm -rf ~\\nreboot'"


def test_short_gaps_are_never_claimed() -> None:
    gaps = GpuSeconds(10 * HOUR, 0.0, 0.0, HOUR, 9 * HOUR, 0.0, 0.0, 9 * HOUR)
    assert judge(holder(10, gpu_seconds=gaps)) is None


def test_a_busy_job_gets_no_advice() -> None:
    assert judge(holder(10)) is None


def test_an_attempt_shorter_than_half_an_hour_is_left_out() -> None:
    assert judge(holder(0.4, idle(0, 0.4))) is None


def test_accounting_alone_is_refused_for_want_of_samples() -> None:
    refusal = judge(holder(10, gpu_seconds=GpuSeconds(10 * HOUR, 10 * HOUR, 0.0)))
    assert isinstance(refusal, Refusal)
    assert refusal.reason.startswith("Accounting tells")
    assert refusal.needs == ("device samples with the number of processes",)


def test_means_alone_are_refused_for_want_of_stretches() -> None:
    refusal = judge(holder(10, gpu_seconds=GpuSeconds(10 * HOUR, 0.0, 0.0, 2 * HOUR, 8 * HOUR)))
    assert isinstance(refusal, Refusal)
    assert refusal.reason.startswith("Only means")
    assert refusal.needs == ("device samples at a cadence of a minute or less",)


def test_the_advice_keeps_its_id_from_week_to_week() -> None:
    assert advice(holder(10, idle(1, 10))).recommendation_id == advice(holder(30, idle(5, 30))).recommendation_id


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 30)), min_size=1, max_size=5),
    st.sampled_from([1, 2]),
    st.floats(0, 5 * HOUR),
)
def test_a_saving_is_ordered_within_the_allocation_and_falls_with_the_grace(
    pauses: list[tuple[float, float]], gpus: int, longer: float
) -> None:
    at, stretches = 0.0, []
    for work, pause in pauses:
        stretches += [idle(at + work, at + work + pause, device) for device in ("GPU-a", "GPU-b")[:gpus]]
        at += work + pause
    attempt = holder(at + 1, *stretches, gpus=gpus)
    found = judge(attempt)
    patient = {setting.name: setting.default + longer for setting in (GRACE_LONG, GRACE_USUAL, GRACE_SHORT)}
    later = judge(attempt, settings=Settings(patient))
    if isinstance(found, Recommendation):
        saving = found.saving_gpu_seconds
        assert saving.likely is not None
        assert 0 <= saving.low <= saving.likely <= saving.high <= attempt.gpu_seconds.allocated
        claimable = (attempt.gpu_seconds.no_process or 0.0) + (attempt.gpu_seconds.with_process or 0.0)
        assert saving.high <= claimable * (1 + 1e-9)
    if isinstance(later, Recommendation):
        assert isinstance(found, Recommendation)
        assert later.saving_gpu_seconds.high <= found.saving_gpu_seconds.high


@pytest.mark.parametrize("order", [(900.0, 3600.0, 7200.0), (3600.0, 900.0, 7200.0)])
def test_graces_in_any_order_give_an_ordered_range(order: tuple[float, float, float]) -> None:
    names = (GRACE_LONG.name, GRACE_USUAL.name, GRACE_SHORT.name)
    found = judge(holder(10, idle(0, 10)), settings=Settings(dict(zip(names, order, strict=True))))
    assert isinstance(found, Recommendation)
    assert found.saving_gpu_seconds == Saving(8 * HOUR, 9 * HOUR, 9.75 * HOUR)


def test_attempts_without_samples_do_not_hide_those_with() -> None:
    blind = replace(holder(10, gpu_seconds=GpuSeconds(10 * HOUR, 10 * HOUR, 0.0)), attempt_key="c/7#0:2")
    found = advice(holder(10, idle(0, 10)), blind)
    assert found.evidence[0] == "1 of 2 attempts have samples and ran long enough"
