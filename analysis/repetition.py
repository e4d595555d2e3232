"""Families: jobs that are the same work repeated.

Two jobs are one family when they have the same signature (``analysis.signature``): same cluster and owner, and names
that begin alike once numbers, dates, hashes and hyper-parameters are masked. All tasks of a job array belong together.
Sessions and trials by a person are never a family. Wang et al. (HFTA, MLSys 2021) found that 46 % of a cluster's
GPU-hours went to repetitive single-GPU training; ``share_of_gpu_seconds`` is the same table for this site.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from analysis import names
from analysis.account import GpuSeconds, as_document, total
from analysis.family_edits import EDITS_FILE, Edits, read_edits
from analysis.signature import Signature, is_session, name_parts, signature
from warehouse.contract.settings import AnySetting, Setting, Settings
from warehouse.contract.units import SECONDS_PER_HOUR, ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from analysis.evidence import AttemptEvidence

MIN_JOBS = Setting(
    "families",
    "min_jobs",
    2,
    "jobs",
    "Two jobs of the same work are a repeat. Attempts of one job and parts of one heterogeneous job are not.",
    2,
)
BURST_SECONDS = Setting(
    "families",
    "burst_seconds",
    60.0,
    "seconds",
    "Jobs that are submitted no further apart than this come from one loop or script; a minute is a choice.",
    0.0,
)
SETTINGS: tuple[AnySetting, ...] = (MIN_JOBS, BURST_SECONDS, EDITS_FILE, *names.SETTINGS)

SHARES = ("repetitive_single_gpu", "isolated_single_gpu", "multi_gpu", "interactive_or_other")
_LABEL_CHARACTERS = 100
_FEWEST_LENGTHS = 5
"""Runs below which nothing is said of their length."""
_SAME_LENGTH_RATIO = 1.5
"""Eight of ten runs within this ratio are runs of about the same length."""
_MEMBER_FIELDS = (
    ("gpu_count", "GPU count"),
    ("gpu_model", "GPU model"),
    ("node_count", "node count"),
    ("partition", "partition"),
    ("time_limit_seconds", "time limit"),
    ("work_dir", "working directory"),
    ("command", "command"),
    ("image", "image"),
)


@dataclass(frozen=True, slots=True)
class Family:
    """Jobs that are the same work. ``members`` are job keys in order; ``attempts`` are all their attempts."""

    family_id: str
    label: str
    reason: str
    varies: tuple[str, ...]
    members: tuple[str, ...]
    attempts: tuple[AttemptEvidence, ...]
    gpu_seconds: GpuSeconds


@dataclass(frozen=True, slots=True)
class FamilyReport:
    """The families of a window, largest first, the job keys outside any, and the share table (None: no GPU time)."""

    families: tuple[Family, ...]
    ungrouped: tuple[str, ...]
    share_of_gpu_seconds: Mapping[str, float | None]

    def family_of(self) -> dict[str, str]:
        """Give the family id of every job that is in a family, by job key."""
        return {member: family.family_id for family in self.families for member in family.members}


@dataclass(frozen=True, slots=True)
class _Job:
    """One job with its attempts in order, and its name taken apart."""

    attempts: Sequence[AttemptEvidence]
    parts: names.NameParts

    @property
    def first(self) -> AttemptEvidence:
        return self.attempts[0]


def find_families(attempts: Sequence[AttemptEvidence], settings: Settings) -> FamilyReport:
    """Group the jobs of these attempts into families. O(n log n); the order of the attempts does not matter.

    What people changed (``analysis.family_edits``) is done to what was found.
    """
    known, edits = names.vocabulary(settings), read_edits(settings)
    jobs = {key: _Job(own, name_parts(own[0], known)) for key, own in _by_job(attempts).items()}
    signatures = _signatures(jobs, known)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for job_key, found in signatures.items():
        groups[found.key].append(job_key)
    placed = _as_found(signatures, groups) if not edits else _as_changed(jobs, signatures, groups, edits, known)
    families = [
        _family(found, [jobs[member] for member in members], settings[BURST_SECONDS])
        for found, members in placed
        if _count_submissions(jobs[member].first for member in members) >= settings[MIN_JOBS]
    ]
    families.sort(key=lambda family: (-family.gpu_seconds.allocated, family.family_id))
    grouped = {member for family in families for member in family.members}
    return FamilyReport(
        tuple(families),
        tuple(key for key in jobs if key not in grouped),
        _shares(jobs, grouped, {key for key in jobs if key not in signatures}),
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A family as it is to be told: what its jobs have in common, its id, its name, and what people did to it."""

    signature: Signature
    family_id: str
    name: str | None = None
    done: str = ""


