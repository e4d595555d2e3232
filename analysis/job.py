"""One job's story: its attempts, how busy their GPUs were, and what is worth knowing. The document of ``job``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.account import GpuSeconds, as_document, total
from analysis.frames import Columns, Tables, fetch, none_if_nan, seconds, timestamp
from analysis.settings import IDLE_STRETCH_SECONDS, INFLATION_RATIO
from analysis.sources import READINGS
from analysis.summaries import RUNG_COLUMNS
from warehouse.contract.metrics import RUNGS_BEST_FIRST, Rung
from warehouse.contract.model import FAILED_STATES
from warehouse.contract.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE, epoch, iso
from warehouse.rolling import owned_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.evidence import AttemptEvidence, Reading
    from analysis.holdings import Span
    from warehouse.contract.settings import Settings

TIMELINE_POINTS = 300
"""A chart is wide enough for about this many points."""

_TIMELINE = ("driver_util_ratio", "engine_active_ratio", "sm_active_ratio", "process_count")
_NOTHING = GpuSeconds(allocated=0.0, unknown=0.0, failed=0.0)


def find_jobs(tables: Tables, name: str) -> list[str]:
    """Give the keys of the jobs that a person may mean: a key, also an attempt's, an id, an array's ``_INDEX``."""
    job = tables.job
    array, _, index = name.rpartition("_")
    meant = (job.job_key == name) | (job.scheduler_job_id == name)
    if array and index.isascii() and index.isdigit():
        meant |= (job.array_job_id == array) & (job.array_task_index.cast("string") == str(int(index)))
    known = fetch(job.filter(meant).select("job_key").order_by("job_key")).values("job_key")
    if known:
        return list(known)
    attempt = tables.attempt
    is_named = (attempt.job_key == name) | (attempt.attempt_key == name)
    return list(fetch(attempt.filter(is_named).select("job_key").distinct()).values("job_key"))


def job_facts(tables: Tables, job_key: str) -> dict[str, object]:
    """Give the row of a job as it stands in the store, instants as text; of an unknown one only its key."""
    rows = tables.job.filter(tables.job.job_key == job_key).to_pyarrow().to_pylist()
    facts: dict[str, object] = rows[0] if rows else {"job_key": job_key}
    return {name: iso(epoch(value)) if isinstance(value, datetime) else value for name, value in facts.items()}


def job_attempts(tables: Tables, job_key: str) -> Columns:
    """Give the attempts of a job in order of start, with or without a GPU."""
    attempt = tables.attempt.filter(tables.attempt.job_key == job_key)
    return fetch(
        attempt.select(
            "attempt_key",
            "state",
            "raw_state",
            "node_list",
            start=seconds(attempt.start_at),
            end=seconds(attempt.end_at),
        ).order_by("start", "attempt_key")
    )


def life(attempts: Columns, window: Span, last_at: float) -> Span | None:
    """Give from when to when a job ran, within a window; None: it did not run there."""
    starts, ends = attempts.numbers("start"), attempts.numbers("end")
    ran = ~np.isnan(starts)
    if not ran.any():
        return None
    until = float(np.where(np.isnan(ends), last_at, ends)[ran].max())
    since, until = max(float(starts[ran].min()), window[0]), min(until, window[1])
    return (since, until) if until > since else None


def job_document(
    facts: Mapping[str, object],
    attempts: Columns,
    evidence: Sequence[AttemptEvidence],
    rung: Rung | None,
    timeline: list[dict[str, object]],
    family_id: str | None,
    settings: Settings,
) -> dict[str, object]:
    """Put a job's story together from what is known of it and of its attempts."""
    by_key = {one.attempt_key: one for one in evidence}
    account = total(one.gpu_seconds for one in evidence)
    stretches = [stretch for one in evidence for stretch in one.idle_stretches]
    return {
        "job": dict(facts),
        "rung": rung,
        "gpu_seconds": as_document(account),
        "coverage_ratio": account.coverage_ratio,
        "used_ratio": account.used_ratio,
        "attempts": [
            _attempt(attempts, row, by_key.get(key)) for row, key in enumerate(attempts.values("attempt_key"))
        ],
        "findings": findings(evidence, account, settings),
        "family_id": family_id,
        "timeline": {
            "points": timeline,
            "idle_stretches": [
                {
                    "device_uuid": stretch.device_uuid,
                    "start_at": iso(stretch.start_at),
                    "end_at": iso(stretch.end_at),
                    "kind": stretch.kind,
                }
                for stretch in sorted(stretches, key=lambda one: (one.start_at, one.device_uuid))
            ],
        },
    }


