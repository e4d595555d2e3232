"""Fusing the members of a family, or letting them share cards: worked by hand, refused, and within what was held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.account import GpuSeconds
from analysis.evidence import AttemptEvidence, Reading
from analysis.occupancy import Launch
from analysis.remedies import fuse, share
from analysis.remedies.fuse import BASE_BYTES
from analysis.remedy import Case, Remedy
from analysis.saving import fit_count, stack, together_seconds
from analysis.waves import Kernel, Work
from warehouse.contract.metrics import Rung
from warehouse.contract.model import AttemptState, Recommendation, Refusal, Saving, Subject
from warehouse.contract.settings import Settings

HOUR = 3600.0
GIB = 2.0**30
SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=8)
SPANS_OF_TWO = st.tuples(SPANS, SPANS)
BOTH = pytest.mark.parametrize("remedy", [fuse.REMEDY, share.REMEDY], ids=lambda one: one.name)


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
        "gpu_model": "A100-SXM4-40GB",
        "name": f"unet_seed{number}",
    }
    return AttemptEvidence(**(facts | more))


def filled(**ratios: float) -> dict[str, Reading]:
    return {f"{name}_ratio": Reading(value, "gpm", 1.0) for name, value in ratios.items()}


def judge(
    remedy: Remedy, *attempts: AttemptEvidence, kind: str = "family", rung: Rung = Rung.GPU_BOUND
) -> Recommendation | Refusal | None:
    case = Case(Subject(kind, "f-1"), "ada: unet", attempts, rung, 0.0, 1000 * HOUR)
    return remedy.judge(case, Settings())


def advice(remedy: Remedy, *attempts: AttemptEvidence, rung: Rung = Rung.GPU_BOUND) -> Recommendation:
    found = judge(remedy, *attempts, rung=rung)
    assert isinstance(found, Recommendation)
    return found


def refusal(remedy: Remedy, *attempts: AttemptEvidence) -> Refusal:
    found = judge(remedy, *attempts)
    assert isinstance(found, Refusal)
    return found


def in_hours(saving: Saving) -> list[float | None]:
    return [None if one is None else round(one / HOUR, 3) for one in (saving.low, saving.likely, saving.high)]


# ------------------------------------------------------------------------------------------------------------- by hand


def test_fusing_by_sm_activity_by_hand() -> None:
    # Four at once, 10 h each, busy .2, SMs active .1, warps .05, DRAM .02: 40 card-hours, 10 needed by four fused.
    # Step of four over one: likely 1 + 3 x .1 = 1.3, at most 1 + 3 x .2 = 1.6, at least 1. Saved 40 - 10 x that.
    ladder = filled(sm_active=0.1, sm_occupancy=0.05, dram_active=0.02)
    found = advice(fuse.REMEDY, *(member(number, ladder=ladder) for number in range(4)))
    assert in_hours(found.saving_gpu_seconds) == [24.0, 27.0, 30.0]
    assert found.confidence == "modelled"
    assert "become vectors: seed" in found.evidence
    assert "one program trains 4 members" in found.action


def test_fusing_by_waves_by_hand() -> None:
    # One kernel of 54 blocks of 1024 threads: an A100 holds 108 x 2 = 216 of them, so two copies still fit one wave.
    # T = 10, G = 2. Low time 10; high 8 + 2 x 2 = 12; likely: kernels sqrt(2 x 4) = 2.828, (10 + 10.828) / 2 = 10.414.
    kernel = Kernel(1.0, 2.0, 54, Launch(1024))
    work = Work(10.0, 2.0, (kernel,))
    found = advice(fuse.REMEDY, *(member(number, work=work) for number in range(2)))
    # Of 20 card-hours, 10 needed: 20 - 10 x 1.2 = 8, 20 - 10 x 1.0414 = 9.586, 20 - 10 = 10.
    assert in_hours(found.saving_gpu_seconds) == [8.0, 9.586, 10.0]
    assert found.how.startswith("waves of the traced kernels")


def test_without_sm_activity_fusing_is_a_bound() -> None:
    # 40 card-hours, 8 used. On one card 10 are needed: 30 freed; idle 32: the lesser is 30.
    found = advice(fuse.REMEDY, *(member(number) for number in range(4)))
    assert in_hours(found.saving_gpu_seconds) == [0.0, None, 30.0]
    assert found.confidence == "bound"


def test_memory_limits_how_many_are_fused() -> None:
    # Of 40 GiB, (40 - 1.5) / (15.5 - 1.5) = 2.75: two fit, so that four members need two cards: 20 freed.
    memory = {"memory_peak_bytes": 15.5 * GIB, "device_memory_bytes": 40 * GIB}
    found = advice(fuse.REMEDY, *(member(number, **memory) for number in range(4)))
    assert found.saving_gpu_seconds.high == 20 * HOUR
    assert "a member peaks at 15.5 GiB: at most 2 fit fused on one card" in found.evidence


def test_sharing_by_hand() -> None:
    # Two at once for 10 h, busy .2, DRAM .1. Speed: taking turns 1 / 1.04 = .9615, likely its root .9806, and memory
    # alone 1 / 1.01 = .9901; low .9615 x .92 = .8846, high 1. Of 20 card-hours 10 are needed: 20 - 10 / speed.
    found = advice(share.REMEDY, *(member(number, ladder=filled(dram_active=0.1)) for number in range(2)))
    assert in_hours(found.saving_gpu_seconds) == [8.696, 9.802, 10.0]
    assert found.confidence == "modelled"
    assert "2 members side by side" in found.action


def test_driver_utilization_alone_bounds_sharing() -> None:
    found = advice(share.REMEDY, member(1), member(2), rung=Rung.DRIVER_UTIL)
    assert in_hours(found.saving_gpu_seconds) == [0.0, None, 10.0]
    assert "the driver calls a card used" in found.evidence[-1]


def test_separate_processes_pay_the_framework_each() -> None:
    # 40 / 15.5 = 2.58: two processes fit.
    memory = {"memory_peak_bytes": 15.5 * GIB, "device_memory_bytes": 40 * GIB, "requested_cpu_count": 4.0}
    found = advice(share.REMEDY, *(member(number, **memory) for number in range(4)))
    assert "2 members side by side" in found.action
    assert "--cpus-per-task=8" in found.action
    assert "# or isolated, on MIG slices: " in found.action


def test_holders_that_are_idle_most_of_the_time_may_be_seated_by_time_slicing() -> None:
    assert "time slicing" in advice(share.REMEDY, member(1, used=0.05), member(2, used=0.05)).action
    assert "time slicing" not in advice(share.REMEDY, member(1, used=0.2), member(2, used=0.2)).action


def test_busy_members_are_put_together_only_as_far_as_they_keep_their_speed() -> None:
    # Three at .45: taking turns 1 / (1 + 2 x .2025) = .712, root .844, but the card is full: 1 / 1.35 = .741 < .8.
    found = advice(share.REMEDY, *(member(number, used=0.45) for number in range(3)))
    assert "2 members side by side" in found.action


def pair_up(*families: list[AttemptEvidence]) -> list[Recommendation | Refusal | None]:
    cases = [
        Case(Subject("family", f"f-{at}"), f"ada: {at}", own, Rung.GPU_BOUND, 0.0, 1000 * HOUR)
        for at, own in enumerate(families)
    ]
    return [share.REMEDY.judge(replace(case, neighbours=cases), Settings()) for case in cases]


def test_families_that_cannot_share_among_themselves_share_with_each_other() -> None:
    # Two runs one after the other of each family, 10 h, side by side, busy .2 and .3, 20 h paired. Speeds, both: taking
    # turns 1 / 1.06, likely its root .9713, low 1 / 1.06 x .92 = .8679, high 1 without memory traffic to meet in.
    # Saved 20 x (2 - 1 / v): 16.956, 19.409, 20; the idle time of the busier, 14 h, is less: 14 all along.
    one = [member(at, start_hour=10 * at, used=0.2, user="ada") for at in range(2)]
    other = [member(at, start_hour=10 * (at - 5), used=0.3, user="ada") for at in range(5, 7)]
    found, second = pair_up(one, other)
    assert isinstance(found, Recommendation)
    assert in_hours(found.saving_gpu_seconds) == [14.0, 14.0, 14.0]
    assert "20.0 hours in which a member could have sat beside one of f-1" in found.evidence
    assert isinstance(second, Refusal)


def test_families_of_two_people_or_too_large_together_do_not_share() -> None:
    one = [member(at, start_hour=10 * at, user="ada") for at in range(2)]
    of_bob = [member(at, start_hour=10 * (at - 5), user="bob") for at in range(5, 7)]
    assert isinstance(pair_up(one, of_bob)[0], Refusal)
    memory: dict[str, Any] = {"memory_peak_bytes": 19 * GIB, "device_memory_bytes": 32 * GIB, "user": "ada"}
    large = [[member(at, start_hour=10 * (at % 2), **memory) for at in numbers] for numbers in ((0, 1), (2, 3))]
    assert isinstance(pair_up(*large)[0], Refusal)


@given(SPANS_OF_TWO)
def test_pairs_never_last_longer_than_either_side(spans: tuple[list[tuple[int, int]], list[tuple[int, int]]]) -> None:
    sides = [[member(at, start, hours) for at, (start, hours) in enumerate(own)] for own in spans]
    paired = together_seconds(sides[0], sides[1], (0.0, 1000 * HOUR))
    assert 0 <= paired <= min(sum(one.gpu_seconds.allocated for one in side) for side in sides)
    assert paired == together_seconds(sides[1], sides[0], (0.0, 1000 * HOUR))


# ------------------------------------------------------------------------------------------------- what differs, fusing


def test_members_of_other_batch_sizes_are_fused_apart() -> None:
    jobs = [
        member(number, command=f"python t.py --lr 0.{number} --batch-size {64 * (number % 2 + 1)}")
        for number in range(4)
    ]
    found = advice(fuse.REMEDY, *jobs)
    assert "one program trains 2 members" in found.action
    assert "2 groups are fused apart, for batch_size differ" in found.evidence
    assert "become vectors: lr, seed" in found.evidence
    assert found.saving_gpu_seconds.high == 20 * HOUR


def test_members_of_unlike_memory_may_differ_in_shape() -> None:
    peaks = (4 * GIB, 8 * GIB)
    jobs = [member(at, memory_peak_bytes=peak, device_memory_bytes=40 * GIB) for at, peak in enumerate(peaks)]
    assert any("shapes may differ" in row for row in advice(fuse.REMEDY, *jobs).evidence)


def test_members_that_all_differ_in_shape_are_refused() -> None:
    jobs = [member(number, command=f"python t.py --hidden={64 * number}") for number in (1, 2, 3)]
    assert refusal(fuse.REMEDY, *jobs).reason.endswith("hidden differ.")


@BOTH
def test_members_on_different_gpu_models_are_not_stacked_on_each_other(remedy: Remedy) -> None:
    found = advice(remedy, member(1), member(2), member(3, gpu_model="H100"), member(4, gpu_model="H100"))
    assert found.saving_gpu_seconds.high == 20 * HOUR


# ---------------------------------------------------------------------------------------------- nothing to say, refused


@BOTH
def test_a_busy_family_a_single_job_and_short_attempts_get_no_advice(remedy: Remedy) -> None:
    assert judge(remedy, member(1, used=0.5), member(2, used=0.5)) is None
    assert judge(remedy, member(1, used=0.9, gpu_count=2.0), member(2, used=0.9, gpu_count=2.0)) is None
    assert judge(remedy, member(1), kind="job") is None
    assert judge(remedy, *(member(number, hours=0.05) for number in range(400))) is None


@BOTH
def test_members_of_several_gpus_are_refused(remedy: Remedy) -> None:
    assert refusal(remedy, member(1, gpu_count=2.0), member(2, gpu_count=2.0)).reason.startswith("No member holds")


@BOTH
def test_accounting_alone_is_refused_for_want_of_use(remedy: Remedy) -> None:
    found = refusal(remedy, member(1, used=None), member(2, used=None))
    assert found.needs == ("device samples, or the site's own means of use",)


@BOTH
def test_members_too_large_for_each_other_are_refused(remedy: Remedy) -> None:
    memory = {"memory_peak_bytes": 30 * GIB, "device_memory_bytes": 40 * GIB}
    assert refusal(remedy, member(1, **memory), member(2, **memory)).reason.startswith("Two members do not fit")


@BOTH
def test_members_one_after_another_are_refused(remedy: Remedy) -> None:
    found = refusal(remedy, member(1), member(2, start_hour=10))
    assert found.needs == ("members that are submitted together, for instance as a job array",)


@BOTH
def test_long_idle_stretches_and_unknown_time_are_claimed_by_neither(remedy: Remedy) -> None:
    split = GpuSeconds(10 * HOUR, 1 * HOUR, 0.0, 2 * HOUR, 7 * HOUR, 1 * HOUR, 3 * HOUR, gaps=3 * HOUR)
    found = advice(remedy, member(1, gpu_seconds=split), member(2, gpu_seconds=split))
    assert found.saving_gpu_seconds.high <= 6 * HOUR


# ----------------------------------------------------------------------------------------------------------------- laws


def test_the_published_limits_of_hfta_are_met() -> None:
    # V100 16 GB: 9 fused; A100 40 GB: 25 (HFTA, AMP PointNet).
    peak = {"memory_peak_bytes": 3.0 * GIB}
    assert fit_count([member(1, **peak, device_memory_bytes=16 * GIB)], BASE_BYTES.default) == 9
    assert fit_count([member(1, **peak, device_memory_bytes=40 * GIB)], BASE_BYTES.default) == 25


def test_unknown_memory_of_one_member_leaves_the_fit_unknown() -> None:
    memory = {"memory_peak_bytes": 4 * GIB, "device_memory_bytes": 40 * GIB}
    assert fit_count([member(1, **memory), member(2)], BASE_BYTES.default) is None


RATIO = st.floats(0, 1)


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


@BOTH
@given(SPANS, RATIO, st.sampled_from([None, 3.0, 10.0, 30.0]), st.tuples(RATIO, RATIO, RATIO), st.sampled_from(Rung))
def test_savings_stand_in_order_and_within_what_was_held(
    remedy: Remedy,
    spans: list[tuple[int, int]],
    used: float,
    peak_gib: float | None,
    fill: tuple[float, float, float],
    rung: Rung,
) -> None:
    memory = {} if peak_gib is None else {"memory_peak_bytes": peak_gib * GIB, "device_memory_bytes": 40 * GIB}
    ladder = filled(sm_active=fill[0], sm_occupancy=fill[1], dram_active=fill[2])
    attempts = [
        member(number, start, hours, used, ladder=ladder, **memory) for number, (start, hours) in enumerate(spans)
    ]
    found = judge(remedy, *attempts, rung=rung)
    if isinstance(found, Recommendation):
        held = sum(attempt.gpu_seconds.allocated for attempt in attempts)
        saving = found.saving_gpu_seconds
        assert 0 <= saving.low <= (saving.low if saving.likely is None else saving.likely) <= saving.high
        assert saving.high <= held * (1 + 1e-9)
        if remedy.name == "share":
            assert saving.high <= held * (1 - used) * (1 + 1e-9)