def _as_found(
    signatures: Mapping[str, Signature], groups: Mapping[tuple[str, ...], list[str]]
) -> list[tuple[_Placed, list[str]]]:
    found = ((signatures[members[0]], members) for members in groups.values())
    return [(_Placed(one, one.family_id), members) for one, members in found]


def _as_changed(
    jobs: Mapping[str, _Job],
    signatures: Mapping[str, Signature],
    groups: Mapping[tuple[str, ...], list[str]],
    edits: Edits,
    known: names.Vocabulary,
) -> list[tuple[_Placed, list[str]]]:
    """Do what people changed to the groups that were found; jobs stay in order of their keys."""
    parts: dict[str, list[str]] = defaultdict(list)
    done: dict[str, set[str]] = defaultdict(set)
    for members in groups.values():
        first = signatures[members[0]].family_id
        for member in members:
            family_id, changes = edits.placed(first, jobs[member].first, known)
            parts[family_id].append(member)
            done[family_id].update(changes)
    told: list[tuple[_Placed, list[str]]] = []
    for family_id, own in parts.items():
        named = edits.names.get(family_id)
        words = [*sorted(done[family_id]), *([f"renamed ({named.who})"] if named else [])]
        placed = _Placed(signatures[own[0]], family_id, named.value if named else None, ", ".join(words))
        told.append((placed, sorted(own)))
    return told


def _by_job(attempts: Sequence[AttemptEvidence]) -> dict[str, list[AttemptEvidence]]:
    jobs: dict[str, list[AttemptEvidence]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda one: (one.job_key, one.start_at, one.attempt_key)):
        jobs[attempt.job_key].append(attempt)
    return dict(jobs)


def _signatures(jobs: Mapping[str, _Job], known: names.Vocabulary) -> dict[str, Signature]:
    """Give the signature of every job that has one; all tasks of an array share that of its first task."""
    arrays: dict[tuple[str, str], Signature] = {}
    same: dict[tuple[str, ...], Signature] = {}
    signatures: dict[str, Signature] = {}
    for job_key, job in jobs.items():
        found = None if is_session(job.first, job.parts, known) else signature(job.first, job.parts, known)
        if found is not None and job.first.array_job_id is not None:
            found = arrays.setdefault((job.first.cluster, job.first.array_job_id), found)
        if found is not None:
            signatures[job_key] = same.setdefault(found.key, found)
    return signatures


def _count_submissions(jobs: Iterable[AttemptEvidence]) -> int:
    return len({(job.cluster, job.het_job_id) if job.het_job_id else (job.job_key,) for job in jobs})


def _family(placed: _Placed, jobs: Sequence[_Job], burst_seconds: float) -> Family:
    attempts = tuple(attempt for job in jobs for attempt in job.attempts)
    label, reason = _in_words(placed.signature, jobs)
    return Family(
        family_id=placed.family_id,
        label=label if placed.name is None else _short(placed.name),
        reason="; ".join(filter(None, (", ".join((reason, *_alike(jobs, burst_seconds))), placed.done))),
        varies=_varies(jobs),
        members=tuple(job.first.job_key for job in jobs),
        attempts=attempts,
        gpu_seconds=total(attempt.gpu_seconds for attempt in attempts),
    )