def _attempt(attempts: Columns, row: int, known: AttemptEvidence | None) -> dict[str, object]:
    account = known.gpu_seconds if known else _NOTHING
    ladder = known.ladder if known else {}
    return {
        "attempt": attempts.values("attempt_key")[row],
        "start_at": iso(none_if_nan(attempts.numbers("start")[row])),
        "end_at": iso(none_if_nan(attempts.numbers("end")[row])),
        "node": (", ".join(known.nodes) if known else "") or attempts.values("node_list")[row],
        "devices": list(known.device_uuids) if known else [],
        "gpu_count": known.gpu_count if known else 0.0,
        "gpu_model": known.gpu_model if known else None,
        "state": attempts.values("state")[row],
        "raw_state": attempts.values("raw_state")[row],
        "gpu_seconds": as_document(account),
        "coverage_ratio": account.coverage_ratio,
        "used_ratio": account.used_ratio,
        "ladder": {name: _reading(ladder.get(name)) for name in READINGS},
        "inflation_ratio": inflation_ratio(ladder),
        "memory_peak_bytes": known.memory_peak_bytes if known else None,
        "device_memory_bytes": known.device_memory_bytes if known else None,
    }


def _reading(reading: Reading | None) -> dict[str, object]:
    if reading is None:
        return {"value": None, "source": None, "coverage_ratio": None, "assumed": False}
    return {
        "value": reading.value,
        "source": reading.source,
        "coverage_ratio": reading.coverage_ratio,
        "assumed": reading.assumed,
    }


def inflation_ratio(ladder: Mapping[str, Reading]) -> float | None:
    """Give driver utilization minus the best known GPU-bound share, -1 to 1; None where either is missing.

    The idea is RL-Scope's (Gleeson et al., MLSys 2021): a driver counts a slice as busy if any kernel ran in it.
    """
    driver = ladder.get(RUNG_COLUMNS[Rung.DRIVER_UTIL])
    better = [ladder.get(RUNG_COLUMNS[rung]) for rung in RUNGS_BEST_FIRST if rung is not Rung.DRIVER_UTIL]
    best = next((reading for reading in better if reading is not None), None)
    return None if driver is None or best is None else driver.value - best.value


def findings(evidence: Sequence[AttemptEvidence], account: GpuSeconds, settings: Settings) -> list[dict[str, object]]:
    """Say what is worth knowing of a job: what was observed, by which rule, against which threshold."""
    found: list[dict[str, object]] = []
    pause = settings[IDLE_STRETCH_SECONDS]
    for name, words in (("no_process", "without any process"), ("with_process", "with a process but no activity")):
        own = [stretch for one in evidence for stretch in one.idle_stretches if stretch.kind == name]
        if own:
            longest = max(stretch.end_at - stretch.start_at for stretch in own)
            lost = sum(stretch.gpu_seconds for stretch in own)
            text = f"A GPU was held {words} for {longest:,.0f} s at a stretch, {lost:,.0f} GPU-seconds in all"
            found.append(_finding(name, text, lost, pause, "seconds"))
    inflated = [ratio for one in evidence if (ratio := inflation_ratio(one.ladder)) is not None]
    limit = settings[INFLATION_RATIO]
    if inflated and max(inflated) >= limit:
        text = f"The driver calls the GPU busy {max(inflated):.2f} of the time more than the best measure there is"
        found.append(_finding("inflation", text, max(inflated), limit, "share of time"))
    failed = [one.state for one in evidence if one.state in FAILED_STATES]
    if failed:
        states = ", ".join(sorted({state.value for state in failed}))
        text = f"{len(failed)} of {len(evidence)} attempts did not reach their own end ({states})"
        found.append(_finding("failed", text, account.failed, 0.0, "GPU-seconds"))
    return found


