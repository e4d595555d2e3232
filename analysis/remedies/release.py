"""Release GPUs that are held and idle. What it finds, with a sample: ``docs/remedies/release.md``."""

from __future__ import annotations

import re
from math import ceil
from typing import TYPE_CHECKING

from analysis.account import total
from analysis.evidence import AttemptEvidence
from analysis.remedy import Case, Remedy
from analysis.saving import WholeIdle, recommendation_id, whole_idle
from warehouse.contract.model import Recommendation, Refusal, Saving
from warehouse.contract.settings import Setting, Settings
from warehouse.contract.units import SECONDS_PER_HOUR, iso

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "release"

GRACE_LONG = Setting(
    "release",
    "grace_long_seconds",
    7200.0,
    "seconds",
    "Low estimate: a patient rule that gives a card back after two hours, a long meeting, of doing nothing.",
    0.0,
)
GRACE_USUAL = Setting(
    "release",
    "grace_usual_seconds",
    3600.0,
    "seconds",
    "Likely estimate: an hour is what sites that end idle notebooks commonly allow.",
    0.0,
)
GRACE_SHORT = Setting(
    "release",
    "grace_short_seconds",
    900.0,
    "seconds",
    "High estimate: a strict rule; three times the pause that counts as idle at all.",
    0.0,
)
MIN_RUN = Setting(
    "release",
    "min_run_seconds",
    1800.0,
    "seconds",
    "Attempts shorter than this are left out: they end before a rule or a person could act.",
    0.0,
)
MIN_SAVING = Setting(
    "release",
    "min_saving_gpu_seconds",
    3600.0,
    "GPU-seconds",
    "A likely saving below one GPU-hour is not worth anybody's attention.",
    0.0,
)

Idle = tuple[AttemptEvidence, WholeIdle]

_EDGE_SECONDS = 120.0
"""The last sample may be this much older than the end: two cadences of a minute."""
_SLURM_ID = re.compile(r"\d+(_\d+)?\Z")
_CULL = """\
# jupyter_server_config.py: end idle kernels after an hour, then the server
c.MappingKernelManager.cull_idle_timeout = 3600
c.MappingKernelManager.cull_interval = 300
c.ServerApp.shutdown_no_activity_timeout = 3600"""
_TIMEOUT = """\
# end the job when its work ends, and ask for no more time than it needs
#SBATCH --time={limit}"""
_LIMIT_STEP_SECONDS = 900.0
_LIMIT_SPARE = 1.2
"""A limit a fifth above the longest work, in whole quarters of an hour: room for the ups and downs of a machine."""
_RISKS = (
    "State in memory (a notebook's variables, an unsaved model) is lost when an idle holder is ended.",
    "After a release the person waits in the queue before working on.",
)


def judge(case: Case, settings: Settings) -> Recommendation | Refusal | None:
    """Say what a rule that releases idle holders after a grace would have given back in the window."""
    attempts = [attempt for attempt in case.attempts if _run_seconds(attempt, case) >= settings[MIN_RUN]]
    account = total(attempt.gpu_seconds for attempt in attempts)
    if not attempts or (account.held_idle is not None and account.held_idle < settings[MIN_SAVING]):
        return None
    if account.held_idle is None:
        reason = "Accounting tells who held the GPUs and not whether they did anything."
        return Refusal(case.subject, NAME, reason, ("device samples with the number of processes",))
    split = [attempt for attempt in attempts if attempt.gpu_seconds.gaps is not None]
    if not split:
        reason = "Only means over whole attempts are known: how long each idle pause lasted is not."
        return Refusal(case.subject, NAME, reason, ("device samples at a cadence of a minute or less",))
    idle = [(attempt, whole_idle(attempt)) for attempt in split]
    graces = sorted((settings[GRACE_LONG], settings[GRACE_USUAL], settings[GRACE_SHORT]), reverse=True)
    low, likely, high = (sum(one.beyond(grace) for _, one in idle) for grace in graces)
    if likely < settings[MIN_SAVING]:
        return None
    return Recommendation(
        recommendation_id=recommendation_id(NAME, case.subject),
        subject=case.subject,
        remedy=NAME,
        title=f"Give back GPUs that are held idle: {case.label}",
        saving_gpu_seconds=Saving(low, likely, high),
        confidence="modelled",
        how="measured idle stretches, less a grace of "
        + ", ".join(f"{grace / SECONDS_PER_HOUR:g} h" for grace in graces)
        + " (low, likely, high)",
        rung=str(case.rung),
        evidence=_evidence(case, idle, graces[-1]),
        action=_action(case, idle, graces[1]),
        risks=_RISKS,
    )


def _run_seconds(attempt: AttemptEvidence, case: Case) -> float:
    return (case.until_at if attempt.end_at is None else attempt.end_at) - attempt.start_at


