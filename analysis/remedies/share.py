"""Let members of a family share a card through MPS or MIG. What it finds, with a sample: ``docs/remedies/share.md``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.account import total
from analysis.estimate import Range
from analysis.gpu_file import read_catalogue
from analysis.gpu_names import find
from analysis.interference import Demand, shared_speed
from analysis.remedy import Case, Remedy
from analysis.saving import recommendation_id, together_seconds
from analysis.settings import GPUS_FILE
from analysis.stacking import (
    MOST_TOGETHER,
    Members,
    driver_line,
    held_line,
    hours,
    members_of,
    memory_of,
    never_together,
    run_seconds,
    usable,
)
from warehouse.contract.metrics import Rung
from warehouse.contract.model import Recommendation, Refusal, Saving
from warehouse.contract.settings import Setting, Settings
from warehouse.contract.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.evidence import AttemptEvidence

NAME = "share"

HIGHEST_USED = Setting(
    "share",
    "highest_used_ratio",
    0.5,
    "share of known time",
    "Two members that each use half of a card fill one, and slow each other down on average.",
    0.0,
    1.0,
)
LEAST_SPEED = Setting(
    "share",
    "least_speed_ratio",
    0.8,
    "share of the speed alone",
    "As many members share a card as likely keep this speed: people accept a run that takes a quarter longer.",
    0.0,
    1.0,
)
SEAT_USED = Setting(
    "share",
    "seat_used_ratio",
    0.1,
    "share of known time",
    "Below this a holder is idle most of the time, and time slicing may seat it; it is never a speed-up.",
    0.0,
    1.0,
)
MIN_RUN = Setting(
    "share",
    "min_run_seconds",
    300.0,
    "seconds",
    "Attempts shorter than this are left out: they are start-up and end, which sharing does not save.",
    0.0,
)
MIN_SAVING = Setting(
    "share", "min_saving_gpu_seconds", 3600.0, "GPU-seconds", "Less than one GPU-hour is worth nobody's attention.", 0.0
)
_MOST_NEIGHBOURS = 200
"""Other families that one is put beside, those with most GPU time: the rest could save little."""
_RISKS = (
    (
        "Members on one card slow each other down; a job that must be fast, or a service with a latency promise, "
        "should keep a card or a MIG slice of its own."
    ),
    (
        "Under MPS a fatal fault of one member ends the others on that card, and memory is not kept apart: share among "
        "jobs of one person only. MIG isolates both."
    ),
    "Each member keeps its cores and its memory of the host: ask for all, and see what other cards are left.",
)


def judge(case: Case, settings: Settings) -> Recommendation | Refusal | None:
    """Say what members that ran at the same time would have saved on common cards, each a process of its own."""
    if case.subject.kind != "family":
        return None
    attempts = [one for one in case.attempts if run_seconds(one, case) >= settings[MIN_RUN]]
    if not attempts or (total(one.gpu_seconds for one in attempts).used_ratio or 0.0) >= settings[HIGHEST_USED]:
        return None
    known = usable(case, attempts, NAME)
    if isinstance(known, Refusal):
        return known
    members = members_of(known, case)
    if (members.account.used_ratio or 0.0) >= settings[HIGHEST_USED] or members.idle_seconds < settings[MIN_SAVING]:
        return None
    return _judged(case, members, settings)


def _judged(case: Case, members: Members, settings: Settings) -> Recommendation | Refusal | None:
    at_once = members.stack(MOST_TOGETHER).most_at_once
    memory = memory_of(members.attempts)
    fit = MOST_TOGETHER if memory is None or memory[0] <= 0 else int(memory[1] // memory[0])
    if fit <= 1:
        return Refusal(case.subject, NAME, "Two members do not fit into the memory of one device.")
    if at_once <= 1:
        return _beside_another(case, members, settings) or never_together(case, NAME)
    demand = Demand(members.busy_ratio, members.quality("dram_active_ratio"))
    most = min(fit, at_once)
    together = max((k for k in range(2, most + 1) if _speed(demand, k).likely >= settings[LEAST_SPEED]), default=None)
    if together is None:
        return None
    is_bound = case.rung is Rung.DRIVER_UTIL and demand.dram_ratio is None
    saving = _saving(members, demand, most if is_bound else together, is_bound=is_bound)
    if (saving.high if saving.likely is None else saving.likely) < settings[MIN_SAVING]:
        return None
    return Recommendation(
        recommendation_id=recommendation_id(NAME, case.subject),
        subject=case.subject,
        remedy=NAME,
        title=f"Share cards among repeats: {case.label}",
        saving_gpu_seconds=saving,
        confidence="bound" if is_bound else "modelled",
        how=_how(together, is_bound=is_bound),
        rung=str(case.rung),
        evidence=_evidence(case, members, demand, together, memory),
        action=_action(members, together, memory, settings),
        risks=_RISKS,
    )


@dataclass(frozen=True, slots=True)
class _Pairing:
    """A family beside another on common cards: the other, the pairs' card-seconds, and what they would have saved."""

    other: Case
    paired_seconds: float
    speeds: tuple[Range, Range]
    saving: Saving


