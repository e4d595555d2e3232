"""From families and jobs to one ranked list of advice, and the list of what was refused and why."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from analysis.account import total
from analysis.gpu_site import site_gpus
from analysis.remedy import Case, NodeFacts, Remedy
from analysis.repetition import FamilyReport
from warehouse.contract.model import Recommendation, Refusal, Saving, Subject
from warehouse.contract.plugins import scan
from warehouse.contract.settings import AnySetting, Setting, Settings
from warehouse.contract.units import SECONDS_PER_HOUR, iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from analysis.account import GpuSeconds
    from analysis.evidence import AttemptEvidence
    from analysis.gpu_catalogue import Catalogue
    from warehouse.contract.metrics import Rung

MIN_GPU_SECONDS = Setting(
    "recommend",
    "min_gpu_seconds",
    3600.0,
    "GPU-seconds",
    "A family or job that held less than one GPU-hour in the window is not judged: nothing there is worth a change.",
    0.0,
)
EXCLUDED_USERS = Setting("recommend", "excluded_users", (), "users", "Whose jobs get no advice; none unless said.")
EXCLUDED_PARTITIONS = Setting(
    "recommend",
    "excluded_partitions",
    (),
    "partitions",
    "Where idle cards are meant, such as a reserve; none unless said.",
)
EXCLUDED_NAME_PREFIXES = Setting(
    "recommend",
    "excluded_name_prefixes",
    (),
    "beginnings of job names",
    "Work that is idle on purpose; none unless said.",
)
MAX_REFUSALS = Setting(
    "recommend",
    "max_refusals",
    1000,
    "refusals",
    "Subjects are judged in order of their GPU time, so the refusals that matter stand first; the rest are counted.",
    0,
)
GPU_HOUR_PRICE = Setting(
    "cost",
    "gpu_hour_price",
    -1.0,
    "money per GPU-hour",
    "Only the site knows its price. -1: not set, and money is null rather than a guess.",
    -1.0,
)
CURRENCY = Setting("cost", "currency", "EUR", "ISO 4217 code", "Names the money; said only where a price is set.")

_ID = re.compile(r"\br-[0-9a-f]{16}\b")
REMEDIES_PACKAGE = "analysis.remedies"


def remedies() -> dict[str, Remedy]:
    """Give every remedy by name, found by the scan."""
    return scan(REMEDIES_PACKAGE, "REMEDY", Remedy)


SETTINGS: tuple[AnySetting, ...] = (
    MIN_GPU_SECONDS,
    EXCLUDED_USERS,
    EXCLUDED_PARTITIONS,
    EXCLUDED_NAME_PREFIXES,
    MAX_REFUSALS,
    GPU_HOUR_PRICE,
    CURRENCY,
    *(setting for remedy in remedies().values() for setting in remedy.settings),
)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change in a window, best first, and what was refused instead."""

    recommendations: tuple[Recommendation, ...]
    refusals: tuple[Refusal, ...]
    refusals_left_out: int
    rung: Rung | None
    since_at: float
    until_at: float
    accounts: Mapping[Subject, GpuSeconds] = field(default_factory=dict)
    marked: tuple[str, ...] = ()


def advise(  # noqa: PLR0913 - everything that is known, once
    attempts: Sequence[AttemptEvidence],
    report: FamilyReport,
    rung: Rung | None,
    since_at: float,
    until_at: float,
    settings: Settings,
    nodes: Sequence[NodeFacts] = (),
    *,
    catalogue: Catalogue | None = None,
) -> Advice:
    """Put every family, every job outside one, and every node of which something is known, before every remedy."""
    found: list[Recommendation] = []
    refused: list[Refusal] = []
    accounts: dict[Subject, GpuSeconds] = {}
    cases = _cases(attempts, report, rung, since_at, until_at, settings)
    site = site_gpus(attempts, ((one.family_id, one.attempts) for one in report.families), catalogue)
    for case in [*cases, *_node_cases(attempts, nodes, rung, since_at, until_at)]:
        accounts[case.subject] = total(one.gpu_seconds for one in case.attempts)
        for remedy in remedies().values():
            if case.subject.kind not in remedy.subjects:
                continue
            verdict = remedy.judge(replace(case, site=site, neighbours=cases), settings)
            if isinstance(verdict, Recommendation):
                found.append(verdict)
            elif verdict is not None:
                refused.append(verdict)
    kept = refused[: settings[MAX_REFUSALS]]
    ranked = tuple(sorted(_excluding(found), key=_rank))
    left_out = len(refused) - len(kept)
    return Advice(ranked, tuple(kept), left_out, rung, since_at, until_at, accounts, _marks(attempts))


def _marks(attempts: Sequence[AttemptEvidence]) -> tuple[str, ...]:
    """Give the ids of advice that stand in comments and commands of jobs: somebody followed it and says so."""
    texts = (text for one in attempts for text in (one.comment, one.command) if text and "r-" in text)
    return tuple(sorted({found for text in texts for found in _ID.findall(text)}))


