"""What running repeats on fewer cards could have saved at most."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from analysis.account import GpuSeconds
from analysis.evidence import AttemptEvidence
from analysis.remedies.share_or_fuse import REMEDY, SHARED_BYTES
from analysis.remedy import Case
from analysis.saving import fit_count, stack
from warehouse.contract.metrics import Rung
from warehouse.contract.model import AttemptState, Recommendation, Refusal, Saving, Subject
from warehouse.contract.settings import Settings

HOUR = 3600.0
GIB = 2.0**30


def member(
    number: int, start_hour: float = 0, hours: float = 10, used: float | None = 0.2, **more: Any
) -> AttemptEvidence:
    """A member on one GPU with a mean busy share; its idle time is not split."""
    held = hours * HOUR
    known = GpuSeconds(held, 0.0, 0.0, held * used, held * (1 - used)) if used is not None else None
    facts: dict[str, Any] = {
        "attempt_key": f"c/{number}#0:1",
        "job_key": f"c/{number}#0",
        "scheduler_job_id": str(number),
        "cluster": "c",
        "state": AttemptState.COMPLETED,
        "start_at": start_hour * HOUR,
        "end_at": (start_hour + hours) * HOUR,
        "gpu_count": 1.0,
        "node_count": 1,
        "gpu_seconds": known or GpuSeconds(held, held, 0.0),
        "gpu_model": "A40",
    }
    return AttemptEvidence(**(facts | more))


def judge(*attempts: AttemptEvidence, kind: str = "family") -> Recommendation | Refusal | None:
    case = Case(Subject(kind, "f-1"), "ada: unet", attempts, Rung.GPU_BOUND, 0.0, 1000 * HOUR)
    return REMEDY.judge(case, Settings())


def bound(*attempts: AttemptEvidence) -> float:
    found = judge(*attempts)
    assert isinstance(found, Recommendation)
    return found.saving_gpu_seconds.high / HOUR


def refusal(*attempts: AttemptEvidence) -> Refusal:
    found = judge(*attempts)
    assert isinstance(found, Refusal)
    return found


def test_four_members_at_once_at_a_fifth_each_can_save_three_of_four_cards() -> None:
    # 40 card-hours, 8 used. On one card: 10 needed, so 30 freed; idle 32: the lesser is 30.
    found = judge(*(member(number) for number in range(4)))
    assert isinstance(found, Recommendation)
    assert found.saving_gpu_seconds == Saving(0.0, None, 30 * HOUR)
    assert found.confidence == "bound"
    assert found.evidence == (
        "4 jobs on one GPU each: 40.0 GPU-hours held, 8.0 used, 0.0 without data",
        "up to 4 ran at the same time on one GPU model: stacking frees 30.0 of 40.0 hours",
        "32.0 GPU-hours idle between their work, not counting long stretches that a release gives back",
        "device memory is not known for all members; with it the bound would be tighter",
    )
    assert "4 members side by side" in found.action


def test_gpu_time_never_shrinks_below_what_is_used() -> None:
    # 40 card-hours, 16 used: stacking would free 30, but only 24 were idle.
    assert bound(*(member(number, used=0.4) for number in range(4))) == 24


def test_memory_limits_how_many_fit() -> None:
    # Of 40 GiB, (40 - 1.5) / (15.5 - 1.5) = 2.75: two fit. Four members need two cards: 20 freed.
    memory = {"memory_peak_bytes": 15.5 * GIB, "device_memory_bytes": 40 * GIB}
    found = judge(*(member(number, **memory) for number in range(4)))
    assert isinstance(found, Recommendation)
    assert found.saving_gpu_seconds.high == 20 * HOUR
    assert found.evidence[-1] == "a member peaks at 15.5 GiB: at most 2 fit on one card"


def test_members_on_different_gpu_models_are_not_stacked_on_each_other() -> None:
    assert bound(member(1), member(2), member(3, gpu_model="A100"), member(4, gpu_model="A100")) == 20


def test_members_that_overlap_for_five_hours_free_five_hours() -> None:
    assert bound(member(1), member(2, start_hour=5)) == 5


def test_a_running_member_counts_until_the_end_of_the_window() -> None:
    attempts = (member(1, hours=1000), member(2, hours=1000, end_at=None))
    assert bound(*attempts) == 1000


def test_long_idle_stretches_are_left_to_release() -> None:
    split = GpuSeconds(
        10 * HOUR, 0.0, 0.0, 2 * HOUR, 8 * HOUR, no_process=1 * HOUR, with_process=4 * HOUR, gaps=3 * HOUR
    )
    assert bound(member(1, gpu_seconds=split), member(2, gpu_seconds=split)) == 6


def test_a_busy_family_gets_no_advice() -> None:
    assert judge(member(1, used=0.5), member(2, used=0.5)) is None
    assert judge(member(1, used=0.9, gpu_count=2.0), member(2, used=0.9, gpu_count=2.0)) is None


def test_a_single_job_has_nothing_to_share_with() -> None:
    assert judge(member(1), kind="job") is None


def test_start_up_and_end_are_not_stacked() -> None:
    assert judge(*(member(number, hours=0.05) for number in range(400))) is None


def test_members_of_several_gpus_are_refused() -> None:
    assert refusal(member(1, gpu_count=2.0), member(2, gpu_count=2.0)).reason.startswith(
        "No member holds exactly one GPU"
    )


def test_accounting_alone_is_refused_for_want_of_use() -> None:
    found = refusal(member(1, used=None), member(2, used=None))
    assert found.needs == ("device samples, or the site's own means of use",)


def test_members_too_large_for_each_other_are_refused() -> None:
    memory = {"memory_peak_bytes": 30 * GIB, "device_memory_bytes": 40 * GIB}
    assert refusal(member(1, **memory), member(2, **memory)).reason.startswith("Two members do not fit")


def test_members_one_after_another_are_refused() -> None:
    found = refusal(member(1), member(2, start_hour=10))
    assert found.reason.startswith("No two members ran at the same time")
    assert found.needs == ("members that are submitted together, for instance as a job array",)


def test_unknown_memory_of_one_member_leaves_the_fit_unknown() -> None:
    memory = {"memory_peak_bytes": 4 * GIB, "device_memory_bytes": 40 * GIB}
    assert fit_count([member(1, **memory), member(2)], SHARED_BYTES.default) is None


def test_the_published_limits_of_hfta_are_met() -> None:
    # V100 16 GB: 9 fused where 5 run beside each other; A100 40 GB: 25 where 13 (HFTA, AMP PointNet).
    peak = {"memory_peak_bytes": 3.1e9}
    assert fit_count([member(1, **peak, device_memory_bytes=16e9)], 1.5e9) == 9
    assert fit_count([member(1, **peak, device_memory_bytes=40e9)], 1.5e9) in {24, 25}


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=8)


@given(SPANS, st.integers(1, 6))
def test_stacking_needs_fewer_cards_the_more_fit_and_never_less_than_their_share(
    spans: list[tuple[int, int]], fit: int
) -> None:
    runs = [(float(start), float(start + hours)) for start, hours in spans]
    one, more, all_of_them = stack(runs, fit), stack(runs, fit + 1), stack(runs, None)
    assert one.held_seconds == sum(hours for _, hours in spans)
    assert all_of_them.needed_seconds <= more.needed_seconds <= one.needed_seconds <= one.held_seconds
    assert one.needed_seconds >= one.held_seconds / fit
    assert stack(runs, 1).freed_seconds == 0


@given(SPANS, st.floats(0, 1), st.sampled_from([None, 3.0, 10.0, 30.0]))
def test_a_bound_never_exceeds_what_was_held_and_not_used(
    spans: list[tuple[int, int]], used: float, peak_gib: float | None
) -> None:
    memory = {} if peak_gib is None else {"memory_peak_bytes": peak_gib * GIB, "device_memory_bytes": 40 * GIB}
    attempts = [member(number, start, hours, used, **memory) for number, (start, hours) in enumerate(spans)]
    found = judge(*attempts)
    if isinstance(found, Recommendation):
        held = sum(attempt.gpu_seconds.allocated for attempt in attempts)
        assert 0 < found.saving_gpu_seconds.high <= held * (1 - used) * (1 + 1e-9)
