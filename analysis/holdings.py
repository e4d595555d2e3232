"""Who held which GPU, when, and how much of it: allocations with the words of their job.

On one device the shares that are held at any instant never exceed 1: where allocations claim more, they are split by
what samples tell of each one's use, else in proportion, so that attributed time never exceeds wall time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np

from analysis.frames import (
    Bools,
    Columns,
    Floats,
    Ints,
    Tables,
    add_by,
    codes,
    fetch,
    none_if_nan,
    not_rolled,
    seconds,
    timestamp,
)
from analysis.sharing import gather_shares, split
from warehouse.contract.model import FAILED_STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analysis.sharing import Told
    from warehouse.contract.model import Window

JOB_WORDS = (
    "cluster",
    "scheduler_job_id",
    "array_job_id",
    "het_job_id",
    "name",
    "user",
    "account",
    "partition",
    "qos",
    "command",
    "work_dir",
    "image",
    "time_limit_seconds",
    "interactive",
    "comment",
    "requested_cpu_count",
    "requested_memory_bytes",
)
"""Columns of ``job`` that travel with every allocation of it."""


Span = tuple[float, float]
"""From when to when, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Stretches in which an attempt held a share of one device, or a number of GPUs that nobody names.

    One row per stretch; ``weight`` is GPUs held (a share of one device, or a count), ``row`` points into ``words``,
    which has one row per allocation with everything known about it, ``attempt`` into ``attempt_keys``. ``named`` says
    that the device is known. Times are seconds since the epoch, ``end`` of what still runs is the last thing known.
    """

    words: Columns
    attempt_keys: Sequence[str]
    row: Ints
    attempt: Ints
    start: Floats
    end: Floats
    weight: Floats

    @property
    def named(self) -> Bools:
        """Say of each stretch whether its device is known."""
        known = np.array([device is not None for device in self.words.values("device_uuid")], dtype=np.bool_)
        return known[self.row]

    @property
    def failed(self) -> Bools:
        """Say of each stretch whether its attempt ended short of its own end."""
        states = {str(state) for state in FAILED_STATES}
        failed = np.array([state in states for state in self.words.values("state")], dtype=np.bool_)
        return failed[self.row]

    def only(self, keys: Sequence[str]) -> Holdings:
        """Give the stretches of some attempts alone."""
        wanted = set(keys)
        kept = np.isin(self.attempt, [at for at, key in enumerate(self.attempt_keys) if key in wanted])
        return replace(
            self,
            row=self.row[kept],
            attempt=self.attempt[kept],
            start=self.start[kept],
            end=self.end[kept],
            weight=self.weight[kept],
        )

    def pick(self, name: str) -> list[Any]:
        """Give a column of words for each stretch."""
        values = self.words.values(name)
        return [values[row] for row in self.row]


def last_held_at(tables: Tables, until: float, last_at: float) -> float | None:
    """Give the last instant before ``until`` at which anybody held a GPU."""
    attempt = tables.attempt.select("attempt_key", attempt_end="end_at")
    held = tables.allocation.filter(tables.allocation.gpu_count > 0, tables.allocation.start_at < timestamp(until))
    held = held.left_join(attempt, "attempt_key")
    end = ibis.least(ibis.coalesce(seconds(held.end_at), seconds(held.attempt_end), last_at), until)
    ends = held.select(end=end, start=seconds(held.start_at))
    found = fetch(ends.filter(ends.end > ends.start).aggregate(last=ends.end.max())).numbers("last")[0]
    return none_if_nan(found)


def known_span(tables: Tables) -> Span | None:
    """Give the first and the last instant that the store knows GPUs by: open intervals are counted until the last.

    A sample speaks until its cadence is over. None: the store is empty.
    """
    fresh = not_rolled(tables)
    samples = fresh.group_by("cadence_seconds").aggregate(first=fresh.sampled_at.min(), last=fresh.sampled_at.max())
    instants = (
        (tables.attempt, ("start_at", "end_at")),
        (tables.allocation, ("start_at", "end_at")),
        (tables.device, ("since_at", "until_at")),
        (tables.event, ("happened_at",)),
    )
    spans = [samples.select(samples.first, last=seconds(samples["last"]) + samples.cadence_seconds)]
    if tables.rolled:
        known = tables.rollup_1h
        spans.append(known.aggregate(first=known.start_at.min(), last=seconds(known.end_at.max())))
    for table, names in instants:
        ends = [table[name].max() for name in names]
        latest = ibis.greatest(*ends) if len(ends) > 1 else ends[0]  # Spark knows no greatest of one
        spans.append(table.aggregate(first=table[names[0]].min(), last=seconds(latest)))
    found = fetch(
        ibis.union(*(span.select(first=seconds(span["first"]), last=span["last"].cast("float64")) for span in spans))
    )
    first, last = found.numbers("first"), found.numbers("last")
    return None if np.isnan(last).all() else (float(np.nanmin([*first, *last])), float(np.nanmax(last)))


def holdings(tables: Tables, window: Window, last_at: float) -> Holdings:
    """Gather the allocations that touch a window, with their shares settled. Times are not cut to the window."""
    words = fetch(_allocations(tables, window))
    start, end = words.numbers("start_at"), words.numbers("end_at").copy()
    end[np.isnan(end)] = np.maximum(last_at, start[np.isnan(end)])
    attempt, keys = codes(words.values("attempt_key"))
    weight = words.numbers("gpu_count") * words.numbers("share_ratio")
    device, names = codes(words.values("device_uuid"))
    unnamed = names.index(None) if None in names else -1
    weight = _less_what_is_named(attempt, weight, end - start, device != unnamed)
    order = np.lexsort((start, device))
    crowded = sorted(_crowded(device[order], start[order], end[order], weight[order]) - {unnamed})
    shares = gather_shares(tables, [names[at] for at in crowded], window)
    held = _Held(device, attempt, start, end, weight)
    row, start, end, weight = _settle(held, crowded, lambda at, owner: shares.of(names[at], keys[owner]))
    # A holding without an attempt is somebody's whom this viewer may not see: it takes its share, and no more is told.
    own = np.array([key is not None for key in keys], dtype=np.bool_)[attempt[row]]
    row, start, end, weight = row[own], start[own], end[own], weight[own]
    return Holdings(words, keys, row, attempt[row], start, end, weight)


def _allocations(tables: Tables, window: Window) -> Any:
    """Join each allocation to its attempt, its job and its device."""
    device = tables.device.group_by("device_uuid").aggregate(
        device_model=tables.device.gpu_model.max(),
        device_memory_bytes=tables.device.memory_bytes.max().cast("float64"),
        device_node=tables.device.node.max(),
    )
    attempt = tables.attempt.select(
        *("attempt_key", "job_key", "state", "node_count", "cpu_count"),
        attempt_start="start_at",
        attempt_end="end_at",
        attempt_submit="submit_at",
    )
    job = tables.job.select("job_key", *JOB_WORDS, job_submit="submit_at")
    allocation = tables.allocation.filter(tables.allocation.gpu_count > 0).drop("source", "certainty")
    joined = allocation.left_join(attempt, "attempt_key").drop("attempt_key_right").left_join(job, "job_key")
    joined = joined.drop("job_key_right").left_join(device, "device_uuid")
    end = ibis.coalesce(joined.end_at, joined.attempt_end)
    if window.until_at is not None:
        joined = joined.filter(joined.start_at < timestamp(window.until_at))
    if window.since_at is not None:
        # An allocation of no length counts as a job of the window in which it lies.
        since = timestamp(window.since_at)
        joined = joined.filter(end.isnull() | (end > since) | ((end == joined.start_at) & (joined.start_at >= since)))
    return joined.select(
        "attempt_key",
        "job_key",
        "state",
        "device_uuid",
        "device_memory_bytes",
        *(name for name in JOB_WORDS if name != "time_limit_seconds"),
        "time_limit_seconds",
        node_count=joined.node_count.cast("float64"),
        cpu_count=joined.cpu_count.cast("float64"),
        gpu_count=joined.gpu_count,
        share_ratio=joined.share_ratio,
        node=ibis.coalesce(joined.device_node, joined.node),
        gpu_model=ibis.coalesce(joined.device_model, joined.gpu_model),
        start_at=seconds(joined.start_at),
        end_at=seconds(end),
        attempt_start_at=seconds(joined.attempt_start),
        attempt_end_at=seconds(joined.attempt_end),
        submit_at=seconds(ibis.coalesce(joined.attempt_submit, joined.job_submit)),
        allocation_key=joined.allocation_key,
    ).order_by("start_at", "allocation_key")


def _less_what_is_named(attempt: Ints, weight: Floats, length: Floats, named: Bools) -> Floats:
    """Leave of a bare count of GPUs what the named devices of the same attempt do not account for.

    Accounting gives a count, an agent names the devices: the same GPUs are not counted twice.
    """
    size = int(attempt.max(initial=-1)) + 1
    by_name = add_by(attempt[named], (weight * length)[named], size)
    by_count = add_by(attempt[~named], (weight * length)[~named], size)
    left = np.divide(by_count - by_name, by_count, out=np.ones(size), where=by_count > 0)
    return np.where(named, weight, weight * np.maximum(left, 0.0)[attempt])


@dataclass(frozen=True, slots=True)
class _Held:
    """Allocations as arrays; ``device`` and ``attempt`` are numbers of names."""

    device: Ints
    attempt: Ints
    start: Floats
    end: Floats
    weight: Floats


def _settle(
    held: _Held, crowded: Sequence[int], told: Callable[[int, int], Told | None]
) -> tuple[Ints, Floats, Floats, Floats]:
    """Cut allocations of one device where they overlap, so that their shares add up to 1 at most."""
    alone = ~np.isin(held.device, np.asarray(crowded, dtype=np.int64))
    pieces: list[tuple[int, float, float, float]] = []
    for name in crowded:
        members = np.flatnonzero(held.device == name)
        owner = held.attempt[members]
        own = [told(name, one) for one in owner.tolist()]
        found = split(held.start[members], held.end[members], held.weight[members], owner, own)
        pieces += [(int(members[row]), since, until, weight) for row, since, until, weight in found]
    cut = np.array(pieces, dtype=np.float64).reshape(-1, 4)
    return (
        np.concatenate([np.flatnonzero(alone), cut[:, 0].astype(np.int64)]),
        np.concatenate([held.start[alone], cut[:, 1]]),
        np.concatenate([held.end[alone], cut[:, 2]]),
        np.concatenate([held.weight[alone], cut[:, 3]]),
    )


def _crowded(device: Ints, start: Floats, end: Floats, weight: Floats) -> set[int]:
    """Find the devices with allocations that overlap, or with one that holds more than the device. Rows are sorted."""
    found = {int(name) for name in device[weight > 1.0]}
    same = device[1:] == device[:-1]
    latest = end.copy()
    for at in np.flatnonzero(same):
        latest[at + 1] = max(latest[at], latest[at + 1])
    found |= {int(name) for name in device[1:][same & (start[1:] < latest[:-1])]}
    return found
