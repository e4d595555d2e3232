"""What LLview's reports say of a job: its start, end and state, the GPUs it held, and the means over it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from warehouse.contract.model import Allocation, Attempt, AttemptState, AttemptSummary, Job, Record
from warehouse.contract.units import SECONDS_PER_HOUR
from warehouse.importer import ImportOptions
from warehouse.imports import _slurm_values as slurm
from warehouse.imports._values import BadRowError, Clock, Lenient, cluster_name, short_text

SOURCE: Final = "llview"
_STEP: Final = re.compile(r"\(job::([^()]*(?:\([^()]*\)[^()]*)*)\)")
_DEVICE: Final = re.compile(r"(?P<node>[\w.-]{1,190})_(?P<index>[0-9]{1,4})\Z")


def device_of(text: str) -> tuple[str, str, int]:
    """Give device, node and index of LLview's name of a GPU, such as ``jwb0021_00``.

    Raises:
        BadRowError: it is none.

    """
    match = _DEVICE.match(text)
    if match is None:
        raise BadRowError("bad device", f"nodeid is {text[:80]!r}; expected NODE_INDEX such as gpu1_00")
    node, index = match["node"], int(match["index"])
    return f"{node}/gpu{index}", node, index


def records_of(report: Mapping[str, Any], options: ImportOptions, lenient: Lenient) -> tuple[Job, tuple[Record, ...]]:
    """Give the job of a report and all rows it becomes.

    Raises:
        BadRowError: it names no job, or no start.

    """
    job, gpu = _part(report, "job"), _part(report, "gpu")
    step = _job_step(str(_part(report, "rc").get("stepspec", "")))
    cluster = cluster_name(options.cluster)
    number = slurm.job_id("job.jobid", str(job.get("jobid", ""))).shown
    start_at, end_at, state = _when(job, step, Clock(options.zone))
    told = Job(
        job_key=f"{cluster}/{number}#0",
        cluster=cluster,
        scheduler_job_id=number,
        source=SOURCE,
        name=lenient.text("job.name", _text(job, "name")),
        user=short_text("job.owner", _text(job, "owner")),
        account=short_text("job.account", _text(job, "account")),
        partition=short_text("job.queue", _text(job, "queue")),
        command=lenient.text("job.command", _text(job, "command")),
        comment=lenient.text("job.comment", _text(job, "comment")),
        submit_at=_submitted(job, Clock(options.zone)),
        requested_gpu_count=_amount(job, "numgpus"),
        time_limit_seconds=_scaled(_amount(job, "wallh"), SECONDS_PER_HOUR),
    )
    attempt = Attempt(
        attempt_key=f"{told.job_key}:{int(start_at)}",
        job_key=told.job_key,
        state=state,
        raw_state=step.get("st"),
        start_at=start_at,
        end_at=end_at,
        source=SOURCE,
        submit_at=told.submit_at,
        node_count=_whole(job, "numnodes"),
        node_list=lenient.text("job.nodelist", ",".join(_text(job, "nodelist").split())),
    )
    rows: list[Record] = [told, attempt, *_held(job, gpu, attempt, lenient)]
    if (summary := _summary(gpu, attempt, lenient)) is not None:
        rows.append(summary)
    return told, tuple(rows)


def _held(job: Mapping[str, Any], gpu: Mapping[str, Any], attempt: Attempt, lenient: Lenient) -> list[Allocation]:
    """Give the devices by name where the report lists as many as the job held, else their number."""
    count = _amount(job, "numgpus") or 0.0
    if not count or attempt.start_at is None:
        return []
    named: list[tuple[str | None, str | None]] = []
    try:
        named = [device_of(name)[:2] for name in _text(gpu, "gpulist").split()]
    except BadRowError as bad:
        lenient.note("gpu.gpulist", "not understood, left out", bad.detail)
    if len(set(named)) != count:
        named = [(None, None)]
    return [
        Allocation(
            allocation_key=f"{attempt.attempt_key}:{device or 0}",
            attempt_key=attempt.attempt_key,
            gpu_count=1.0 if device else count,
            start_at=attempt.start_at,
            end_at=attempt.end_at,
            source=SOURCE,
            certainty="accounting",
            device_uuid=device,
            node=node,
        )
        for device, node in dict.fromkeys(named)
    ]


def _summary(gpu: Mapping[str, Any], attempt: Attempt, lenient: Lenient) -> AttemptSummary | None:
    """Give the means over the job; the report does not say which share of it they cover, so all of it is assumed."""
    util = lenient.measure("gpu.gpu_usage_avg", _text(gpu, "gpu_usage_avg"), highest=100.0)
    memory = lenient.measure("gpu.gpu_memu_avg", _text(gpu, "gpu_memu_avg"))
    peak = lenient.measure("gpu.gpu_memu_max", _text(gpu, "gpu_memu_max"))
    milliwatts = lenient.measure("gpu.gpu_pu_avg", _text(gpu, "gpu_pu_avg"), highest=5e6)
    if util is None and memory is None and peak is None and milliwatts is None:
        return None
    return AttemptSummary(
        attempt_key=attempt.attempt_key,
        source=SOURCE,
        coverage_ratio=1.0,
        coverage_assumed=True,
        driver_util_ratio=_scaled(util, 0.01),
        gpu_memory_used_bytes=memory,
        gpu_memory_peak_bytes=peak,
        power_watts=_scaled(milliwatts, 1e-3),
    )


def _when(job: Mapping[str, Any], step: Mapping[str, str], clock: Clock) -> tuple[float, float | None, AttemptState]:
    """Give start, end (None: it runs) and state: from Slurm's words in the report, else from the report's own times."""
    state = slurm.state(step["st"]) if step.get("st") else AttemptState.UNKNOWN
    if step.get("beg") and step["beg"] not in slurm.NOTHING:
        start_at = clock.at("rc.stepspec beg", step["beg"])
    else:
        start_at = clock.at("job.starttime", _text(job, "starttime"))
    if state in slurm.LIVE_STATES:
        return start_at, None, AttemptState.RUNNING
    if step.get("end") and step["end"] not in slurm.NOTHING:
        end_at = clock.at("rc.stepspec end", step["end"])
    else:
        hours = _amount(job, "runtime")
        if hours is None:
            return start_at, None, AttemptState.RUNNING
        end_at = start_at + hours * SECONDS_PER_HOUR
    if end_at < start_at:
        raise BadRowError("ends before it starts", f"start {start_at:.0f}, end {end_at:.0f}")
    return start_at, end_at, state


def _submitted(job: Mapping[str, Any], clock: Clock) -> float | None:
    text = _text(job, "queuedate")
    return None if text in slurm.NOTHING else clock.at("job.queuedate", text)


def _job_step(stepspec: str) -> dict[str, str]:
    """Read the part ``(job::name=…::beg=…::end=…::st=…)``; a name may hold anything but brackets that never close."""
    match = _STEP.search(stepspec)
    parts = (piece.partition("=") for piece in match[1].split("::")) if match else ()
    return {key: value for key, equals, value in parts if equals}


def _part(report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = report.get(name)
    return part if isinstance(part, dict) else {}


def _text(part: Mapping[str, Any], name: str) -> str:
    value = part.get(name)
    return "" if value is None or value == "-" else str(value)


def _amount(part: Mapping[str, Any], name: str) -> float | None:
    value = part.get(name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9  # noqa: PLR2004 - a count
    return float(value) if is_number else None  # type: ignore[arg-type]


def _whole(part: Mapping[str, Any], name: str) -> int | None:
    value = _amount(part, name)
    return None if value is None else int(value)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