def _cases(
    attempts: Sequence[AttemptEvidence],
    report: FamilyReport,
    rung: Rung | None,
    since_at: float,
    until_at: float,
    settings: Settings,
) -> list[Case]:
    """Give the subjects that weigh enough, those with most GPU time first."""
    outside = set(report.ungrouped)
    alone = sorted((one for one in attempts if one.job_key in outside), key=lambda one: (one.job_key, one.start_at))
    subjects = [(Subject("family", family.family_id), family.label, family.attempts) for family in report.families]
    for job_key, own in groupby(alone, key=lambda one: one.job_key):
        members = tuple(own)
        subjects.append((Subject("job", job_key), _label(members[0]), members))
    cases: list[tuple[float, Case]] = []
    for subject, label, members in subjects:
        judged = tuple(member for member in members if not _is_excluded(member, settings))
        weight = sum(member.gpu_seconds.allocated for member in judged)
        if judged and weight >= settings[MIN_GPU_SECONDS]:
            cases.append((weight, Case(subject, label, judged, rung, since_at, until_at)))
    cases.sort(key=lambda pair: (-pair[0], pair[1].subject.id))
    return [case for _, case in cases]


def _node_cases(
    attempts: Sequence[AttemptEvidence], nodes: Sequence[NodeFacts], rung: Rung | None, since_at: float, until_at: float
) -> Iterator[Case]:
    """Give the nodes; a node's whole work counts, whoever wants no advice."""
    members: dict[str, list[AttemptEvidence]] = defaultdict(list)
    for one in attempts:
        for node in one.nodes:
            members[node].append(one)
    for facts in nodes:
        own = tuple(members.get(facts.node, ()))
        yield Case(Subject("node", facts.node), facts.node, own, rung, since_at, until_at, facts)


def _label(job: AttemptEvidence) -> str:
    owner = job.user or job.account or "unknown owner"
    return f"{owner}: {(job.name or job.scheduler_job_id)[:100]}"


def _is_excluded(job: AttemptEvidence, settings: Settings) -> bool:
    prefixes = settings[EXCLUDED_NAME_PREFIXES]
    return (
        job.user in settings[EXCLUDED_USERS]
        or job.partition in settings[EXCLUDED_PARTITIONS]
        or bool(prefixes and (job.name or "").startswith(prefixes))
    )


def _excluding(found: Sequence[Recommendation]) -> Iterator[Recommendation]:
    """Let advice on the same subject name each other: each is judged as if it alone were followed."""
    for one in found:
        others = (other.recommendation_id for other in found if other is not one and other.subject == one.subject)
        yield replace(one, excludes=tuple(others))


def _rank(one: Recommendation) -> tuple[bool, float, str]:
    saving = one.saving_gpu_seconds
    return (saving.likely is None, -(saving.high if saving.likely is None else saving.likely), one.recommendation_id)


def recommend_document(advice: Advice, settings: Settings) -> dict[str, object]:
    """Give the document of ``trueload recommend --json``."""
    return {
        "since": iso(advice.since_at),
        "until": iso(advice.until_at),
        "rung": advice.rung,
        "recommendations": [
            {**_as_document(one, settings), "subject_gpu_seconds": _account(advice, one.subject)}
            for one in advice.recommendations
        ],
        "refusals": [
            {
                "subject": _subject(one.subject),
                "remedy": one.remedy,
                "reason": one.reason,
                "needs": list(one.needs),
                "insufficient_data": bool(one.missing),
                "missing": [asdict(missing) for missing in one.missing],
            }
            for one in advice.refusals
        ],
        "refusals_left_out": advice.refusals_left_out,
        "family_gpu_seconds": {
            subject.id: _account(advice, subject) for subject in advice.accounts if subject.kind == "family"
        },
        "marked": list(advice.marked),
    }


def _account(advice: Advice, subject: Subject) -> dict[str, float | None]:
    """Give what a subject held and used: what later work is held against."""
    account = advice.accounts.get(subject)
    return {
        "allocated": None if account is None else account.allocated,
        "used": None if account is None else account.used,
    }


def _as_document(one: Recommendation, settings: Settings) -> dict[str, object]:
    saving = one.saving_gpu_seconds
    return {
        "recommendation_id": one.recommendation_id,
        "subject": _subject(one.subject),
        "remedy": one.remedy,
        "title": one.title,
        "saving_gpu_seconds": {"low": saving.low, "likely": saving.likely, "high": saving.high},
        "money": _money(saving, settings),
        "confidence": one.confidence,
        "how": one.how,
        "rung": one.rung,
        "evidence": list(one.evidence),
        "action": one.action,
        "risks": list(one.risks),
        "excludes": list(one.excludes),
    }


def _subject(subject: Subject) -> dict[str, object]:
    return {"kind": subject.kind, "id": subject.id}


def _money(saving: Saving, settings: Settings) -> dict[str, object]:
    price = settings[GPU_HOUR_PRICE]
    if price < 0:
        return {"low": None, "likely": None, "high": None, "currency": None}
    per_second = price / SECONDS_PER_HOUR
    likely = None if saving.likely is None else saving.likely * per_second
    return {
        "low": saving.low * per_second,
        "likely": likely,
        "high": saving.high * per_second,
        "currency": settings[CURRENCY],
    }
