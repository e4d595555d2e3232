"""Take another GPU, or a slice of one. What it finds, with a sample: ``docs/remedies/choose_gpu.md``."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from analysis.account import total
from analysis.evidence import require
from analysis.gpu_options import KNOWN_ERRORS, SLICE_NEEDS, NoOption, Option, Subject, options
from analysis.remedy import Case, Remedy
from analysis.saving import recommendation_id
from warehouse.contract.metrics import Rung
from warehouse.contract.model import Recommendation, Refusal, Saving
from warehouse.contract.settings import Setting, Settings
from warehouse.contract.units import BYTES_PER_GIB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.account import GpuSeconds
    from analysis.estimate import Range
    from analysis.evidence import AttemptEvidence
    from analysis.gpu_site import SiteGpus

NAME = "choose_gpu"

MODELS = Setting(
    "choose_gpu",
    "models",
    (),
    "GPU models",
    "Models that the site could give beside those that work ran on in the window: ids of `trueload gpus`, or names.",
)
SLICES = Setting(
    "choose_gpu",
    "slices",
    True,  # noqa: FBT003 - a setting's default
    "true or false",
    "MIG slices of the present GPU are compared too; false where cards are never partitioned.",
)
MEMORY_MARGIN = Setting(
    "choose_gpu",
    "memory_margin_ratio",
    0.1,
    "share of the memory",
    "What stays free above the highest memory that was seen: peaks between samples are missed, and frameworks keep "
    "some for themselves. Nothing smaller is ever advised.",
    0.0,
    0.9,
)
LONGEST_TIME = Setting(
    "choose_gpu",
    "longest_time_ratio",
    3.0,
    "times the present run time",
    "An option on which the work may take longer than this, by the high estimate, is no advice, however cheap.",
    1.0,
)
MIN_RUN = Setting(
    "choose_gpu",
    "min_run_seconds",
    300.0,
    "seconds",
    "Attempts shorter than this are left out: they are start-up and end, which no GPU shortens.",
    0.0,
)
MIN_SAVING = Setting(
    "choose_gpu",
    "min_saving_gpu_seconds",
    3600.0,
    "GPU-seconds",
    "A likely saving below one GPU-hour is not worth anybody's attention.",
    0.0,
)

_RISKS = (
    "The time on the other GPU is an estimate: run one member there first, and compare the time of a step.",
    "Another architecture may lack a number type, and adds in another order: results can differ in the last digits.",
)
_SLICE_RISKS = (
    *_RISKS[:1],
    "The card has to be partitioned (MIG), which needs it to be idle; a slice cannot talk to others by NVLink.",
)


def judge(case: Case, settings: Settings) -> Recommendation | Refusal | None:
    """Advise the GPU or slice that would most surely have cost less for the same work.

    The saving is what the work would have cost less, in GPU-seconds of the GPU that it had: time x (1 - ratio of time x
    ratio of price), of the time that the work used or paused for. It is advice only where the low estimate saves too.
    """
    attempts = [one for one in case.attempts if _run_seconds(one, case) >= settings[MIN_RUN] and one.gpu_count >= 1]
    if not attempts or case.site is None:
        return None
    own = _of_main_model(attempts)
    refusal = _unknown(case, own, case.site)
    if refusal is not None:
        return refusal
    subject = _subject(case, own, case.site, settings)
    if subject is None:
        return None
    names = [name for name in dict.fromkeys((*case.site.models, *settings[MODELS])) if name != subject.model]
    found = options(subject, names, case.site, settings[MEMORY_MARGIN])
    if not found:
        return None
    lacking = _lacking(case, subject, found)
    if lacking is not None:
        return lacking
    return _advice(case, own, subject, [one for one in found if isinstance(one, Option)], settings)


def subject_of(case: Case, settings: Settings) -> Subject | None:
    """Give what is known of a case's work for ``options``; None where its GPU or its use is not known."""
    own = _of_main_model(case.attempts) if case.attempts else []
    if not own or case.site is None or own[0].gpu_model is None or not case.site.gpus(own[0].gpu_model):
        return None
    return _subject(case, own, case.site, settings)


def _run_seconds(attempt: AttemptEvidence, case: Case) -> float:
    return (case.until_at if attempt.end_at is None else attempt.end_at) - attempt.start_at


