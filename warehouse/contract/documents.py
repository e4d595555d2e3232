"""The documents that ``--json`` prints, as types. The schema files in ``docs/schemas/`` are generated from them.

Keys may be added, none removed or renamed without a changelog entry. Instants are ISO 8601 UTC with ``Z``; durations
are in seconds; ratios are 0 to 1; absent is null. A document may hold more than its type says.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSecondsPart:
    """Where allocated GPU-seconds went; the identities are those of ``analysis.account``."""

    capacity: float | None
    unallocated: float | None
    down: float | None
    unreported: float | None
    allocated: float
    used: float | None
    held_idle: float | None
    no_process: float | None
    with_process: float | None
    gaps: float | None
    unknown: float
    failed: float


@dataclass(frozen=True, slots=True)
class FirstRejected:
    """Where a reason for rejection was met first."""

    file: str
    line: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class RejectedPart:
    """One reason for rejection."""

    reason: str
    count: int
    first: FirstRejected


@dataclass(frozen=True, slots=True)
class ImportDocument:
    """``trueload import --json``: read = kept + unchanged + the sum of rejected."""

    format: str
    files: list[str]
    read: int
    kept: int
    unchanged: int
    rejected: list[RejectedPart]


@dataclass(frozen=True, slots=True)
class WasteRow:
    """One row of the waste table; ``key`` is null where the grouping word is not known."""

    key: str | None
    jobs: int
    gpu_seconds: GpuSecondsPart
    coverage_ratio: float | None
    used_ratio: float | None


@dataclass(frozen=True, slots=True)
class WasteDocument:
    """``trueload waste --json``; rows in order of held idle time.

    ``resolution`` says what is left of the time, at its poorest: ``samples``, ``minutes``, ``hours`` or ``attempts``.
    """

    since: str | None
    until: str | None
    zone: str
    rung: str | None
    resolution: str | None
    jobs: int
    attempts: int
    gpu_seconds: GpuSecondsPart
    coverage_ratio: float | None
    used_ratio: float | None
    rows: list[WasteRow]


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of a page of jobs."""

    job_key: str | None
    gpu_seconds: GpuSecondsPart
    coverage_ratio: float | None
    used_ratio: float | None


@dataclass(frozen=True, slots=True)
class JobsDocument:
    """The question ``jobs``: a page of the jobs in a window, in order of held idle time; ``total`` counts all."""

    since: str | None
    until: str | None
    zone: str
    rung: str | None
    resolution: str | None
    coverage_ratio: float | None
    used_ratio: float | None
    total: int
    limit: int
    offset: int
    jobs: list[JobRow]


@dataclass(frozen=True, slots=True)
class AnalyzeDocument:
    """``trueload analyze``: how much there is to judge, and how much came of it."""

    since: str | None
    until: str | None
    zone: str
    rung: str | None
    resolution: str | None
    coverage_ratio: float | None
    used_ratio: float | None
    attempts: int
    families: int
    recommendations: int
    refusals: int


@dataclass(frozen=True, slots=True)
class FleetStretch:
    """The account of one stretch of the time axis."""

    start_at: str
    end_at: str
    gpu_seconds: GpuSecondsPart


@dataclass(frozen=True, slots=True)
class FleetEvent:
    """Something that happened to a node, device or attempt."""

    happened_at: str
    cluster: str | None
    node: str | None
    kind: str | None
    device_uuid: str | None
    attempt_key: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class FleetDocument:
    """The question ``fleet``: the account of the whole capacity, over time, and the latest events.

    For those who do not see everything ``by_node`` is empty. ``as_of`` is the latest instant that is known.
    """

    since: str | None
    until: str | None
    zone: str
    rung: str | None
    as_of: str | None
    device_count: int
    lost_device_count: int
    nodes_without_inventory: list[str]
    gpu_seconds: GpuSecondsPart
    coverage_ratio: float | None
    used_ratio: float | None
    series: list[FleetStretch]
    events: list[FleetEvent]


@dataclass(frozen=True, slots=True)
class FamilyPart:
    """One family: jobs that are the same work repeated."""

    family_id: str
    label: str
    reason: str
    varies: list[str]
    members: list[str]
    attempts: int
    gpu_seconds: GpuSecondsPart
    used_ratio: float | None
    coverage_ratio: float | None


@dataclass(frozen=True, slots=True)
class ShareOfGpuSeconds:
    """Shares of all allocated GPU-seconds, which sum to 1; null when nothing was allocated."""

    repetitive_single_gpu: float | None
    isolated_single_gpu: float | None
    multi_gpu: float | None
    interactive_or_other: float | None


