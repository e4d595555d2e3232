"""What keeps GPUs waiting between pieces of work, and how much of it faster input would give back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.account import GpuSeconds
from analysis.evidence import AttemptEvidence, Reading
from analysis.remedies.feed import REMEDY
from analysis.remedy import Case
from warehouse.contract.metrics import Rung
from warehouse.contract.model import AttemptState, Recommendation, Refusal, Saving, Subject
from warehouse.contract.settings import Settings

HOUR = 3600.0


def job(used: float, gaps: float, host: dict[str, float] | None = None, **more: Any) -> AttemptEvidence:
    """One attempt of 100 hours on 4 GPUs that is used and pauses for these shares; its host was watched."""
    whole = 400 * HOUR
    account = GpuSeconds(whole, (1 - used - gaps) * whole, 0.0, used * whole, gaps * whole, 0.0, 0.0, gaps * whole)
    readings = {name: Reading(value, "host:group", 1.0) for name, value in (host or {}).items()}
    facts: dict[str, Any] = {
        "attempt_key": "c/7#0:1",
        "job_key": "c/7#0",
        "scheduler_job_id": "7",
        "cluster": "c",
        "state": AttemptState.COMPLETED,
        "start_at": 0.0,
        "end_at": 100 * HOUR,
        "gpu_count": 4.0,
        "node_count": 1,
        "gpu_seconds": account,
        "nodes": ("n0",),
        "ladder": {"engine_active_ratio": Reading(used, "gpm", 1.0)},
        "host": readings,
    }
    return AttemptEvidence(**(facts | more))


def judge(*attempts: AttemptEvidence) -> Recommendation | Refusal | None:
    case = Case(Subject("job", "c/7#0"), "ada: train", attempts, Rung.ENGINE_ACTIVE, 0.0, 1000 * HOUR)
    return REMEDY.judge(case, Settings())


def advice(*attempts: AttemptEvidence) -> Recommendation:
    found = judge(*attempts)
    assert isinstance(found, Recommendation)
    return found


STORAGE = {
    "cpu_count": 6.0,
    "cpu_limit_count": 48.0,
    "io_stall_ratio": 0.7,
    "io_full_stall_ratio": 0.5,
    "disk_read_bytes_per_second": 4e8,
}
CORES = {"cpu_count": 7.6, "cpu_limit_count": 8.0, "io_stall_ratio": 0.01, "io_full_stall_ratio": 0.0}


def test_pauses_and_waits_for_storage_meet_between_two_bounds() -> None:
    # Pauses 60 % of 400 GPU-hours, everything waits 50 %: at least 10 % in common, likely 50 %; something waits 70 %:
    # at most all 60 %.
    found = advice(job(0.4, 0.6, STORAGE))
    assert found.saving_gpu_seconds.low == pytest.approx(40 * HOUR)
    assert found.saving_gpu_seconds.likely == pytest.approx(200 * HOUR)
    assert found.saving_gpu_seconds.high == pytest.approx(240 * HOUR)
    assert (found.confidence, found.title) == ("modelled", "Feed GPUs that wait for storage: ada: train")
    assert found.evidence == (
        "240.0 GPU-hours of pauses between pieces of work, 60% of the working time",
        "some task waited for storage 70% of the time",
        "every task waited for storage 50% of the time",
        "0.40 GB/s read from disks",
        "12% of the cores that it may use were busy",
    )
    # The pace lacks the factor 1 / (1 - 0.6) = 2.5; an LRU cache serves 60 % when it holds c + (1 - c) ln(1 - c) = 0.6.
    assert "1.00 GB/s would feed the GPUs" in found.action
    assert "keep 60% of it in memory and never evict it (87%" in found.action


def test_full_cores_are_a_bound_and_say_how_many_would_do() -> None:
    # Pauses 60 %: 8 cores x 1 / (1 - 0.6) = 20.
    found = advice(job(0.4, 0.6, CORES))
    assert found.saving_gpu_seconds == Saving(0.0, None, pytest.approx(240 * HOUR))  # type: ignore[arg-type]
    assert (found.confidence, found.title) == ("bound", "Feed GPUs that wait for work on the CPU: ada: train")
    assert "#SBATCH --cpus-per-task=20   # 8 now" in found.action
    assert "95% of the cores that it may use were busy" in found.evidence


def test_a_job_that_its_cpu_limit_holds_back_lacks_cores() -> None:
    found = advice(job(0.4, 0.6, {**CORES, "cpu_count": 4.0, "cpu_throttled_ratio": 0.4}))
    assert "work on the CPU" in found.title
    assert "the job was held back by its CPU limit 40% of the time" in found.evidence


def test_members_on_one_node_may_prepare_once() -> None:
    twin = job(0.4, 0.6, CORES, attempt_key="c/8#0:1", job_key="c/8#0")
    found = advice(job(0.4, 0.6, CORES), twin)
    assert "up to 2 members ran on one node at a time: each reads and prepares for itself" in found.evidence
    assert "prepare them once and share" in found.action


def test_a_host_at_ease_is_no_reason_for_pauses() -> None:
    refusal = judge(job(0.4, 0.6, {"cpu_count": 2.0, "cpu_limit_count": 8.0, "io_stall_ratio": 0.01}))
    assert isinstance(refusal, Refusal)
    assert refusal.reason.startswith("Its GPUs pause, but its host neither waits")
    assert (refusal.needs, refusal.missing) == ((), ())


@pytest.mark.parametrize(
    ("host", "missing"),
    [
        ({}, ["cpu", "disk"]),
        ({"cpu_count": 2.0}, ["disk"]),
        ({"io_stall_ratio": 0.5}, ["cpu"]),
    ],
)
def test_without_the_host_the_cause_is_not_guessed(host: dict[str, float], missing: list[str]) -> None:
    refusal = judge(job(0.4, 0.6, host))
    assert isinstance(refusal, Refusal)
    assert [one.evidence for one in refusal.missing] == missing
    assert [one.coverage_ratio for one in refusal.missing] == [0.0] * len(missing)
    assert refusal.needs


def test_accounting_alone_and_means_alone_are_refused() -> None:
    blind = judge(job(0.4, 0.6, STORAGE, gpu_seconds=GpuSeconds(400 * HOUR, 400 * HOUR, 0.0), ladder={}))
    assert isinstance(blind, Refusal)
    assert (blind.reason, blind.missing[0].evidence) == ("Too little tells how busy the GPUs were.", "use")
    means = judge(job(0.4, 0.6, STORAGE, gpu_seconds=GpuSeconds(400 * HOUR, 0.0, 0.0, 160 * HOUR, 240 * HOUR)))
    assert isinstance(means, Refusal)
    assert (means.reason, means.missing[0].evidence) == ("Too little tells how long each pause lasted.", "pauses")


def test_busy_jobs_sessions_and_short_ones_get_no_advice() -> None:
    assert judge(job(0.9, 0.1, STORAGE)) is None
    assert judge(job(0.4, 0.6, STORAGE, interactive=True)) is None
    assert judge(job(0.4, 0.6, STORAGE, end_at=600.0)) is None


def test_long_idle_stretches_are_not_claimed() -> None:
    """Half of the time is idle for long: that is for a release to claim."""
    whole = 400 * HOUR
    account = GpuSeconds(whole, 0.0, 0.0, 0.2 * whole, 0.8 * whole, 0.0, 0.5 * whole, 0.3 * whole)
    assert advice(job(0.2, 0.3, CORES, gpu_seconds=account)).saving_gpu_seconds.high == pytest.approx(0.3 * whole)


@given(st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 12.0))
def test_a_saving_is_ordered_within_the_pauses_and_grows_with_the_waits(
    pauses: float, some: float, full: float, more: float, cores: float
) -> None:
    some, full = max(some, full), min(some, full)

    def high(waits: float) -> float:
        host = {"cpu_count": cores, "cpu_limit_count": 8.0, "io_stall_ratio": waits, "io_full_stall_ratio": full}
        attempt = job(1 - pauses, pauses, host)
        found = judge(attempt)
        if not isinstance(found, Recommendation):
            return 0.0
        saving = found.saving_gpu_seconds
        likely = saving.high if saving.likely is None else saving.likely
        assert 0 <= saving.low <= likely + 1e-6
        assert likely <= saving.high + 1e-6
        assert saving.high <= (attempt.gpu_seconds.gaps or 0.0) * (1 + 1e-9)
        return saving.high

    assert high(some) <= high(max(some, more)) + 1e-6