def _of_main_model(attempts: Sequence[AttemptEvidence]) -> list[AttemptEvidence]:
    """Give the attempts on the model that holds most of the GPU time."""
    by_model: dict[str, list[AttemptEvidence]] = defaultdict(list)
    for one in attempts:
        by_model[one.gpu_model or ""].append(one)
    return max(by_model.values(), key=lambda own: sum(one.gpu_seconds.allocated for one in own))


def _unknown(case: Case, own: Sequence[AttemptEvidence], site: SiteGpus) -> Refusal | None:
    model = own[0].gpu_model
    if model is None:
        reason = "The model of the GPUs that the work held is not known."
        return Refusal(case.subject, NAME, reason, ("GPU types in accounting, or an agent on the nodes",))
    if not site.gpus(model):
        reason = f"The catalogue does not know {model[:100]}: nothing can be compared with it."
        return Refusal(case.subject, NAME, reason, ("the GPU in the file of setting gpus.file (docs/gpus.md)",))
    if total(one.gpu_seconds for one in own).held_idle is None:
        reason = "Accounting tells who held the GPUs and not how busy they were."
        missing = require(own, ("use",), 0.01)
        return Refusal(case.subject, NAME, reason, ("device samples, or the site's own means of use",), missing)
    return None


def _subject(case: Case, own: Sequence[AttemptEvidence], site: SiteGpus, settings: Settings) -> Subject | None:
    account = total(one.gpu_seconds for one in own)
    worked, model = _worked_seconds(account), own[0].gpu_model
    if not worked or model is None:
        return None
    peaks = [one.memory_peak_bytes for one in own]
    known = [peak for peak in peaks if peak is not None]
    return Subject(
        case.subject.id,
        model,
        site.gpus(model),
        min(1.0, (account.used or 0.0) / worked),
        max(known) if len(known) == len(peaks) else None,
        tuple(one.work for one in own if one.work is not None),
        _sm_active_ratio(own),
        may_slice=settings[SLICES] and all(one.gpu_count == 1 for one in own),
    )


def _worked_seconds(account: GpuSeconds) -> float:
    """Give the time that the work used or paused for: all that is known but what ``release`` may claim."""
    pauses = account.held_idle if account.gaps is None else account.gaps
    return (account.used or 0.0) + (pauses or 0.0)


def _sm_active_ratio(own: Sequence[AttemptEvidence]) -> float | None:
    """Give the highest SM activity of any attempt: a slice must serve them all. None: one is not known."""
    readings = [one.ladder.get("sm_active_ratio") for one in own]
    known = [one.value for one in readings if one is not None]
    return max(known) if len(known) == len(readings) else None


def _lacking(case: Case, subject: Subject, found: Sequence[Option | NoOption]) -> Refusal | None:
    """Refuse for want of what every option would need."""
    there = [one for one in found if isinstance(one, Option)]
    if not there:
        if any(isinstance(one, NoOption) and one.reason == SLICE_NEEDS for one in found):
            reason = f"No other GPU can be judged, and of slices, {SLICE_NEEDS}."
            return Refusal(case.subject, NAME, reason, ("samples of SM activity (GPM, DCGM)",))
        return None
    if subject.memory_bytes is None:
        reason = "How much device memory the work needs is not known: a smaller GPU might not hold it."
        return Refusal(case.subject, NAME, reason, ("device samples with memory in use, for every member",))
    if all(one.cost is None for one in there):
        names = ", ".join(sorted({one.name for one in there})[:5])
        reason = f"No provider is known to price both {subject.model[:100]} and {names}."
        return Refusal(case.subject, NAME, reason, ("what an hour of each costs, in the file of setting gpus.file",))
    return None


def _advice(
    case: Case, own: Sequence[AttemptEvidence], subject: Subject, found: Sequence[Option], settings: Settings
) -> Recommendation | None:
    worked = _worked_seconds(total(one.gpu_seconds for one in own))
    savings = [
        (_saving(worked, one.cost), one)
        for one in found
        if one.cost is not None and one.fits and one.time.high <= settings[LONGEST_TIME]
    ]
    sure = [(saving, one) for saving, one in savings if saving.low > 0 and (saving.likely or 0) >= settings[MIN_SAVING]]
    if not sure:
        return None
    saving, best = max(sure, key=lambda pair: (pair[0].likely or 0.0, pair[1].name))
    return Recommendation(
        recommendation_id=recommendation_id(NAME, case.subject),
        subject=case.subject,
        remedy=NAME,
        title=f"Take {'a slice' if best.profile else 'another GPU'} ({best.name[:60]}): {case.label}",
        saving_gpu_seconds=saving,
        confidence=best.confidence,
        how=f"time and price of the same work there, in hours of the GPU that it had; time from {best.how}",
        rung=str(case.rung),
        evidence=_evidence(case, own, subject, best, found),
        action=_action(best, subject, case.site),
        risks=_SLICE_RISKS if best.profile else _RISKS,
    )


