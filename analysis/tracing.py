"""What the tracer tells of each attempt beyond the ladder: how much work was done, in how small pieces, at what cost.

Everything comes from ``process_sample`` and ``length_profile`` rows of source ``kernels``, and speaks for the time that
they cover. Where processes share a device their launches and kernels add up; the covered time of a device counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ibis

from analysis.frames import Columns, Tables, fetch, none_if_nan, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = "kernels"
_SUMS = (
    *("gpu_bound_seconds", "source_lost_seconds", "late_seconds", "launch_count", "kernel_count", "kernel_seconds"),
    *("gap_count", "covered_seconds", "tracing_low_seconds", "tracing_seconds", "tracing_high_seconds"),
)


def tracing(tables: Tables, attempt_keys: Sequence[str], allocated: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Give what is known by attempt; an attempt that was never traced has no entry.

    ``allocated`` are GPU-seconds by attempt, which coverage refers to.
    """
    samples = tables.process_sample
    own = samples.filter(samples.source == SOURCE, samples.attempt_key.isin(list(attempt_keys)))
    sums = fetch(own.group_by("attempt_key").aggregate(**{name: own[name].sum() for name in _SUMS}))
    if not sums.values("attempt_key"):
        return {}
    per_device = own.group_by("attempt_key", "device_uuid", "sampled_at").aggregate(known=own.covered_seconds.max())
    known = fetch(per_device.group_by("attempt_key").aggregate(known=per_device.known.sum()))
    covered = dict(zip(known.values("attempt_key"), known.numbers("known"), strict=True))
    steps, lengths = _steps(own), _lengths(tables, attempt_keys)
    found: dict[str, dict[str, Any]] = {}
    for row, key in enumerate(sums.values("attempt_key")):
        values = {name: none_if_nan(sums.numbers(name)[row]) for name in _SUMS}
        found[key] = _part(values, none_if_nan(covered[key]), allocated.get(key)) | steps.get(key, _NO_STEPS)
        found[key] |= {f"{kind}_lengths": lengths.get((key, kind), []) for kind in ("kernel", "gap")}
    return found


def added_to(document: dict[str, Any], tables: Tables, attempt_keys: Sequence[str]) -> dict[str, Any]:
    """Put what is known under ``tracer`` into the attempts of a job's document; None where one was never traced."""
    allocated = {one["attempt"]: one["gpu_seconds"]["allocated"] for one in document["attempts"]}
    known = tracing(tables, attempt_keys, allocated) if attempt_keys else {}
    attempts = [{**one, "tracer": known.get(one["attempt"])} for one in document["attempts"]]
    return {**document, "attempts": attempts}


def _part(values: Mapping[str, float | None], known: float | None, allocated: float | None) -> dict[str, Any]:
    covered, launches, kernels = (values[name] for name in ("covered_seconds", "launch_count", "kernel_count"))
    length = values["kernel_seconds"]
    return {
        "source": SOURCE,
        "coverage_ratio": min(1.0, known / allocated) if known is not None and allocated else None,
        "covered_seconds": known,
        "source_lost_seconds": values["source_lost_seconds"],
        "late_seconds": values["late_seconds"],
        "launches_per_second": launches / known if launches is not None and known else None,
        "mean_kernel_seconds": length / kernels if length is not None and kernels else None,
        "gap_count": None if values["gap_count"] is None else int(values["gap_count"]),
        "gpu_bound_raw_ratio": _ratio(values["gpu_bound_seconds"], covered, 0.0),
        "gpu_bound_corrected_ratio": _corrected(values),
    }


def _ratio(bound: float | None, covered: float | None, removed: float | None) -> float | None:
    if bound is None or covered is None or removed is None or covered - removed <= 0:
        return None
    return min(1.0, bound / (covered - removed))


def _corrected(values: Mapping[str, float | None]) -> dict[str, float | None] | None:
    """Give the share without the tracer's own cost, with its bounds; None where that cost was never calibrated."""
    places = {"low": "tracing_low_seconds", "likely": "tracing_seconds", "high": "tracing_high_seconds"}
    if any(values[name] is None for name in places.values()):
        return None
    bound, covered = values["gpu_bound_seconds"], values["covered_seconds"]
    return {word: _ratio(bound, covered, values[name]) for word, name in places.items()}


_NO_STEPS: dict[str, Any] = {"steps_total": None, "steps_per_second": None}


def _steps(own: ibis.Table) -> dict[str, dict[str, Any]]:
    """Give steps by attempt: each process's highest count, added up; a rate over the time between its samples."""
    counted = own.filter(own.steps_total > 0)
    at = seconds(counted.sampled_at)
    by_process = counted.group_by("attempt_key", "process_key").aggregate(
        most=counted.steps_total.max(), least=counted.steps_total.min(), since=at.min(), until=at.max()
    )
    rows: Columns = fetch(by_process)
    found: dict[str, dict[str, Any]] = {}
    for row, key in enumerate(rows.values("attempt_key")):
        most, least, since, until = (rows.numbers(name)[row] for name in ("most", "least", "since", "until"))
        part = found.setdefault(key, {"steps_total": 0, "steps_per_second": None})
        part["steps_total"] += int(most)
        if until > since:
            part["steps_per_second"] = (part["steps_per_second"] or 0.0) + float(most - least) / float(until - since)
    return found


def _lengths(tables: Tables, attempt_keys: Sequence[str]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    table = tables.length_profile
    own = table.filter(table.attempt_key.isin(list(attempt_keys)))
    rows = fetch(
        own.group_by("attempt_key", "kind", "shortest_seconds")
        .aggregate(longest=own.longest_seconds.max(), length_count=own.length_count.sum())
        .order_by("attempt_key", "kind", "shortest_seconds")
    )
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row, key in enumerate(rows.values("attempt_key")):
        found.setdefault((key, rows.values("kind")[row]), []).append(
            {
                "shortest_seconds": float(rows.numbers("shortest_seconds")[row]),
                "longest_seconds": none_if_nan(rows.numbers("longest")[row]),
                "count": int(rows.numbers("length_count")[row]),
            }
        )
    return found
