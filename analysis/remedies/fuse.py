"""Fuse members of a family into one program (HFTA). What it finds, with a sample: ``docs/remedies/fuse.md``."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from analysis.account import total
from analysis.estimate import Range
from analysis.fusing import Fill, least_stretch, stretch_from_fill
from analysis.gpu_file import read_catalogue
from analysis.gpu_names import find
from analysis.names import vocabulary
from analysis.remedy import Case, Remedy
from analysis.saving import fit_count, recommendation_id
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
from analysis.sweep import alike
from analysis.waves import card_of, fused_work
from warehouse.contract.metrics import Rung
from warehouse.contract.model import Recommendation, Refusal, Saving
from warehouse.contract.settings import Setting, Settings
from warehouse.contract.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analysis.evidence import AttemptEvidence
    from analysis.waves import Card, Work

NAME = "fuse"

HIGHEST_USED = Setting(
    "fuse",
    "highest_used_ratio",
    0.5,
    "share of known time",
    "Above half, what fusing gains rests on how well kernels fill the card, and without kernels or SM activity nothing "
    "tells that.",
    0.0,
    1.0,
)
BASE_BYTES = Setting(
    "fuse",
    "base_bytes",
    1.5 * BYTES_PER_GIB,
    "bytes",
    "What a process of a framework and its context take for themselves, and fused members need once: the memory limits "
    "that HFTA published for V100 and A100 agree with it (bench fusion).",
    0.0,
)
FREE_WORDS = Setting(
    "fuse",
    "vector_words",
    (
        *("lr", "learning_rate", "wd", "weight_decay", "momentum", "beta1", "beta2", "betas", "eps", "gamma", "alpha"),
        *("step_size", "seed", "run", "trial", "rep", "repeat", "replica", "id", "idx", "name", "run_name", "task"),
        *("output", "output_dir", "out", "log_dir", "save_dir", "exp_name", "rank", "no", "nr"),
    ),
    "names of parameters",
    "Members that differ in these can be fused: numbers of the optimiser become vectors (HFTA), the rest names a run.",
)
MIN_RUN = Setting(
    "fuse",
    "min_run_seconds",
    300.0,
    "seconds",
    "Attempts shorter than this are left out: they are start-up and end, which fusing does not save.",
    0.0,
)
MIN_SAVING = Setting(
    "fuse", "min_saving_gpu_seconds", 3600.0, "GPU-seconds", "Less than one GPU-hour is worth nobody's attention.", 0.0
)
_SAME_SHAPE_RATIO = 1.25
"""Members of equal shapes allocate the same; a framework's cache alone makes their peaks differ by less than this."""
_RISKS = (
    (
        "Fused members start and end together, fail together, and must have equal shapes: other batch sizes, layers or "
        "optimisers cannot be fused."
    ),
    (
        "vmap has no rule for every operator: recurrent layers (LSTM, GRU), operators whose output size depends "
        "on data, and .item() in the step must go; batch norm must keep no running statistics or be replaced; dropout "
        "needs randomness='different'."
    ),
    "Each member's gradients stay its own only if losses are summed over members and never averaged.",
)


@dataclass(frozen=True, slots=True)
class _Part:
    """Members that can be fused with each other: how many at once, and what that would have saved."""

    members: Members
    copies: int
    fit: int | None
    saving: Saving
    how: str


Stretch = tuple["Callable[[int], Range | None]", str]


def judge(case: Case, settings: Settings) -> Recommendation | Refusal | None:
    """Say what the members of a family that ran at the same time would have saved as one fused program."""
    if case.subject.kind != "family":
        return None
    attempts = [one for one in case.attempts if run_seconds(one, case) >= settings[MIN_RUN]]
    used = total(one.gpu_seconds for one in attempts).used_ratio or 0.0
    is_full = used >= settings[HIGHEST_USED]
    if not attempts or (is_full and all(one.work is None for one in attempts)):
        return None
    known = usable(case, attempts, NAME)
    if isinstance(known, Refusal):
        return known
    if is_full and all(one.work is None for one in known):
        return None
    if members_of(known, case).work_seconds < settings[MIN_SAVING]:
        return None
    return _judged(case, known, settings)