@dataclass(frozen=True, slots=True)
class FamiliesDocument:
    """``trueload families --json``."""

    families: list[FamilyPart]
    ungrouped: list[str]
    share_of_gpu_seconds: ShareOfGpuSeconds


@dataclass(frozen=True, slots=True)
class SubjectPart:
    """What an advice is about."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class Range:
    """Low, likely and high: the 10th, 50th and 90th percentile; likely is null for a bound."""

    low: float
    likely: float | None
    high: float


@dataclass(frozen=True, slots=True)
class MoneyRange:
    """A range in money; all null when the site has set no price."""

    low: float | None
    likely: float | None
    high: float | None
    currency: str | None


@dataclass(frozen=True, slots=True)
class RecommendationPart:
    """One advice."""

    recommendation_id: str
    subject: SubjectPart
    remedy: str
    title: str
    saving_gpu_seconds: Range
    money: MoneyRange
    confidence: str
    rung: str | None
    evidence: list[str]
    action: str
    risks: list[str]
    excludes: list[str]


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A kind of evidence that covers too little of the GPU time, and how much would be enough."""

    evidence: str
    coverage_ratio: float
    wanted_ratio: float


@dataclass(frozen=True, slots=True)
class RefusalPart:
    """Why a remedy says nothing, and what it would need; ``missing`` says which evidence covers how little."""

    subject: SubjectPart
    remedy: str
    reason: str
    needs: list[str]
    insufficient_data: bool
    missing: list[MissingPart]


@dataclass(frozen=True, slots=True)
class RecommendDocument:
    """``trueload recommend --json`` and ``trueload up --once --json``; in order of the likely saving."""

    since: str | None
    until: str | None
    recommendations: list[RecommendationPart]
    refusals: list[RefusalPart]


@dataclass(frozen=True, slots=True)
class LadderRung:
    """One rung of the ladder with its source and coverage."""

    value: float | None
    source: str | None
    coverage_ratio: float | None


@dataclass(frozen=True, slots=True)
class AttemptPart:
    """One attempt of a job."""

    attempt: str
    start_at: str | None
    end_at: str | None
    node: str | None
    devices: list[str]
    state: str
    gpu_seconds: GpuSecondsPart
    ladder: dict[str, LadderRung]
    inflation_ratio: float | None
    tracer: dict[str, object] | None


@dataclass(frozen=True, slots=True)
class JobDocument:
    """``trueload job ID --json``."""

    job: dict[str, object]
    attempts: list[AttemptPart]
    findings: list[dict[str, object]]
    family_id: str | None


@dataclass(frozen=True, slots=True)
class WeeklyDocument:
    """``trueload report weekly --format json``; ``resolution`` as in :class:`WasteDocument`."""

    week: str
    zone: str
    since: str
    until: str
    audience: str
    fleet: dict[str, object]
    waste: dict[str, object]
    families: dict[str, object]
    recommendations: dict[str, object] | list[RecommendationPart]
    outcomes: dict[str, object] | list[dict[str, object]]
    coverage: dict[str, object] | float | None
    resolution: str
    tracer: dict[str, object]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a benchmark."""

    name: str
    value: float | None
    bar: float | str
    holds: bool


@dataclass(frozen=True, slots=True)
class BenchDocument:
    """``trueload bench NAME --json``."""

    bench: str
    figures: dict[str, object]
    bars: list[Bar]
    machine: dict[str, object]
    versions: dict[str, str]
    not_shown: list[str]


@dataclass(frozen=True, slots=True)
class TraceKernel:
    """One kernel in one launch configuration: how often it ran, and the sum and longest of its durations in ns."""

    name: str
    work: str
    grid: list[int] | None
    block: list[int] | None
    registers_per_thread: int | None
    shared_memory_bytes: int | None
    launch_count: int
    total_ns: int
    longest_ns: int


@dataclass(frozen=True, slots=True)
class TraceRank:
    """One rank's profile, in whole nanoseconds; null where it tells nothing, as all GPU times without GPU events.

    ``gpu_bound_ns`` is the union of kernels, ``copy_ns`` of copies and fills, ``gpu_busy_ns`` of both;
    ``cpu_only_ns`` + ``gpu_only_ns`` + ``overlap_ns`` + ``idle_ns`` = ``span_ns``, which reaches from the first to the
    last of them. ``coverage_ratio`` is the share of the file's events that could be read.
    """

    rank: int | None
    span_ns: int | None
    gpu_bound_ns: int | None
    copy_ns: int | None
    gpu_busy_ns: int | None
    cpu_only_ns: int | None
    gpu_only_ns: int | None
    overlap_ns: int | None
    idle_ns: int | None
    compute_ns: int | None
    communication_ns: int | None
    memory_ns: int | None
    communication_overlap_ratio: float | None
    coverage_ratio: float | None
    kernels: list[TraceKernel]


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One file, or one folder with a file for each rank."""

    file: str
    kind: str
    ranks: list[TraceRank]


