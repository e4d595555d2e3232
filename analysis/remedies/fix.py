"""Fix what breaks: lost cards, failing nodes, crash loops, slowed clocks, slow ranks. See ``docs/remedies/fix.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING

from analysis.remedy import Case, Remedy
from analysis.saving import recommendation_id
from analysis.stragglers import slowest, tax, waiting
from warehouse.contract.model import AttemptState, Recommendation, Saving
from warehouse.contract.settings import Setting, Settings
from warehouse.contract.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.evidence import AttemptEvidence

NAME = "fix"

REPAIR_LONG = Setting(
    "fix",
    "repair_long_seconds",
    3 * SECONDS_PER_DAY,
    "seconds",
    "Low estimate: a card that is noticed after a weekend and reset or taken out then.",
    0.0,
)
REPAIR_USUAL = Setting(
    "fix", "repair_usual_seconds", SECONDS_PER_DAY, "seconds", "Likely estimate: the next working day.", 0.0
)
REPAIR_SHORT = Setting(
    "fix",
    "repair_short_seconds",
    4 * SECONDS_PER_HOUR,
    "seconds",
    "High estimate: an alert that somebody acts on within half a working day.",
    0.0,
)
PATIENCE_LONG = Setting(
    "fix",
    "failures_long_count",
    5,
    "failures in a row",
    "Low estimate: a rule that stops work, or drains a node, after so many failures without a success between.",
    1,
)
PATIENCE_USUAL = Setting(
    "fix", "failures_usual_count", 3, "failures in a row", "Likely estimate: three failures are no accident.", 1
)
PATIENCE_SHORT = Setting(
    "fix", "failures_short_count", 2, "failures in a row", "High estimate: one repetition is allowed.", 1
)
CHECKPOINT = Setting(
    "fix",
    "checkpoint_seconds",
    3600.0,
    "seconds",
    "Low estimate of what a node's failure costs: work that saves itself every hour loses no more than that.",
    0.0,
)
MIN_TAX = Setting(
    "fix",
    "min_straggler_tax",
    1.1,
    "factor",
    "Ranks that lose less than a tenth to the slowest are balanced as well as most work can be.",
    1.0,
)
MIN_SAVING = Setting(
    "fix",
    "min_saving_gpu_seconds",
    3600.0,
    "GPU-seconds",
    "Less than one GPU-hour is not worth anybody's attention.",
    0.0,
)

_HARDWARE = ("xid", "ecc_uncorrected", "device_lost")
_CRASHES = frozenset({AttemptState.FAILED, AttemptState.OUT_OF_MEMORY})
_SAFE = re.compile(r"[\w.-]+\Z")


@dataclass(frozen=True, slots=True)
class _Problem:
    """One thing that is broken, with what it costs and what to do."""

    title: str
    saving: Saving
    confidence: str
    how: str
    evidence: tuple[str, ...]
    action: str
    risks: tuple[str, ...]

    @property
    def weight(self) -> tuple[bool, float]:
        """Give its rank: what is known to be worth most, then the largest bound."""
        likely = self.saving.likely
        return likely is not None, self.saving.high if likely is None else likely


def judge(case: Case, settings: Settings) -> Recommendation | None:
    """Name what costs the subject most; whatever else is broken stands in the evidence."""
    found = [one for one in _problems(case, settings) if _worth(one.saving) >= settings[MIN_SAVING]]
    if not found:
        return None
    first, *others = sorted(found, key=lambda one: one.weight, reverse=True)
    return Recommendation(
        recommendation_id=recommendation_id(NAME, case.subject),
        subject=case.subject,
        remedy=NAME,
        title=f"{first.title}: {case.label}",
        saving_gpu_seconds=first.saving,
        confidence=first.confidence,
        how=first.how,
        rung=str(case.rung),
        evidence=(*first.evidence, *(f"also: {one.title[:1].lower()}{one.title[1:]}" for one in others)),
        action=first.action,
        risks=first.risks,
    )


def _problems(case: Case, settings: Settings) -> Iterator[_Problem]:
    finders = (_lost, _failing, _slowed) if case.subject.kind == "node" else (_crashing, _ending, _straggling)
    for find in finders:
        problem = find(case, settings)
        if problem is not None:
            yield problem


def _worth(saving: Saving) -> float:
    return saving.high if saving.likely is None else saving.likely


def _lost(case: Case, settings: Settings) -> _Problem | None:
    """Cards that are gone: the time in which nobody could hold them, less the time that a repair takes."""
    lost = {} if case.node is None else case.node.lost
    spans = [span for own in lost.values() for span in own]
    if not spans:
        return None
    waits = sorted((settings[REPAIR_LONG], settings[REPAIR_USUAL], settings[REPAIR_SHORT]), reverse=True)
    low, likely, high = (sum(max(0.0, end - start - wait) for start, end in spans) for wait in waits)
    device, since = min(((name, own[0][0]) for name, own in lost.items()), key=lambda pair: pair[1])
    gone = sum(end - start for start, end in spans)
    hours = ", ".join(f"{wait / SECONDS_PER_HOUR:g} h" for wait in waits)
    return _Problem(
        "Bring lost cards back",
        Saving(low, likely, high),
        "modelled",
        f"measured time of lost cards, less {hours} for a repair (low, likely, high)",
        (
            f"{len(lost)} of its cards were lost for {_hours(gone)} GPU-hours",
            f"the first is {device}, since {iso(since)}",
            *_hardware(case.attempts),
        ),
        _drain(case.label, "lost GPU"),
        ("A reset or restart ends the jobs on the node: drain it first.",),
    )


def _failing(case: Case, settings: Settings) -> _Problem | None:
    """Work that its node ended, over and over: what a node that is drained would not have ended."""
    ended = [one for one in case.attempts if _node_failed(one, case.label)]
    ended.sort(key=lambda one: (_end(one, case), one.attempt_key))
    low = sum(
        min(one.gpu_seconds.allocated, settings[CHECKPOINT] * one.gpu_count) for one in ended[_patience(settings)[0] :]
    )
    high = sum(one.gpu_seconds.allocated for one in ended[_patience(settings)[2] :])
    if high <= 0:
        return None
    return _Problem(
        "Drain a node that ends work",
        Saving(low, None, high),
        "bound",
        "the work that it ended after its first failures: at most all of it, at least what was not saved since the "
        "last checkpoint",
        (
            f"it ended {len(ended)} attempts that held {_hours(_held(ended))} GPU-hours",
            *_hardware(case.attempts),
        ),
        _drain(case.label, "ends jobs"),
        ("A drained node is missing from capacity until it is repaired.",),
    )


def _node_failed(one: AttemptEvidence, node: str) -> bool:
    """Say whether a node, and not the work, ended an attempt; of several nodes one with an event of its own."""
    hardware = any(event.kind in _HARDWARE and event.node in (node, None) for event in one.events)
    if one.state is AttemptState.NODE_FAIL:
        return hardware or len(one.nodes) == 1
    return one.state is AttemptState.FAILED and hardware


def _slowed(case: Case, _settings: Settings) -> _Problem | None:
    """Clocks that heat or a power brake lowered: at most the clock that was lost, in the time that was slowed."""
    high = slow = 0.0
    clocks: list[tuple[float, float]] = []
    for one in case.attempts:
        share = max(
            (one.board[name].value for name in ("thermal_slowed_ratio", "power_braked_ratio") if name in one.board),
            default=0.0,
        )
        lowered, free = one.board.get("slowed_clock_hertz"), one.board.get("free_clock_hertz")
        if share <= 0 or lowered is None or free is None or free.value <= lowered.value:
            continue
        time = share * (one.gpu_seconds.used or 0.0) / max(len(one.nodes), 1)
        slow += time
        high += time * (1.0 - lowered.value / free.value)
        clocks.append((lowered.value, free.value))
    if not clocks:
        return None
    lowered_hertz, free_hertz = min(clocks, key=lambda pair: pair[0] / pair[1])
    return _Problem(
        "Cool cards that run slowly",
        Saving(0.0, None, high),
        "bound",
        "the share of the clock that was lost, in the time that heat or the power brake lowered it; work that waits "
        "for memory loses less",
        (
            f"{len(clocks)} attempts computed for {_hours(slow)} GPU-hours at a lowered clock",
            f"at worst {lowered_hertz / 1e9:.2f} GHz in place of {free_hertz / 1e9:.2f} GHz",
        ),
        "# look at fans, filters, inlet temperature and power supplies; nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
        ("None: a cooler card is no slower.",),
    )


def _crashing(case: Case, settings: Settings) -> _Problem | None:
    """Failures in a row: what a rule that holds the work back after so many would have spared."""
    patience = _patience(settings)
    spared = [_after(case, patience[at], _CRASHES) for at in range(3)]
    if spared[2] <= 0:
        return None
    failed = [one for one in case.attempts if one.state in _CRASHES]
    words = {state: sum(1 for one in failed if one.state is state) for state in sorted(_CRASHES)}
    return _Problem(
        "Stop what crashes again and again",
        Saving(spared[0], spared[1], spared[2]),
        "modelled",
        "measured failures, less the first " + ", ".join(map(str, patience)) + " in a row (low, likely, high)",
        (
            f"{len(failed)} of {len(case.attempts)} attempts failed and held {_hours(_held(failed))} GPU-hours",
            ", ".join(f"{count} {state.value.replace('_', ' ')}" for state, count in words.items() if count),
            *_hardware(failed),
        ),
        "# try it short and small before many of it are submitted; submit the rest with\n"
        "#SBATCH --dependency=afterok:FIRST_JOB_ID",
        ("Attempts that failed may have written results: look before they are held back.",),
    )


def _ending(case: Case, settings: Settings) -> _Problem | None:
    """Time limits that end the work over and over: what is lost is not known, for nobody tells what was saved."""
    high = _after(case, _patience(settings)[2], frozenset({AttemptState.TIMEOUT}))
    if high <= 0:
        return None
    ended = [one for one in case.attempts if one.state is AttemptState.TIMEOUT]
    return _Problem(
        "Ends at its time limit again and again",
        Saving(0.0, None, high),
        "bound",
        "all time of the attempts after the first in a row: how much of their work was saved is not known",
        (f"{len(ended)} of {len(case.attempts)} attempts ended at their limit after {_hours(_held(ended))} GPU-hours",),
        "# save the state before the end and go on from it, or ask for the time that the work needs\n"
        "#SBATCH --signal=B:USR1@600 --requeue",
        ("A longer limit may wait longer for a place.",),
    )


def _straggling(case: Case, settings: Settings) -> _Problem | None:
    """Ranks that wait for the slowest: what they would not have waited, had it been like the others."""
    hours: list[float] = []
    worst: tuple[float, AttemptEvidence, str] | None = None
    for one in case.attempts:
        times = [rank.compute_seconds for rank in one.ranks]
        paid = tax(times)
        if paid is None or paid < settings[MIN_TAX]:
            continue
        at = slowest(times)
        hours += waiting(times, at).avoidable
        if worst is None or paid > worst[0]:
            worst = paid, one, one.ranks[at].profile
    if worst is None:
        return None
    low, likely, high = _spread(hours)
    limit = _held(case.attempts)
    return _Problem(
        "Mend or move the slowest rank",
        Saving(min(low, limit), min(likely, limit), min(high, limit)),
        "modelled",
        "hour by hour, what the ranks would not have waited had the slowest been like the median of the others, at the "
        "10th, 50th and 90th percentile of the hours",
        (
            f"ranks paid {worst[0]:.2f} times the time that they would have needed without waiting",
            f"{worst[2]} of {worst[1].attempt_key} is the slowest",
            *_hardware(case.attempts),
        ),
        "# if the slow rank stays on its node, drain the node; if it stays with its part of the work, divide the work "
        "anew",
        ("Ranks with different parts of the work (a stage of a pipeline) differ without anything being broken.",),
    )


def _spread(hours: Sequence[float]) -> tuple[float, float, float]:
    if len(hours) == 1:
        return hours[0], hours[0], hours[0]
    tenths = quantiles(hours, n=10, method="inclusive")
    return tenths[0] * len(hours), tenths[4] * len(hours), tenths[8] * len(hours)


def _after(case: Case, patience: int, states: frozenset[AttemptState]) -> float:
    """Give the GPU-seconds of attempts that ended so after ``patience`` others had in a row, in order of their ends."""
    total, row = 0.0, 0
    for one in sorted(case.attempts, key=lambda one: (_end(one, case), one.attempt_key)):
        row = row + 1 if one.state in states else 0
        total += one.gpu_seconds.allocated if row > patience else 0.0
    return total


def _held(attempts: Sequence[AttemptEvidence]) -> float:
    return sum(one.gpu_seconds.allocated for one in attempts)


def _patience(settings: Settings) -> list[int]:
    """Give how many failures are allowed, for the low, likely and high estimate."""
    return sorted((settings[PATIENCE_LONG], settings[PATIENCE_USUAL], settings[PATIENCE_SHORT]), reverse=True)


def _end(one: AttemptEvidence, case: Case) -> float:
    return case.until_at if one.end_at is None else one.end_at


def _hardware(attempts: Sequence[AttemptEvidence]) -> tuple[str, ...]:
    """Count the driver's own words about broken hardware in the time of some attempts."""
    events = {event for one in attempts for event in one.events if event.kind in _HARDWARE}
    counts = {kind: sum(1 for event in events if event.kind == kind) for kind in _HARDWARE}
    words = ", ".join(f"{count} of {kind}" for kind, count in counts.items() if count)
    return (f"events of hardware: {words}",) if words else ()


def _drain(node: str, reason: str) -> str:
    if not _SAFE.match(node):
        return f"# drain node {node!r}"
    return f'scontrol update nodename={node} state=drain reason="{reason}"\n# or: kubectl drain {node}'


def _hours(seconds: float) -> str:
    return f"{seconds / SECONDS_PER_HOUR:,.1f}"


REMEDY = Remedy(
    name=NAME,
    title="Fix what breaks",
    description="Finds lost cards, nodes that end work, crash loops, slowed clocks and ranks that the others wait for.",
    settings=(
        *(REPAIR_LONG, REPAIR_USUAL, REPAIR_SHORT, PATIENCE_LONG, PATIENCE_USUAL, PATIENCE_SHORT),
        *(CHECKPOINT, MIN_TAX, MIN_SAVING),
    ),
    judge=judge,
    subjects=frozenset({"family", "job", "node"}),
)