def _in_words(found: Signature, jobs: Sequence[_Job]) -> tuple[str, str]:
    """Give the family's label, and the reason why its members belong."""
    owner = found.whose.partition(" ")[2] if found.key[1] else found.whose
    same = f"same {found.whose}" if found.key[1] else found.whose
    if not found.words:
        return f"{owner}: {_short(found.otherwise)}", f"{same}, {found.basis}"
    called = _short(names.pattern([job.first.name or "" for job in jobs]) or " ".join(found.words))
    alike = "all named" if len({job.first.name for job in jobs}) == 1 else "names like"
    also = f", {found.basis}" if found.basis else ""
    return f"{owner}: {called}", f"{same}, {alike} “{called}”{also}"


def _alike(jobs: Sequence[_Job], burst_seconds: float) -> tuple[str, ...]:
    """Say what else members have in common: submitted together, runs of about the same length. Nothing if not known."""
    found: list[str] = []
    submits = sorted(job.first.submit_at for job in jobs if job.first.submit_at is not None)
    if len(submits) == len(jobs) > 1:
        near = [after - before <= burst_seconds for before, after in pairwise(submits)]
        together = sum(before or after for before, after in zip([False, *near], [*near, False], strict=True))
        if together > len(jobs) / 2:
            found.append(f"{together} of {len(jobs)} submitted together")
    lengths = sorted(one.end_at - one.start_at for job in jobs for one in job.attempts[-1:] if one.end_at is not None)
    if len(lengths) >= _FEWEST_LENGTHS and lengths[0] > 0:
        low, high = lengths[len(lengths) // 10], lengths[-1 - len(lengths) // 10]
        if high <= _SAME_LENGTH_RATIO * low:
            found.append(f"runs of {low / SECONDS_PER_HOUR:.3g} to {high / SECONDS_PER_HOUR:.3g} h")
    return tuple(found)


def _short(text: str) -> str:
    return text if len(text) <= _LABEL_CHARACTERS else f"{text[: _LABEL_CHARACTERS - 1]}…"


def _varies(jobs: Sequence[_Job]) -> tuple[str, ...]:
    """Name the axes in which the members differ, in words."""
    found = ["words of the name"] if len({job.parts.words for job in jobs}) > 1 else []
    by_axis: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for axes, times in Counter(job.parts.axes for job in jobs).items():
        own: dict[str, list[str]] = defaultdict(list)
        for axis, value in axes:
            own[axis].append(value)
        for axis, values in own.items():
            by_axis[axis].add(tuple(values))
            counts[axis] += times
    found += [f"{axis} in the name" for axis in sorted(by_axis) if len(by_axis[axis]) > 1 or counts[axis] < len(jobs)]
    arrays = [job.first.array_job_id for job in jobs if job.first.array_job_id]
    if len(arrays) > len(set(arrays)):
        found.append("array task")
    found += [text for column, text in _MEMBER_FIELDS if len({getattr(job.first, column) for job in jobs}) > 1]
    return tuple(found)


def _shares(jobs: Mapping[str, _Job], grouped: set[str], other: set[str]) -> dict[str, float | None]:
    seconds = dict.fromkeys(SHARES, 0.0)
    for job_key, job in jobs.items():
        if job_key in other:
            kind = "interactive_or_other"
        elif max(attempt.gpu_count for attempt in job.attempts) > 1:
            kind = "multi_gpu"
        else:
            kind = "repetitive_single_gpu" if job_key in grouped else "isolated_single_gpu"
        seconds[kind] += sum(attempt.gpu_seconds.allocated for attempt in job.attempts)
    whole = sum(seconds.values())
    return {kind: ratio(part, whole) for kind, part in seconds.items()}


def families_document(report: FamilyReport) -> dict[str, object]:
    """Give the document of ``trueload families --json``."""
    return {
        "families": [
            {
                "family_id": family.family_id,
                "label": family.label,
                "reason": family.reason,
                "varies": list(family.varies),
                "members": list(family.members),
                "attempts": len(family.attempts),
                "gpu_seconds": as_document(family.gpu_seconds),
                "used_ratio": family.gpu_seconds.used_ratio,
                "coverage_ratio": family.gpu_seconds.coverage_ratio,
            }
            for family in report.families
        ],
        "ungrouped": list(report.ungrouped),
        "share_of_gpu_seconds": dict(report.share_of_gpu_seconds),
    }
