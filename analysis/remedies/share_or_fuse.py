"""Run the members of a family on fewer cards. What it finds, with a sample: ``docs/remedies/share_or_fuse.md``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.account import total
from analysis.remedy import Case, Remedy
from analysis.saving import Stack, fit_count, recommendation_id, stack_by_model
from warehouse.contract.metrics import Rung
from warehouse.contract.model import Recommendation, Refusal, Saving
from warehouse.contract.settings import Setting, Settings
from warehouse.contract.units import BYTES_PER_GIB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.account import GpuSeconds
    from analysis.evidence import AttemptEvidence

NAME = "share_or_fuse"

HIGHEST_USED = Setting(
    "share_or_fuse",
    "highest_used_ratio",
    0.5,
    "share of known time",
    "Above half, not even two members fit side by side on one card without slowing each other down.",
    0.0,
    1.0,
)
SHARED_BYTES = Setting(
    "share_or_fuse",
    "shared_bytes",
    1.5 * BYTES_PER_GIB,
    "bytes",
    "What each process of a framework needs for itself, and fused members need once: 1.4 to 1.6 GB follow from the "
    "memory limits that HFTA published for V100 and A100.",
    0.0,
)
MIN_RUN = Setting(
    "share_or_fuse",
    "min_run_seconds",
    300.0,
    "seconds",
    "Attempts shorter than this are left out: they are start-up and end, which stacking does not save.",
    0.0,
)
MIN_SAVING = Setting(
    "share_or_fuse",
    "min_saving_gpu_seconds",
    3600.0,
    "GPU-seconds",
    "A bound below one GPU-hour is not worth anybody's attention.",
    0.0,
)

_RISKS = (
    "Members on one card slow each other down; how much is not known, which is why this is a bound.",
    "Under MPS a fatal fault of one member ends the others on that card.",
    "Fused members must be equal in all but numbers such as the learning rate, and then start and end together.",
)


def judge(case: Case, settings: Settings) -> Recommendation | Refusal | None:
    """Bound what running a family's one-GPU members on common cards could have saved in the window.

    No more than the idle time that ``release`` cannot claim, and no more than the cards that stacking frees.
    """
    if case.subject.kind != "family":
        return None
    attempts = [attempt for attempt in case.attempts if _run_seconds(attempt, case) >= settings[MIN_RUN]]
    everything = total(attempt.gpu_seconds for attempt in attempts)
    if not attempts or (everything.used_ratio or 0.0) >= settings[HIGHEST_USED]:
        return None
    single = [attempt for attempt in attempts if attempt.gpu_count == 1]
    if not single:
        reason = "No member holds exactly one GPU: several at once cannot be stacked, slices are shared already."
        return Refusal(case.subject, NAME, reason)
    known = [attempt for attempt in single if attempt.gpu_seconds.held_idle is not None]
    if not known:
        reason = "Accounting tells who held the GPUs and not how busy they were."
        return Refusal(case.subject, NAME, reason, ("device samples, or the site's own means of use",))
    return _bound(case, known, settings)


def _bound(case: Case, attempts: Sequence[AttemptEvidence], settings: Settings) -> Recommendation | Refusal | None:
    account = total(attempt.gpu_seconds for attempt in attempts)
    idle = sum(_claimable(attempt.gpu_seconds) for attempt in attempts)
    if (account.used_ratio or 0.0) >= settings[HIGHEST_USED] or idle < settings[MIN_SAVING]:
        return None
    fit = fit_count(attempts, settings[SHARED_BYTES])
    stacked = stack_by_model(attempts, case.since_at, case.until_at, fit)
    refusal = _refusal(case, fit, stacked)
    bound = min(idle, stacked.freed_seconds)
    if refusal is not None or bound < settings[MIN_SAVING]:
        return refusal
    return Recommendation(
        recommendation_id=recommendation_id(NAME, case.subject),
        subject=case.subject,
        remedy=NAME,
        title=f"Run repeats on fewer cards: {case.label}",
        saving_gpu_seconds=Saving(0.0, None, bound),
        confidence="bound",
        how="the lesser of the members' idle time and the card time that stacking them frees; how much they would "
        "slow each other down is not known",
        rung=str(case.rung),
        evidence=_evidence(case, attempts, idle, fit, stacked),
        action=_action(min(stacked.most_at_once, fit or stacked.most_at_once)),
        risks=_RISKS,
    )


def _run_seconds(attempt: AttemptEvidence, case: Case) -> float:
    return (case.until_at if attempt.end_at is None else attempt.end_at) - attempt.start_at


def _claimable(account: GpuSeconds) -> float:
    """Give the idle time that is not release's: the short gaps, or all of it where stretches are not known."""
    return (account.held_idle if account.gaps is None else account.gaps) or 0.0


def _refusal(case: Case, fit: int | None, stacked: Stack) -> Refusal | None:
    if fit == 1:
        return Refusal(case.subject, NAME, "Two members do not fit into the memory of one device.")
    if stacked.most_at_once <= 1:
        reason = "No two members ran at the same time on one GPU model: there was nothing to stack."
        return Refusal(
            case.subject, NAME, reason, ("members that are submitted together, for instance as a job array",)
        )
    return None


def _evidence(
    case: Case, attempts: Sequence[AttemptEvidence], idle: float, fit: int | None, stacked: Stack
) -> tuple[str, ...]:
    account = total(attempt.gpu_seconds for attempt in attempts)
    members = len({attempt.job_key for attempt in attempts})
    held, used, unknown = _hours(account.allocated), _hours(account.used), _hours(account.unknown)
    freed, cards = _hours(stacked.freed_seconds), _hours(stacked.held_seconds)
    rows = [
        f"{members} jobs on one GPU each: {held} GPU-hours held, {used} used, {unknown} without data",
        f"up to {stacked.most_at_once} ran at the same time on one GPU model: stacking frees {freed} of {cards} hours",
        f"{_hours(idle)} GPU-hours idle between their work, not counting long stretches that a release gives back",
        _memory(attempts, fit),
    ]
    if case.rung is Rung.DRIVER_UTIL:
        rows.append("the driver calls a card used whenever any kernel runs: the true idle time may be larger")
    return tuple(rows)


def _memory(attempts: Sequence[AttemptEvidence], fit: int | None) -> str:
    peaks = [attempt.memory_peak_bytes for attempt in attempts]
    if fit is not None:
        peak = max(peak for peak in peaks if peak is not None)
        return f"a member peaks at {peak / BYTES_PER_GIB:.1f} GiB: at most {fit} fit on one card"
    if None in peaks or any(attempt.device_memory_bytes is None for attempt in attempts):
        return "device memory is not known for all members; with it the bound would be tighter"
    return "device memory is no limit: a member needs less than one process of a framework"


def _action(together: int) -> str:
    return f"""\
# either: {together} members side by side on one card, sharing it through MPS
#SBATCH --gres=gpu:1
nvidia-cuda-mps-control -d
for member in $(seq 1 {together}); do ./run_member "$member" & done; wait
echo quit | nvidia-cuda-mps-control
# or: fuse members that differ only in numbers into one program:
#     stack their parameters (torch.func.stack_module_state) and vmap the training step (torch.func.vmap)"""


def _hours(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds / SECONDS_PER_HOUR:,.1f}"


REMEDY = Remedy(
    name=NAME,
    title="Share a card, or fuse repeats",
    description="Finds families of one-GPU jobs that leave their cards half empty, and bounds what stacking saves.",
    settings=(HIGHEST_USED, SHARED_BYTES, MIN_RUN, MIN_SAVING),
    judge=judge,
)
