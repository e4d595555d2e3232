"""What the tracer tells of one job: steps, lengths of kernels and gaps, its longest kernels, and what pauses hide."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from analysis.frames import Columns, fetch, seconds
from analysis.kernel_names import kernel_title
from analysis.tracing import Rows, length_row, traced
from warehouse.contract.duty_cycle import Phase, extrapolated, phases

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_KERNELS: Final = 20
"""Kernels of an attempt that a document names, those with the longest time in all: a screenful."""

PAUSED_RATIO: Final = 0.05
"""From this share of paused time on, a total is extrapolated: the edges of flushes and seconds make up less."""

_NO_STEPS: dict[str, Any] = {"steps_total": None, "steps_per_second": None}


def added_to(document: dict[str, Any], rows: Rows | None) -> dict[str, Any]:
    """Put what is known under ``tracer`` into the attempts of a job's document; None where one was never traced."""
    found = traced(rows) if rows is not None and rows.attempt_keys else {}
    if rows is not None and found:
        _add_details(found, rows)
    attempts = []
    for one in document["attempts"]:
        part, allocated = found.get(one["attempt"]), one["gpu_seconds"]["allocated"]
        if part is not None:
            known = part["covered_seconds"]
            part["coverage_ratio"] = min(1.0, known / allocated) if known is not None and allocated else None
        attempts.append({**one, "tracer": part})
    return {**document, "attempts": attempts}


def _add_details(found: dict[str, dict[str, Any]], rows: Rows) -> None:
    steps, lengths, kernels = _steps(rows), _lengths(rows), _kernels(rows)
    paused = [key for key, part in found.items() if (part["paused_ratio"] or 0.0) > PAUSED_RATIO]
    estimates = _estimates(replace(rows, attempt_keys=paused)) if paused else {}
    for key in found:
        found[key] |= steps.get(key, _NO_STEPS)
        found[key] |= {f"{kind}_lengths": lengths.get((key, kind), []) for kind in ("kernel", "gap")}
        found[key] |= {"kernels": kernels.get(key, []), "gpu_bound_extrapolated_ratio": estimates.get(key)}


def _steps(rows: Rows) -> dict[str, dict[str, Any]]:
    """Give steps by attempt: each process's count at the end, added up; a rate over the time between its samples."""
    own = rows.samples(rows.tables.process_sample)
    counted = own.filter(own.steps_total > 0)
    at = seconds(counted.sampled_at)
    by_process = fetch(
        counted.group_by("attempt_key", "process_key").aggregate(
            most=counted.steps_total.max(), least=counted.steps_total.min(), since=at.min(), until=at.max()
        )
    )
    found: dict[str, dict[str, Any]] = {}
    for row, key in enumerate(by_process.values("attempt_key")):
        most, least, since, until = (by_process.numbers(name)[row] for name in ("most", "least", "since", "until"))
        part = found.setdefault(key, {"steps_total": 0, "steps_per_second": None})
        part["steps_total"] += int(most)
        if until > since:
            part["steps_per_second"] = (part["steps_per_second"] or 0.0) + float(most - least) / float(until - since)
    return found


def _lengths(rows: Rows) -> dict[tuple[str, str], list[dict[str, Any]]]:
    own = rows.profiles(rows.tables.length_profile)
    counted = fetch(
        own.group_by("attempt_key", "kind", "shortest_seconds")
        .aggregate(longest=own.longest_seconds.max(), length_count=own.length_count.sum())
        .order_by("attempt_key", "kind", "shortest_seconds")
    )
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row, key in enumerate(counted.values("attempt_key")):
        found.setdefault((key, counted.values("kind")[row]), []).append(length_row(counted, row))
    return found


def _kernels(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Give the kernels of each attempt with the longest time in all, over processes and hours."""
    own = rows.profiles(rows.tables.kernel_profile)
    summed = fetch(
        own.group_by("attempt_key", "kernel_name", "grid", "block")
        .aggregate(launches=own.launch_count.sum(), total=own.total_seconds.sum(), longest=own.longest_seconds.max())
        .order_by("attempt_key", "kernel_name", "grid", "block")
    )
    found: dict[str, list[dict[str, Any]]] = {}
    names, grids, blocks = (summed.values(name) for name in ("kernel_name", "grid", "block"))
    for row, key in enumerate(summed.values("attempt_key")):
        launches, total = int(summed.numbers("launches")[row]), float(summed.numbers("total")[row])
        found.setdefault(key, []).append(
            {
                "kernel": kernel_title(names[row]),
                "kernel_name": names[row],
                "grid": grids[row],
                "block": blocks[row],
                "launch_count": launches,
                "total_seconds": total,
                "mean_seconds": total / launches if launches else None,
                "longest_seconds": float(summed.numbers("longest")[row]),
            }
        )
    return {
        key: sorted(kernels, key=lambda one: -one["total_seconds"])[:MOST_KERNELS] for key, kernels in found.items()
    }


def _estimates(rows: Rows) -> dict[str, dict[str, float]]:
    """Give the GPU-bound share over all of the time, pauses included, of attempts whose tracer pauses.

    Bounds are those of each process and device at 95 %, added up; ``warehouse.contract.duty_cycle`` says what is
    assumed. The first and the last cell of a process are left out: what it lacks there is no pause.
    """
    own = rows.samples(rows.tables.process_sample)
    cells = fetch(
        own.select(
            *("attempt_key", "process_key", "device_uuid", "cadence_seconds", "covered_seconds", "source_lost_seconds"),
            "gpu_bound_seconds",
            at=seconds(own.sampled_at),
        ).order_by("attempt_key", "process_key", "device_uuid", "at")
    )
    groups: dict[tuple[str, str, str], list[int]] = {}
    names = ("attempt_key", "process_key", "device_uuid")
    for row, key in enumerate(zip(*(cells.values(name) for name in names), strict=True)):
        groups.setdefault(key, []).append(row)
    found: dict[str, tuple[float, float, float, float]] = {}
    for (attempt, _, _), members in groups.items():
        estimate = _estimate(cells, members[1:-1])
        if estimate is not None:
            old = found.get(attempt, (0.0, 0.0, 0.0, 0.0))
            found[attempt] = (old[0] + estimate[0], old[1] + estimate[1], old[2] + estimate[2], old[3] + estimate[3])
    return {
        attempt: {"low": low / whole, "likely": likely / whole, "high": high / whole}
        for attempt, (low, likely, high, whole) in found.items()
    }


def _estimate(cells: Columns, members: Sequence[int]) -> tuple[float, float, float, float] | None:
    """Give low, likely and high of busy seconds over the cells, and their length; None where nothing was paused."""
    names = ("cadence_seconds", "source_lost_seconds", "covered_seconds", "gpu_bound_seconds")
    cadence, lost, covered, bound = (cells.numbers(name)[members] for name in names)
    whole = float(cadence.sum() - lost.sum())
    if whole <= 0 or covered.sum() > (1 - PAUSED_RATIO) * whole:
        return None
    seen = [(float(known), float(busy) if known > 0 else 0.0) for known, busy in zip(covered, bound, strict=True)]
    on = phases(seen)
    if len(on) == 1:  # every cell holds a part of some phase
        on = [Phase(*cell) for cell in seen if cell[0] > 0]
    estimate = extrapolated(on, whole)
    return None if estimate is None else (*estimate, whole)