def _judged(case: Case, known: Sequence[AttemptEvidence], settings: Settings) -> Recommendation | Refusal | None:
    groups, vectors, fixed = alike(known, vocabulary(settings), frozenset(settings[FREE_WORDS]))
    everyone = members_of(known, case).stack(MOST_TOGETHER)
    parts = [_part(case, members_of(group, case), settings) for group in groups if len(group) > 1]
    found = [part for part in parts if part.copies > 1]
    if not found:
        if parts and all(part.fit == 1 for part in parts):
            return Refusal(case.subject, NAME, "Two members do not fit into the memory of one device, even fused.")
        if everyone.most_at_once <= 1 or not fixed:
            return never_together(case, NAME)
        reason = f"No two members that ran together differ in free parameters only: {', '.join(fixed)} differ."
        return Refusal(case.subject, NAME, reason)
    saving = _sum(found)
    if (saving.high if saving.likely is None else saving.likely) < settings[MIN_SAVING]:
        return None
    best = found[0]
    return Recommendation(
        recommendation_id=recommendation_id(NAME, case.subject),
        subject=case.subject,
        remedy=NAME,
        title=f"Fuse repeats into one program: {case.label}",
        saving_gpu_seconds=saving,
        confidence="bound" if saving.likely is None else "modelled",
        how=best.how,
        rung=str(case.rung),
        evidence=_evidence(case, found, vectors, fixed),
        action=_action(best.copies, vectors),
        risks=_RISKS,
    )


def _part(case: Case, members: Members, settings: Settings) -> _Part:
    """Choose how many to fuse: as many as fit, or fewer where that would have saved more."""
    fit = fit_count(members.attempts, settings[BASE_BYTES])
    most = min(members.stack(MOST_TOGETHER).most_at_once, MOST_TOGETHER if fit is None else fit)
    fill = _fill(members)
    stretch_of, how = _stretch(case, members, fill, settings)
    best = _Part(members, 1, fit, Saving(0.0, 0.0, 0.0), how)
    for copies in range(2, most + 1):
        found = _saving(members, fill, copies, stretch_of)
        if copies == 2 or _key(found) > _key(best.saving):  # noqa: PLR2004 - two is the first that is fused
            best = _Part(members, copies, fit, found, how)
    return best


def _key(saving: Saving) -> float:
    return saving.high if saving.likely is None else saving.likely


def _saving(members: Members, fill: Fill, copies: int, stretch_of: Callable[[int], Range | None]) -> Saving:
    stacked = members.stack(copies)
    stretch = stretch_of(copies)
    if stretch is not None:
        return members.saving(stacked, stretch)
    least = least_stretch(fill, copies)
    bound = members.saving(stacked, Range(least, least, least)).high
    return Saving(0.0, None, min(bound, members.idle_seconds))


def _stretch(case: Case, members: Members, fill: Fill, settings: Settings) -> Stretch:
    """Give the step time of B members over that of one by the best evidence there is, and its words."""
    traced = _traced(members.attempts, settings)
    if traced is not None:
        work, card = traced
        how = "waves of the traced kernels: B times the blocks, from whole waves (low time) to no room at all (high)"
        return (lambda copies: fused_work(work, card, copies).times(1.0 / work.seconds)), how
    if fill.sm_active_ratio is not None and case.rung is not Rung.DRIVER_UTIL:
        how = (
            "SM activity of one member as its share of the card; low saving: busy times never overlap, high: warps and "
            "memory traffic alone are in the way"
        )
        return (lambda copies: stretch_from_fill(fill, copies)), how
    how = (
        "the lesser of the members' idle time and the card time that fusing frees; how much longer the fused step "
        "takes needs SM activity or traced kernels"
    )
    return (lambda _: None), how