def _beside_another(case: Case, members: Members, settings: Settings) -> Recommendation | None:
    """Pair members with those of another family of the same person, where they ran at the same time.

    It is said once, of the family that comes first; only where a family cannot share among itself.
    """
    subjects = [one.subject for one in case.neighbours]
    if case.subject not in subjects or case.rung is Rung.DRIVER_UTIL:
        return None
    later = case.neighbours[subjects.index(case.subject) + 1 :]
    pairings = [found for one in later[:_MOST_NEIGHBOURS] if (found := _pairing(case, members, one, settings))]
    best = max(pairings, key=lambda one: one.saving.likely or 0.0, default=None)
    if best is None or (best.saving.likely or 0.0) < settings[MIN_SAVING]:
        return None
    beside = best.other.subject.id
    words = [f"{speed.likely:.0%} ({speed.low:.0%} to {speed.high:.0%})" for speed in best.speeds]
    return Recommendation(
        recommendation_id=recommendation_id(NAME, case.subject),
        subject=case.subject,
        remedy=NAME,
        title=f"Share cards with another family: {case.label}, beside {best.other.label}",
        saving_gpu_seconds=best.saving,
        confidence="modelled",
        how="one card for two wherever both ran, less the time by which the slower of a pair takes longer, from taking "
        "turns (low) to meeting in memory traffic alone (high); the law was checked on measured pairs (bench sharing)",
        rung=str(case.rung),
        evidence=(
            *held_line(members, members.stack(MOST_TOGETHER)),
            f"{hours(best.paired_seconds)} hours in which a member could have sat beside one of {beside}",
            f"on one card members keep {words[0]} of their speed, those of the other family {words[1]}",
        ),
        action="# one job on one card that starts a member of each family, sharing it through MPS\n"
        "#SBATCH --gres=gpu:1\nnvidia-cuda-mps-control -d\n./run_one & ./run_other & wait\n"
        "echo quit | nvidia-cuda-mps-control",
        risks=(*_RISKS, "The two must start together, and the card is held until the longer one ends."),
    )


def _pairing(case: Case, members: Members, other: Case, settings: Settings) -> _Pairing | None:
    known = [one for one in other.attempts if one.gpu_count == 1 and one.gpu_seconds.held_idle is not None]
    known = [one for one in known if run_seconds(one, case) >= settings[MIN_RUN]]
    owners = {one.user or one.account for one in (*members.attempts, *known)}
    if other.subject.kind != "family" or not known or len(owners) != 1 or None in owners:
        return None
    theirs = members_of(known, other)
    memories = memory_of(members.attempts), memory_of(known)
    if None not in memories and sum(one[0] for one in memories if one) > min(one[1] for one in memories if one):
        return None
    demands = [Demand(one.busy_ratio, one.quality("dram_active_ratio")) for one in (members, theirs)]
    speeds = shared_speed(demands[0], demands[1:]), shared_speed(demands[1], demands[:1])
    if min(speed.likely for speed in speeds) < settings[LEAST_SPEED] or sum(one.busy_ratio for one in demands) >= 1:
        return None
    paired = together_seconds(members.attempts, known, (case.since_at, case.until_at))
    work = min(members.work_ratio, theirs.work_ratio)
    most = min(members.idle_seconds, theirs.idle_seconds)
    low, likely, high = (
        min(most, max(0.0, 2.0 - 1.0 / min(getattr(speed, word) for speed in speeds)) * paired * work)
        for word in ("low", "likely", "high")
    )
    return _Pairing(other, paired, speeds, Saving(low, likely, high))