def _evidence(case: Case, idle: Sequence[Idle], shortest_grace: float) -> tuple[str, ...]:
    account = total(attempt.gpu_seconds for attempt, _ in idle)
    long = [(attempt, span) for attempt, one in idle for span in one.spans if span[1] - span[0] > shortest_grace]
    longest = max((span for _, span in long), key=lambda span: span[1] - span[0])
    followed = sum(1 for attempt, span in long if not _lasts_to_the_end(case, attempt, span[1]))
    held, unknown = _hours(account.allocated), _hours(account.unknown)
    no_process, with_process = _hours(account.no_process), _hours(account.with_process)
    hours = _hours(longest[1] - longest[0])
    rows = [
        f"{len(idle)} of {len(case.attempts)} attempts have samples and ran long enough",
        f"{held} GPU-hours held, {unknown} of them without data",
        f"{no_process} GPU-hours without a process, {with_process} with a process that did nothing for long",
        f"{len(long)} stretches longer than {shortest_grace:g} s, the longest {hours} h from {iso(longest[0])}",
        f"{followed} of these stretches were followed by more work",
    ]
    rows += _after_the_end(case, idle)
    partly = (account.no_process or 0.0) + (account.with_process or 0.0) - sum(one.gpu_seconds for _, one in idle)
    if partly >= 1.0:
        rows.append(
            f"{_hours(partly)} GPU-hours idle on some of a job's devices while others worked are not claimed: "
            "a job gives its devices back together"
        )
    return tuple(rows)


def _lasts_to_the_end(case: Case, attempt: AttemptEvidence, idle_end_at: float) -> bool:
    """Say whether nothing came after the stretch: until the attempt's end, or until now while it runs."""
    end = case.until_at if attempt.end_at is None else min(attempt.end_at, case.until_at)
    return idle_end_at >= end - _EDGE_SECONDS


def _action(case: Case, idle: Sequence[Idle], grace: float) -> str:
    """Give commands for holders that are idle now and have been for the usual grace, then the rule for the future."""
    running = [
        attempt.scheduler_job_id
        for attempt, one in idle
        if attempt.end_at is None and one.spans and one.spans[-1][1] - one.spans[-1][0] > grace
        if _lasts_to_the_end(case, attempt, one.spans[-1][1])
    ]
    now = [f"scancel {job}" if _SLURM_ID.match(job) else f"# end job {job!r}" for job in running]
    longest = max(
        (work for attempt, one in idle if (work := _work_seconds(case, attempt, one)) is not None), default=None
    )
    batch = _TIMEOUT.format(limit="HH:MM:SS" if longest is None else _as_limit(longest))
    rule = _CULL if any(attempt.interactive for attempt, _ in idle) else batch
    return "\n".join([*now, rule])


def _after_the_end(case: Case, idle: Sequence[Idle]) -> list[str]:
    """Say how much was held after the work had ended, and how its length compares with the limit that was asked for."""
    ended = [(attempt, one, work) for attempt, one in idle if (work := _work_seconds(case, attempt, one)) is not None]
    if not ended:
        return []
    held = sum((one.spans[-1][1] - one.spans[-1][0]) * one.gpu_share for _, one, _ in ended)
    rows = [f"{len(ended)} attempts held their GPUs for {_hours(held)} GPU-hours after their work had ended"]
    limits = [one.time_limit_seconds for one, _, _ in ended if one.time_limit_seconds is not None]
    if limits:
        work = max(work for _, _, work in ended)
        rows.append(f"the work took {_hours(work)} h at most, the time limit was {_hours(max(limits))} h")
    return rows


def _work_seconds(case: Case, attempt: AttemptEvidence, one: WholeIdle) -> float | None:
    """Give how long an ended attempt had worked when it fell idle for good; None: it did not, or it is a session."""
    if attempt.interactive or attempt.end_at is None or not one.spans:
        return None
    start, end = one.spans[-1]
    at_end = _lasts_to_the_end(case, attempt, end) and attempt.end_at <= case.until_at
    return start - attempt.start_at if at_end and start > attempt.start_at else None


def _as_limit(work_seconds: float) -> str:
    """Give a time limit with room to spare, as Slurm writes it."""
    minutes = ceil(work_seconds * _LIMIT_SPARE / _LIMIT_STEP_SECONDS) * round(_LIMIT_STEP_SECONDS / 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def _hours(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds / SECONDS_PER_HOUR:,.1f}"


REMEDY = Remedy(
    name=NAME,
    title="Release idle holders",
    description="Finds jobs that hold GPUs for long stretches without doing anything on them.",
    settings=(GRACE_LONG, GRACE_USUAL, GRACE_SHORT, MIN_RUN, MIN_SAVING),
    judge=judge,
)