def _traced(attempts: Sequence[AttemptEvidence], settings: Settings) -> tuple[Work, Card] | None:
    """Give the longest traced work of a member, and the card of its GPU."""
    traced = [(one.work, one.gpu_model) for one in attempts if one.work is not None]
    if not traced:
        return None
    work, model = max(traced, key=lambda pair: pair[0].seconds)
    gpus = find(read_catalogue(settings[GPUS_FILE]), model or "")
    card = card_of(gpus[0]) if gpus else None
    return None if card is None or work.seconds <= 0 or not work.kernels else (work, card)


def _fill(members: Members) -> Fill:
    names = ("sm_active_ratio", "sm_occupancy_ratio", "dram_active_ratio")
    return Fill(members.busy_ratio, *(members.quality(name) for name in names))


def _sum(parts: Sequence[_Part]) -> Saving:
    """Add up parts: members of one sweep fill the card alike, so that their errors go together."""
    likely = [part.saving.likely for part in parts]
    known = [value for value in likely if value is not None]
    return Saving(
        fsum(part.saving.low for part in parts),
        fsum(known) if len(known) == len(parts) else None,
        fsum(part.saving.high for part in parts),
    )


def _evidence(case: Case, parts: Sequence[_Part], vectors: Sequence[str], fixed: Sequence[str]) -> tuple[str, ...]:
    everyone = members_of([one for part in parts for one in part.members.attempts], case)
    best = parts[0]
    stacked = best.members.stack(best.copies)
    rows = [
        *held_line(everyone, everyone.stack(MOST_TOGETHER)),
        (
            f"{best.copies} fused at a time would need {hours(stacked.needed_seconds)} of {hours(stacked.held_seconds)}"
            " card-hours, before a fused step takes longer than one alone"
        ),
        f"become vectors: {', '.join(vectors)}" if vectors else "no free parameter is seen to vary: repeats, or seeds",
        _memory(best),
    ]
    peaks = [one.memory_peak_bytes for one in best.members.attempts if one.memory_peak_bytes is not None]
    if peaks and max(peaks) > _SAME_SHAPE_RATIO * min(peaks):
        low, high = (peak / BYTES_PER_GIB for peak in (min(peaks), max(peaks)))
        rows.append(f"members peak at {low:.1f} to {high:.1f} GiB: their shapes may differ, which cannot be fused")
    if fixed:
        rows.append(f"{len(parts)} groups are fused apart, for {', '.join(fixed)} differ")
    if all(one.command is None for one in everyone.attempts):
        rows.append("commands are not known: that members are equal in all else is taken from their names")
    return (*rows, *driver_line(case))


def _memory(part: _Part) -> str:
    memory = memory_of(part.members.attempts)
    if part.fit is not None and memory is not None:
        return f"a member peaks at {memory[0] / BYTES_PER_GIB:.1f} GiB: at most {part.fit} fit fused on one card"
    if memory is None:
        return "device memory is not known for all members: see that they fit"
    return "device memory is no limit: a member needs less than one process of a framework"


def _action(copies: int, vectors: Sequence[str]) -> str:
    named = ", ".join(vectors) or "lr"
    return f"""\
# one program trains {copies} members: stack their parameters, map the step over them
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
models = [build(seed=seed) for seed in range({copies})]      # equal but for numbers
params, buffers = stack_module_state(models)            # leading axis: the member
numbers = torch.tensor([...])                           # {named}: one value for each member
def loss_of(params, buffers, batch, target):
    return loss(functional_call(models[0], (params, buffers), (batch,)), target)
step = vmap(grad_and_value(loss_of), in_dims=(0, 0, None, None), randomness="different")
grads, losses = step(params, buffers, batch, target)    # then update: numbers broadcast over the leading axis
# try 2 members first, and compare the time of a step with that of one"""


REMEDY = Remedy(
    name=NAME,
    title="Fuse repeats",
    description="Finds families of one-GPU jobs that differ in numbers only, and says what fusing them would save.",
    settings=(HIGHEST_USED, BASE_BYTES, FREE_WORDS, MIN_RUN, MIN_SAVING),
    judge=judge,
)
