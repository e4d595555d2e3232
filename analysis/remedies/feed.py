"""Feed the GPUs: find what keeps them waiting between steps. With a sample: ``docs/remedies/feed.md``."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.account import total
from analysis.evidence import KINDS, require
from analysis.loading import cache_share_for, cpus_needed
from analysis.remedy import Case, Remedy
from analysis.saving import recommendation_id, stack
from warehouse.contract.model import Recommendation, Refusal, Saving
from warehouse.contract.settings import Setting, Settings
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.evidence import AttemptEvidence

NAME = "feed"

MIN_STALL = Setting(
    "feed",
    "min_stall_ratio",
    0.2,
    "share of working time",
    "Pauses of a fifth of the working time are more than logging, evaluation and the ends of epochs commonly take.",
    0.0,
    1.0,
)
IO_WAIT = Setting(
    "feed",
    "io_wait_ratio",
    0.1,
    "share of time",
    "Below this, waits for storage are those of any program; they could hide a tenth of the time at most.",
    0.0,
    1.0,
)
CPU_FULL = Setting(
    "feed",
    "cpu_full_ratio",
    0.85,
    "share of the cores that the job may use",
    "Above this mean the cores are full most of the time, for no program loads all of them evenly.",
    0.0,
    1.0,
)
COVERAGE = Setting(
    "feed",
    "coverage_ratio",
    0.5,
    "share of the GPU time",
    "What speaks for less than half of the time may speak for its untypical part.",
    0.0,
    1.0,
)
MIN_RUN = Setting(
    "feed",
    "min_run_seconds",
    900.0,
    "seconds",
    "Attempts shorter than this are left out: they are start-up, when data are read and nothing else.",
    0.0,
)
MIN_SAVING = Setting(
    "feed",
    "min_saving_gpu_seconds",
    3600.0,
    "GPU-seconds",
    "Less than one GPU-hour of pauses is not worth anybody's attention.",
    0.0,
)

_RISKS = (
    "Faster input shows the next bottleneck: less than all of the pauses may go.",
    "More loader processes take more host memory; data kept on local disks have to be copied and kept up to date.",
)


@dataclass(frozen=True, slots=True)
class _Stall:
    """The pauses of one attempt by what they wait for: GPU-seconds low, likely (None: only a bound), high."""

    attempt: AttemptEvidence
    ratio: float
    fetch: tuple[float, float | None, float]
    prepare: float


def judge(case: Case, settings: Settings) -> Recommendation | Refusal | None:
    """Say how much of the pauses of working GPUs goes with waits for storage, or with full cores."""
    attempts = [one for one in case.attempts if not one.interactive and _run_seconds(one, case) >= settings[MIN_RUN]]
    account = total(one.gpu_seconds for one in attempts)
    if not attempts or (account.used is not None and (account.held_idle or 0.0) < settings[MIN_SAVING]):
        return None
    unseen = require(attempts, ("use", "pauses"), settings[COVERAGE])
    if unseen:
        kinds = [one.evidence for one in unseen]
        what = "how busy the GPUs were" if "use" in kinds else "how long each pause lasted"
        return Refusal(case.subject, NAME, f"Too little tells {what}.", _sources(kinds), unseen)
    attempts = [one for one in attempts if one.gpu_seconds.gaps is not None]
    account = total(one.gpu_seconds for one in attempts)
    gaps, used = account.gaps or 0.0, account.used or 0.0
    if gaps < settings[MIN_SAVING] or gaps < settings[MIN_STALL] * (used + gaps):
        return None
    blind = require(attempts, ("cpu", "disk"), settings[COVERAGE])
    if blind:
        reason = "Its GPUs pause between pieces of work, and too little is known of the host to say what they wait for."
        return Refusal(case.subject, NAME, reason, _sources([one.evidence for one in blind]), blind)
    return _advise(case, [_stall(one, settings) for one in attempts], settings)


def _advise(case: Case, stalls: Sequence[_Stall], settings: Settings) -> Recommendation | Refusal | None:
    fetch_low, fetch_high = (sum(one.fetch[at] or 0.0 for one in stalls) for at in (0, 2))
    likely = sum(one.fetch[1] or 0.0 for one in stalls)
    prepare = sum(one.prepare for one in stalls)
    high = sum(max(one.fetch[2], one.prepare) for one in stalls)
    if high < settings[MIN_SAVING]:
        reason = "Its GPUs pause, but its host neither waits for storage nor runs out of cores: they wait for other "
        return Refusal(
            case.subject, NAME, f"{reason}things, such as launches, other ranks or too few loader processes."
        )
    by_storage = fetch_high >= prepare
    known = by_storage and any(one.fetch[1] is not None for one in stalls)
    what = "storage" if by_storage else "work on the CPU"
    return Recommendation(
        recommendation_id=recommendation_id(NAME, case.subject),
        subject=case.subject,
        remedy=NAME,
        title=f"Feed GPUs that wait for {what}: {case.label}",
        saving_gpu_seconds=Saving(fetch_low, max(likely, fetch_low) if known else None, high),
        confidence="modelled" if known else "bound",
        how="the least and the most that pauses and waits for storage can have in common; likely where every task "
        "waited at once"
        if known
        else "at most all pauses while the host was at its limit; how many of them go is not known",
        rung=str(case.rung),
        evidence=tuple(_evidence(case, stalls, settings)),
        action="\n".join(_action(case, stalls, by_storage=by_storage)),
        risks=_RISKS,
    )


def _stall(one: AttemptEvidence, settings: Settings) -> _Stall:
    """Divide an attempt's pauses.

    Pauses of share g and waits of share w have at least g + w - 1 in common, at most the lesser of both.
    """
    gaps, used = one.gpu_seconds.gaps or 0.0, one.gpu_seconds.used or 0.0
    share = gaps / (used + gaps) if gaps > 0 else 0.0
    some, full = _value(one, "io_stall_ratio"), _value(one, "io_full_stall_ratio")
    waits = max((value for value in (some, full, _value(one, "cpu_iowait_ratio")) if value is not None), default=0.0)
    fetch: tuple[float, float | None, float] = (0.0, None, 0.0)
    if share > 0 and waits >= settings[IO_WAIT]:
        met = [None if value is None else min(share, value) / share * gaps for value in (full, waits)]
        low = 0.0 if full is None else max(0.0, share + full - 1.0) / share * gaps
        fetch = (low, met[0], met[1] or 0.0)
    load = _load(one)
    starved = (load is not None and load >= settings[CPU_FULL]) or (
        (_value(one, "cpu_throttled_ratio") or 0.0) >= settings[IO_WAIT]
    )
    return _Stall(one, share, fetch, gaps if starved else 0.0)


def _value(one: AttemptEvidence, name: str) -> float | None:
    reading = one.host.get(name)
    return None if reading is None else reading.value


def _cores(one: AttemptEvidence) -> float | None:
    """Give the cores that an attempt may use, by its control group or by what the scheduler gave it."""
    return _value(one, "cpu_limit_count") or one.cpu_count or one.requested_cpu_count


def _load(one: AttemptEvidence) -> float | None:
    cores, used = _cores(one), _value(one, "cpu_count")
    return None if not cores or used is None else used / cores


def _run_seconds(one: AttemptEvidence, case: Case) -> float:
    return (case.until_at if one.end_at is None else one.end_at) - one.start_at


def _sources(kinds: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(KINDS[kind] for kind in kinds))


def _evidence(case: Case, stalls: Sequence[_Stall], settings: Settings) -> list[str]:
    account = total(one.attempt.gpu_seconds for one in stalls)
    gaps, used = account.gaps or 0.0, account.used or 0.0
    rows = [
        f"{_hours(gaps)} GPU-hours of pauses between pieces of work, {gaps / (gaps + used):.0%} of the working time",
    ]
    words = {
        "io_stall_ratio": "some task waited for storage {0:.0%} of the time",
        "io_full_stall_ratio": "every task waited for storage {0:.0%} of the time",
        "cpu_iowait_ratio": "cores waited for storage {0:.0%} of the time",
        "cpu_throttled_ratio": "the job was held back by its CPU limit {0:.0%} of the time",
        "disk_read_bytes_per_second": "{1:.2f} GB/s read from disks",
    }
    for name, text in words.items():
        mean = _mean(stalls, name)
        if mean is not None and mean >= (settings[IO_WAIT] if name.endswith("ratio") else 1.0):
            rows.append(text.format(mean, mean / 1e9))
    loads = [(load, one.attempt.gpu_seconds.allocated) for one in stalls if (load := _load(one.attempt)) is not None]
    if loads:
        mean = sum(load * weight for load, weight in loads) / sum(weight for _, weight in loads)
        rows.append(f"{mean:.0%} of the cores that it may use were busy")
    together = _together(case, stalls)
    if together > 1:
        rows.append(f"up to {together} members ran on one node at a time: each reads and prepares for itself")
    return rows


def _mean(stalls: Sequence[_Stall], name: str) -> float | None:
    """Give the mean of a reading over GPU-seconds, of the attempts that have it."""
    pairs = [
        (value, one.attempt.gpu_seconds.allocated) for one in stalls if (value := _value(one.attempt, name)) is not None
    ]
    whole = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / whole if whole > 0 else None


def _together(case: Case, stalls: Sequence[_Stall]) -> int:
    """Say how many members ran on one node at the same time."""
    by_node: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in (stall.attempt for stall in stalls):
        for node in one.nodes:
            by_node[node].append((one.start_at, case.until_at if one.end_at is None else one.end_at))
    return max((stack(spans, None).most_at_once for spans in by_node.values()), default=0)


def _action(case: Case, stalls: Sequence[_Stall], *, by_storage: bool) -> list[str]:
    """Say what to change, with CoorDL's formulas: the pace lacks the factor 1 / (1 - share of pauses)."""
    weights = [one.attempt.gpu_seconds.allocated for one in stalls]
    share = sum(one.ratio * weight for one, weight in zip(stalls, weights, strict=True)) / sum(weights)
    pace = 1.0 / (1.0 - share) if share < 1.0 else float("inf")
    lines: list[str] = []
    if by_storage:
        least, recent = cache_share_for(share)
        rate = _mean(stalls, "disk_read_bytes_per_second")
        if rate:
            lines.append(f"# storage gives {rate / 1e9:.2f} GB/s; {rate * pace / 1e9:.2f} GB/s would feed the GPUs")
        lines += [
            "# copy the data set to local disks at the job's start, or pack small files into large ones",
            f"# or keep {least:.0%} of it in memory and never evict it ({recent:.0%} where the page cache decides)",
        ]
    else:
        cores = max((cores for one in stalls if (cores := _cores(one.attempt))), default=None)
        if cores:
            needed = cpus_needed(cores, pace, 1.0)
            lines.append(
                f"#SBATCH --cpus-per-task={needed}   # {cores:g} now, if the work on the CPU scales with cores"
            )
        lines += [
            "# as many loader processes as cores: DataLoader(num_workers=…, pin_memory=True, persistent_workers=True)",
            "# or prepare once and store the result, or decode on the GPU",
        ]
    if _together(case, stalls) > 1:
        lines.append(
            "# members that read the same data on one node: prepare them once and share, at the slowest's pace"
        )
    return lines


def _hours(seconds: float) -> str:
    return f"{seconds / SECONDS_PER_HOUR:,.1f}"


REMEDY = Remedy(
    name=NAME,
    title="Feed starving GPUs",
    description="Finds jobs whose GPUs pause between pieces of work while the host waits for storage or lacks cores.",
    settings=(MIN_STALL, IO_WAIT, CPU_FULL, COVERAGE, MIN_RUN, MIN_SAVING),
    judge=judge,
)