def _saving(worked: float, cost: Range) -> Saving:
    """Give what the work would have cost less; more than all of it cannot be saved."""
    return Saving(worked * (1 - cost.high), worked * (1 - cost.likely), worked * (1 - cost.low))


# ---------------------------------------------------------------------------------------------------------------- words


def _evidence(
    case: Case, own: Sequence[AttemptEvidence], subject: Subject, best: Option, found: Sequence[Option]
) -> tuple[str, ...]:
    account = total(one.gpu_seconds for one in own)
    worked = _worked_seconds(account)
    memory = (subject.memory_bytes or 0.0) / BYTES_PER_GIB
    there = "unknown" if best.memory_bytes is None else f"{best.memory_bytes / BYTES_PER_GIB:.0f}"
    count, hours = len({one.job_key for one in own}), worked / SECONDS_PER_HOUR
    jobs = "1 job" if count == 1 else f"{count} jobs"
    rows = [
        f"{jobs} on {subject.model[:60]}: {hours:,.1f} GPU-hours of work, {subject.busy_ratio:.0%} of them busy",
        f"not counted: {_hours(account.unknown)} hours without data, and long idle stretches",
        f"frees these hours there, and takes {_range(best.time, hours)} hours on {best.name[:60]}",
        f"run time x {_range(best.time)}, price x {_range(best.price)} ({best.price_how}), cost x {_range(best.cost)}",
        f"memory: {memory:.1f} GiB at most in use, {there} GiB there",
        "a slice is slower the more of its card the work fills: models on slices of an A100 give the range"
        if best.profile
        else f"what is known of this estimator: {KNOWN_ERRORS[best.estimator]}",
    ]
    if best.energy is not None:
        rows.append(f"energy x {_range(best.energy)}, if both draw the same share of their board power")
    rows += _waits(case, subject, best)
    others = [one for one in found if one is not best and one.fits and one.cost is not None]
    rows += [f"instead, {one.name[:60]}: time x {_range(one.time)}, cost x {_range(one.cost)}" for one in others[:3]]
    if case.rung is Rung.DRIVER_UTIL:
        rows.append("the driver calls a card used whenever any kernel runs: the GPU's part of the time may be smaller")
    return tuple(rows)


def _waits(case: Case, subject: Subject, best: Option) -> list[str]:
    if case.site is None:
        return []
    known = [(name, case.site.waits.get(name)) for name in dict.fromkeys((subject.model, best.name))]
    said = [f"{_hours(wait.seconds)} h for {name[:60]} ({wait.count})" for name, wait in known if wait is not None]
    return [f"wait in the queue, median: {', '.join(said)}"] if said else []


def _action(best: Option, subject: Subject, site: SiteGpus | None) -> str:
    if best.profile:
        return f"""\
# an operator partitions some cards (nvidia-smi mig -cgi {best.profile} -C), then
#SBATCH --gres=gpu:{best.profile}:1
# or, on Kubernetes, instead of nvidia.com/gpu: 1
#   nvidia.com/mig-{best.profile}: 1"""
    partition = None if site is None else site.partitions.get(best.name)
    where = (
        f"#SBATCH --partition={partition}" if partition else f"# ask for {best.name[:60]} as your scheduler names it"
    )
    return f"""\
# one member first, to compare the time of a step with that on {subject.model[:60]}
{where}"""


def _range(one: Range | None, factor: float = 1.0) -> str:
    if one is None:
        return "unknown"
    if one.low == one.high:
        return f"{one.likely * factor:.2f}"
    return f"{one.low * factor:.2f} / {one.likely * factor:.2f} / {one.high * factor:.2f}"


def _hours(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds / SECONDS_PER_HOUR:,.1f}"


REMEDY = Remedy(
    name=NAME,
    title="Take another GPU",
    description="Finds work that would have cost less on another GPU model of the site, or on a slice of its own.",
    settings=(MODELS, SLICES, MEMORY_MARGIN, LONGEST_TIME, MIN_RUN, MIN_SAVING),
    judge=judge,
)