def _speed(demand: Demand, together: int) -> Range:
    return shared_speed(demand, [demand] * (together - 1))


def _saving(members: Members, demand: Demand, together: int, *, is_bound: bool) -> Saving:
    """Give card time freed, less what members slow each other down; no more than idle time that nobody else claims."""
    stacked = members.stack(together)
    stretch = Range(1.0, 1.0, 1.0) if is_bound else _speed(demand, together).falling(lambda speed: 1.0 / speed)
    found = members.saving(stacked, stretch)
    low, likely, high = (min(one or 0.0, members.idle_seconds) for one in (found.low, found.likely, found.high))
    return Saving(0.0, None, high) if is_bound else Saving(low, likely, high)


def _how(together: int, *, is_bound: bool) -> str:
    if is_bound:
        return (
            "the lesser of the members' idle time and the card time that stacking them frees; driver utilization alone "
            "does not tell how much they would slow each other down"
        )
    return (
        f"{together} members on a card: card time freed, less the time by which they slow each other down, from taking "
        "turns (low) to meeting in memory traffic alone (high); the law was checked on measured pairs (bench sharing)"
    )


def _evidence(
    case: Case, members: Members, demand: Demand, together: int, memory: tuple[float, float] | None
) -> tuple[str, ...]:
    speed = _speed(demand, together)
    rows = [
        *held_line(members, members.stack(together)),
        (
            f"{hours(members.idle_seconds)} GPU-hours idle between their work, not counting long stretches that a "
            "release gives back"
        ),
        (
            f"while they worked the card was busy {demand.busy_ratio:.0%} of the time: {together} on a card keep "
            f"{speed.likely:.0%} of their speed ({speed.low:.0%} to {speed.high:.0%})"
        ),
    ]
    if memory is None:
        rows.append("device memory is not known for all members: see that they fit before they share")
    else:
        rows.append(f"a member peaks at {memory[0] / BYTES_PER_GIB:.1f} GiB of {memory[1] / BYTES_PER_GIB:.1f}")
    return (*rows, *driver_line(case))


def _action(members: Members, together: int, memory: tuple[float, float] | None, settings: Settings) -> str:
    cores = [one.requested_cpu_count or one.cpu_count for one in members.attempts]
    asked = [count for count in cores if count]
    lines = [
        f"# {together} members side by side on one card, sharing it through MPS",
        "#SBATCH --gres=gpu:1",
        *([f"#SBATCH --cpus-per-task={together * max(asked):.0f}"] if asked else []),
        "nvidia-cuda-mps-control -d",
        f'for member in $(seq 1 {together}); do ./run_member "$member" & done; wait',
        "echo quit | nvidia-cuda-mps-control",
        *_mig_lines(members.attempts, memory, settings),
    ]
    if members.busy_ratio < settings[SEAT_USED]:
        lines.append("# or, where MPS is not allowed: time slicing, which seats holders that are idle most of the time")
    return "\n".join(lines)


def _mig_lines(
    attempts: Sequence[AttemptEvidence], memory: tuple[float, float] | None, settings: Settings
) -> tuple[str, ...]:
    """Name the smallest slice of the card that holds a member's memory, where the card has slices."""
    models = {one.gpu_model for one in attempts}
    if memory is None or len(models) != 1:
        return ()
    catalogue = read_catalogue(settings[GPUS_FILE])
    gpus = find(catalogue, models.pop() or "")
    profiles = [one for gpu in gpus[:1] for one in catalogue.mig_profiles_of(gpu)]
    large = [one for one in profiles if one.memory_bytes is not None and one.memory_bytes >= memory[0]]
    if not large or max(one.max_instances for one in large) <= 1:
        return ()
    best = max(large, key=lambda one: (one.max_instances, -(one.memory_bytes or 0)))
    return (f"# or isolated, on MIG slices: {best.profile} holds a member, {best.max_instances} of it fit on a card",)


REMEDY = Remedy(
    name=NAME,
    title="Share a card",
    description="Finds families of one-GPU jobs that leave their cards mostly idle, and says how many could share one.",
    settings=(HIGHEST_USED, LEAST_SPEED, SEAT_USED, MIN_RUN, MIN_SAVING),
    judge=judge,
)