@dataclass(frozen=True, slots=True)
class TraceDocument:
    """``trueload trace --json``."""

    convention: str
    files: list[TraceFile]
    errors: list[dict[str, str | None]]


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One line of the doctor; ``ok`` is null where it cannot be told, ``needed`` says that the agent needs it."""

    name: str
    device: str | None
    ok: bool | None
    found: str
    reason: str | None
    fix: str | None
    needed: bool


@dataclass(frozen=True, slots=True)
class DoctorDocument:
    """``trueload doctor --json``; ``missing`` counts the checks that are not ok, needed or not."""

    ok: bool
    node: str
    version: str
    missing: int
    checks: list[DoctorCheck]


@dataclass(frozen=True, slots=True)
class GpuFact:
    """One fact with where it was read. Confidence: ``vendor``, ``secondary``, ``derived``, or ``site``."""

    value: str | bool | int | float | list[str]
    source: str
    confidence: str


@dataclass(frozen=True, slots=True)
class GpuMigProfile:
    """One MIG profile of a GPU: ``max_instances`` of it fit on one card; ratios are of the card's slices."""

    profile: str
    max_instances: int
    memory_ratio: float | None
    sm_ratio: float | None
    sm_count: GpuFact | None
    memory_bytes: GpuFact | None
    source: str
    confidence: str
    note: str | None


@dataclass(frozen=True, slots=True)
class GpuPrice:
    """What an hour of one GPU cost once, at one provider: an example, no offer; or the site's own price."""

    per_gpu_hour: float
    currency: str
    source: str
    date: str | None
    date_basis: str | None
    kind: str | None
    provider: str | None
    sku: str | None
    region: str | None
    scope: str | None
    note: str | None


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU model in one variant. ``facts`` has every known key; null where nobody states it."""

    id: str
    name: str
    model: str
    vendor: str
    form_factor: str
    note: str | None
    facts: dict[str, GpuFact | None]
    mig_profiles: list[GpuMigProfile]
    prices: list[GpuPrice]


@dataclass(frozen=True, slots=True)
class GpusDocument:
    """``trueload gpus --json``: the catalogue, or what a name means. ``sources`` explains words in capitals."""

    asked: str | None
    gpus: list[GpuModel]
    sources: dict[str, str]


@dataclass(frozen=True, slots=True)
class RatioRange:
    """A ratio over the present GPU: 10th, 50th and 90th percentile."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True, slots=True)
class PresentGpu:
    """The GPU that the work has: as the site names it, and as the catalogue does."""

    name: str
    ids: list[str]
    wait_seconds: float | None


@dataclass(frozen=True, slots=True)
class GpuOption:
    """One other GPU, or (``profile``) a slice of the present one. ``cost_ratio`` is time x price."""

    name: str
    ids: list[str]
    profile: str | None
    at_site: bool
    time_ratio: RatioRange
    speed_ratio: RatioRange
    price_ratio: RatioRange | None
    price_how: str
    cost_ratio: RatioRange | None
    energy_ratio: RatioRange | None
    memory_bytes: float | None
    fits: bool | None
    estimator: str
    how: str
    confidence: str
    wait_seconds: float | None


@dataclass(frozen=True, slots=True)
class NotEstimable:
    """A GPU of which nothing is foretold, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GpuOptionsDocument:
    """``trueload gpus --family ID --json``: every GPU for a family or a job, in order of the likely cost."""

    since: str | None
    until: str | None
    rung: str | None
    subject: SubjectPart
    label: str
    gpu: PresentGpu
    allocated_gpu_seconds: float
    busy_ratio: float
    memory_bytes: float | None
    sm_active_ratio: float | None
    options: list[GpuOption]
    not_estimable: list[NotEstimable]
    estimators: dict[str, str]


DOCUMENTS: dict[str, type] = {
    "import": ImportDocument,
    "waste": WasteDocument,
    "families": FamiliesDocument,
    "recommend": RecommendDocument,
    "job": JobDocument,
    "weekly": WeeklyDocument,
    "bench": BenchDocument,
    "trace": TraceDocument,
    "doctor": DoctorDocument,
    "gpus": GpusDocument,
    "gpu_options": GpuOptionsDocument,
    "jobs": JobsDocument,
    "fleet": FleetDocument,
    "analyze": AnalyzeDocument,
}
"""The document of every command or question that gives one, by the name of its schema file."""
