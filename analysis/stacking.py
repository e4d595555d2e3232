"""What the remedies that lay members of a family on common cards have in common: which members, and what is freed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.account import GpuSeconds, total
from analysis.saving import Stack, running_by_model, stack_running
from warehouse.contract.metrics import Rung
from warehouse.contract.model import Refusal, Saving
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.estimate import Range
    from analysis.evidence import AttemptEvidence
    from analysis.remedy import Case

MOST_TOGETHER = 64
"""More members on one card than this are not thought of: the largest that HFTA published is 25."""


@dataclass(frozen=True, slots=True)
class Members:
    """Members of one GPU whose use is known. ``work_seconds`` is their time without unknown and released stretches.

    ``running`` says for how long so many of them ran at once on the same GPU model.
    """

    attempts: tuple[AttemptEvidence, ...]
    account: GpuSeconds
    work_seconds: float
    idle_seconds: float
    running: Mapping[int, float]

    @property
    def busy_ratio(self) -> float:
        """Give the busy share of the time in which they worked, short gaps included."""
        return min(1.0, (self.account.used or 0.0) / self.work_seconds) if self.work_seconds > 0 else 0.0

    @property
    def work_ratio(self) -> float:
        """Give the share of the held time that their work, with its short gaps, makes up."""
        return self.work_seconds / self.account.allocated if self.account.allocated > 0 else 0.0

    def quality(self, name: str) -> float | None:
        """Give the mean of a quality over the working time, such as ``sm_active_ratio``; None: not known for most."""
        known = [(one.ladder[name], one.gpu_seconds.allocated) for one in self.attempts if name in one.ladder]
        weight = sum(reading.coverage_ratio * held for reading, held in known)
        if weight < self.account.allocated / 2 or self.work_seconds <= 0:
            return None
        mean = sum(reading.value * reading.coverage_ratio * held for reading, held in known) / weight
        known_time = self.account.allocated - self.account.unknown
        return min(1.0, mean * max(1.0, known_time / self.work_seconds))

    def stack(self, fit: int) -> Stack:
        """Lay them on common cards, so many on each."""
        return stack_running(self.running, fit)

    def saving(self, stacked: Stack, stretch: Range) -> Saving:
        """Give what they would have saved if their time on common cards grew by a factor; within their working time."""
        freed = [
            max(0.0, stacked.held_seconds - stacked.needed_seconds * factor) * self.work_ratio
            for factor in (stretch.high, stretch.likely, stretch.low)
        ]
        return Saving(*(min(one, self.work_seconds) for one in freed))


def members_of(attempts: Sequence[AttemptEvidence], case: Case) -> Members:
    """Take members together. A member's idle time is its short gaps, or all of it where stretches are not known."""
    account = total(one.gpu_seconds for one in attempts)
    idle = sum(_gaps(one.gpu_seconds) for one in attempts)
    work = min(account.allocated - account.unknown, (account.used or 0.0) + idle)
    running = running_by_model(attempts, case.since_at, case.until_at)
    return Members(tuple(attempts), account, work, idle, running)


def _gaps(account: GpuSeconds) -> float:
    return (account.held_idle if account.gaps is None else account.gaps) or 0.0


def usable(case: Case, attempts: Sequence[AttemptEvidence], name: str) -> Refusal | list[AttemptEvidence]:
    """Give the members that hold one GPU and whose use is known, or say why there is none."""
    single = [one for one in attempts if one.gpu_count == 1]
    if not single:
        reason = "No member holds exactly one GPU: several at once cannot be stacked, slices are shared already."
        return Refusal(case.subject, name, reason)
    known = [one for one in single if one.gpu_seconds.held_idle is not None]
    if not known:
        reason = "Accounting tells who held the GPUs and not how busy they were."
        return Refusal(case.subject, name, reason, ("device samples, or the site's own means of use",))
    return known


def never_together(case: Case, name: str) -> Refusal:
    """Say that members ran one after another."""
    reason = "No two members ran at the same time on one GPU model: there was nothing to stack."
    return Refusal(case.subject, name, reason, ("members that are submitted together, for instance as a job array",))


def run_seconds(attempt: AttemptEvidence, case: Case) -> float:
    """Give how long an attempt ran, or has run by the end of the window."""
    return (case.until_at if attempt.end_at is None else attempt.end_at) - attempt.start_at


def memory_of(attempts: Sequence[AttemptEvidence]) -> tuple[float, float] | None:
    """Give the largest peak of a member and the smallest device, in bytes; None: not known for all."""
    pairs = [(one.memory_peak_bytes, one.device_memory_bytes) for one in attempts]
    peaks, devices = ([one for one in column if one is not None] for column in zip(*pairs, strict=True))
    return (max(peaks), min(devices)) if len(peaks) == len(devices) == len(pairs) else None


def held_line(members: Members, stacked: Stack) -> tuple[str, str]:
    """Say what was held and how many ran at once."""
    count = len({one.job_key for one in members.attempts})
    account = members.account
    return (
        (
            f"{count} jobs on one GPU each: {hours(account.allocated)} GPU-hours held, {hours(account.used)} used, "
            f"{hours(account.unknown)} without data"
        ),
        f"up to {stacked.most_at_once} ran at the same time on one GPU model",
    )


def driver_line(case: Case) -> tuple[str, ...]:
    """Warn of the driver's utilization, where the document rests on it."""
    if case.rung is not Rung.DRIVER_UTIL:
        return ()
    return ("the driver calls a card used whenever any kernel runs: the true idle time may be larger",)


def hours(seconds: float | None) -> str:
    """Give seconds as hours."""
    return "unknown" if seconds is None else f"{seconds / SECONDS_PER_HOUR:,.1f}"