def _finding(rule: str, text: str, value: float, threshold: float, unit: str) -> dict[str, object]:
    return {"rule": rule, "title": text, "text": text, "value": value, "threshold": threshold, "unit": unit}


def _near(table: Any, instant: Any, attempt_keys: Sequence[str], window: Span) -> Any:
    return table.filter(
        table.attempt_key.isin(list(attempt_keys)), instant >= timestamp(window[0]), instant < timestamp(window[1])
    )


_ROLLED = {
    "driver_util_ratio": ("driver_util_seconds", "driver_util_known_seconds"),
    "engine_active_ratio": ("engine_active_seconds", "engine_active_known_seconds"),
    "sm_active_ratio": ("sm_active_seconds", "sm_active_known_seconds"),
    "process_count": ("process_seconds", "process_known_seconds"),
    "power_watts": ("power_joules", "power_known_seconds"),
    "gpu_bound_ratio": ("gpu_bound_seconds", "gpu_bound_known_seconds"),
    "memory_used_bytes": ("memory_byte_seconds", "memory_known_seconds"),
}
"""The sum and the time behind each mean of a timeline that is made of roll-ups."""


def _from_rollups(tables: Tables, attempt_keys: Sequence[str], window: Span, length: float) -> tuple[float, Any]:
    """Give the length of a step and the means by step, from the finest roll-up that still knows the job."""
    minutes = _near(tables.rollup_1m, tables.rollup_1m.start_at, attempt_keys, window)
    by_minute = fetch(minutes.aggregate(count=minutes.count())).numbers("count")[0] > 0
    hours = _near(tables.rollup_1h, tables.rollup_1h.start_at, attempt_keys, window)
    own, finest = (minutes, SECONDS_PER_MINUTE) if by_minute else (hours, SECONDS_PER_HOUR)
    step = max(length, finest)
    own = own.mutate(step=((seconds(own.start_at) - window[0]) / step).floor().cast("int64"))
    means = {name: own[amount].sum() / own[known].sum().nullif(0.0) for name, (amount, known) in _ROLLED.items()}
    return step, own.group_by("step").aggregate(**means)


def timeline(tables: Tables, attempt_keys: Sequence[str], window: Span) -> list[dict[str, object]]:
    """Give the means over all devices of a job in equal steps of time; a step without data has None everywhere.

    Of the power of a shared device only the job's own part counts, so that sharers add up to the device.
    Steps are never shorter than the cadence of the samples, or, where those are gone, than a minute or an hour.
    """
    own = _near(tables.device_sample, tables.device_sample.sampled_at, attempt_keys, window)
    cadence = fetch(own.aggregate(cadence=own.cadence_seconds.max())).numbers("cadence")[0]
    length = (window[1] - window[0]) / TIMELINE_POINTS
    if np.isnan(cadence):
        step, points = _from_rollups(tables, attempt_keys, window, length)
    else:
        step = max(length, float(cadence))
        own = own.mutate(step=((seconds(own.sampled_at) - window[0]) / step).floor().cast("int64"))
        points = own.group_by("step").aggregate(
            **{name: own[name].mean() for name in _TIMELINE},
            power_watts=(own.power_watts * owned_share(own)).mean(),
            gpu_bound_ratio=(own.gpu_bound_seconds / own.cadence_seconds).mean(),
            memory_used_bytes=own.memory_used_bytes.mean(),
        )
    rows = fetch(points.order_by("step"))
    if not rows.rows:
        return []
    names = [name for name in rows.number_names if name != "step"]
    at = {int(number): row for row, number in enumerate(rows.numbers("step"))}
    nothing: dict[str, Any] = dict.fromkeys(names)
    return [
        {"at": iso(window[0] + number * step)}
        | ({name: none_if_nan(rows.numbers(name)[at[number]]) for name in names} if number in at else nothing)
        for number in range(min(at), max(at) + 1)
    ]


def jobs_document(rows: list[dict[str, object]], limit: int, offset: int) -> dict[str, object]:
    """Cut a page out of the rows by job: the document of ``jobs``."""
    page = rows[offset : offset + limit]
    return {
        "total": len(rows),
        "limit": limit,
        "offset": offset,
        "jobs": [{"job_key": row["key"], **{name: row[name] for name in row if name != "key"}} for row in page],
    }
