"""What a profile tells the store: its kernels by hour, and how busy its devices were.

A profile that names its Slurm job (``prof.add_metadata("SLURM_JOB_ID", ...)``) belongs to the attempt that ran then.
Any other stands for itself: a job as long as the profile, that held the devices which worked in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePath

import numpy as np

from warehouse.contract.model import Allocation, Attempt, AttemptState, AttemptSummary, Job, KernelProfile, Record
from warehouse.contract.units import SECONDS_PER_HOUR
from warehouse.importer import ImportOptions, PastAttempt
from warehouse.imports._values import LATEST_AT, BadRowError, cluster_name, short_text
from warehouse.timeline import KernelConfig, Timeline

SOURCE = "kineto"
NS_PER_SECOND = 10**9
JOB_LABEL = "SLURM_JOB_ID"
_NS_PER_HOUR = int(SECONDS_PER_HOUR) * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Profile:
    """A timeline with its name and the instants of its begin and end, in seconds since the epoch."""

    timeline: Timeline
    name: str
    begin_at: float
    end_at: float


def profile_of(timeline: Timeline) -> Profile:
    """Name a timeline by its content and place it in time.

    Raises:
        BadRowError: no device worked in it, or it does not say when it was.

    """
    window = timeline.window()
    if window is None:
        raise BadRowError("no work of a device", "expected events of category kernel, gpu_memcpy or gpu_memset")
    begin, end = window
    if len(timeline.cpu.start_ns):
        begin, end = min(begin, int(timeline.cpu.start_ns[0])), max(end, int(timeline.cpu.end_ns[-1]))
    if timeline.clock_zero_ns is None:
        raise BadRowError("no wall clock", "expected baseTimeNanoseconds, or instants since the epoch")
    begin_at = (timeline.clock_zero_ns + begin) / NS_PER_SECOND
    if not 0 <= begin_at <= LATEST_AT:
        raise BadRowError("bad time", f"the profile begins {begin_at:.0f} s after 1970; expected before 2100")
    return Profile(timeline, _name(timeline), begin_at, begin_at + (end - begin) / NS_PER_SECOND)


def records_of(profile: Profile, options: ImportOptions) -> tuple[Record, ...]:
    """Give the rows of a profile.

    Raises:
        BadRowError: it names a job of which the store knows no attempt at that time.

    """
    cluster = cluster_name(options.cluster)
    job_id = profile.timeline.labels.get(JOB_LABEL)
    if job_id:
        attempt = _attempt_of(profile, cluster, job_id, options)
        length = max((attempt.end_at or profile.end_at) - (attempt.start_at or profile.begin_at), 0.0)
        coverage = min((profile.end_at - profile.begin_at) / length, 1.0) if length else 1.0
        owner, rows = attempt.attempt_key, list[Record]()
    else:
        owner, rows = _own_job(profile, cluster, options)
        coverage = 1.0
    source = SOURCE if profile.timeline.rank is None else f"{SOURCE}:rank-{profile.timeline.rank}"
    summary = AttemptSummary(
        attempt_key=owner,
        source=source,
        coverage_ratio=coverage,
        coverage_assumed=False,
        gpu_bound_ratio=_gpu_bound_ratio(profile),
    )
    return (*rows, summary, *_kernels(profile, owner, options))


def _name(timeline: Timeline) -> str:
    """Hash what was measured: the same profile has the same name, packed or not, whatever the file is called."""
    digest = blake2b(digest_size=8)
    digest.update(repr((timeline.rank, timeline.clock_zero_ns, timeline.configs)).encode("utf-8", "surrogatepass"))
    for column in (timeline.gpu.start_ns, timeline.gpu.duration_ns, timeline.gpu.config, timeline.gpu.stream):
        digest.update(column.tobytes())
    return digest.hexdigest()


def _attempt_of(profile: Profile, cluster: str, job_id: str, options: ImportOptions) -> PastAttempt:
    known = options.past_attempts(cluster, [job_id])
    fitting = [
        attempt
        for attempt in known
        if attempt.start_at is not None
        and attempt.start_at <= profile.begin_at
        and (attempt.end_at is None or profile.begin_at < attempt.end_at)
    ]
    if not fitting:
        detail = f"{cluster}/{job_id}: {len(known)} attempts, none at that time; import the accounting first"
        raise BadRowError("job not in the store", detail)
    return max(fitting, key=lambda attempt: (attempt.start_at or 0.0, attempt.attempt_key))


def _own_job(profile: Profile, cluster: str, options: ImportOptions) -> tuple[str, list[Record]]:
    labels = profile.timeline.labels
    job_key = f"{cluster}/{SOURCE}-{profile.name}#0"
    attempt_key = f"{job_key}:{int(profile.begin_at)}"
    devices = np.unique(profile.timeline.work().device).tolist()
    models = {profile.timeline.device_names.get(device) for device in devices}
    name = PurePath(labels.get("traceName", "")).name or None
    job = Job(
        job_key=job_key,
        cluster=cluster,
        scheduler_job_id=f"{SOURCE}-{profile.name}",
        source=SOURCE,
        name=name and name[: options.max_field_characters],
        user=short_text("username", labels.get("username", "")),
        requested_gpu_count=float(len(devices)),
    )
    attempt = Attempt(
        attempt_key=attempt_key,
        job_key=job_key,
        state=AttemptState.UNKNOWN,
        raw_state=None,
        start_at=profile.begin_at,
        end_at=profile.end_at,
        source=SOURCE,
    )
    held = Allocation(
        allocation_key=f"{attempt_key}:0",
        attempt_key=attempt_key,
        gpu_count=float(len(devices)),
        start_at=profile.begin_at,
        end_at=profile.end_at,
        source=SOURCE,
        certainty="profile",
        gpu_model=models.pop() if len(models) == 1 else None,
    )
    return attempt_key, [job, attempt, held]


def _gpu_bound_ratio(profile: Profile) -> float:
    """Give the mean over devices of the share of the profile in which a kernel ran."""
    kernels = profile.timeline.kernels()
    devices = np.unique(profile.timeline.work().device).tolist()
    bound = sum(kernels.where(kernels.device == device).union().length_ns for device in devices)
    return min(bound / NS_PER_SECOND / (len(devices) * (profile.end_at - profile.begin_at)), 1.0)


def _kernels(profile: Profile, attempt_key: str, options: ImportOptions) -> list[KernelProfile]:
    """Sum launches by configuration and hour; names that become equal when shortened are one."""
    timeline, kernels = profile.timeline, profile.timeline.kernels()
    hours = ((timeline.clock_zero_ns or 0) + kernels.start_ns) // _NS_PER_HOUR
    pairs, group = np.unique(np.stack([kernels.config.astype(np.int64), hours]), axis=1, return_inverse=True)
    counts = np.bincount(group, minlength=pairs.shape[1])
    totals, longest = np.zeros(len(counts), np.int64), np.zeros(len(counts), np.int64)
    np.add.at(totals, group, kernels.duration_ns)
    np.maximum.at(longest, group, kernels.duration_ns)
    rows: dict[tuple[KernelConfig, int], tuple[int, int, int]] = {}
    columns = (*pairs, counts, totals, longest)
    for config_at, hour, count, total, most in zip(*(column.tolist() for column in columns), strict=True):
        config = timeline.configs[config_at]
        short = KernelConfig(
            config.name[: options.max_field_characters],
            config.grid,
            config.block,
            config.registers_per_thread,
            config.shared_memory_bytes,
        )
        known = rows.get((short, hour), (0, 0, 0))
        rows[short, hour] = known[0] + count, known[1] + total, max(known[2], most)
    return [
        KernelProfile(
            attempt_key=attempt_key,
            profile=profile.name,
            source=SOURCE,
            hour_at=hour * SECONDS_PER_HOUR,
            kernel_name=config.name,
            launch_count=count,
            total_seconds=total / NS_PER_SECOND,
            longest_seconds=most / NS_PER_SECOND,
            grid=_times(config.grid),
            block=_times(config.block),
            registers_per_thread=config.registers_per_thread,
            shared_memory_bytes=config.shared_memory_bytes,
        )
        for (config, hour), (count, total, most) in rows.items()
    ]


def _times(sizes: tuple[int, int, int] | None) -> str | None:
    return None if sizes is None else "x".join(map(str, sizes))
