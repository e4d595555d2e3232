"""From samples to rows of roll-ups, as expressions that mean the same on every engine (``contract.rollups``).

The writer of roll-ups and analyses of time that is not rolled up yet use the same ones: so both tell the same. Instants
are whole microseconds since the epoch in here. Expressions keep to the portable subset (docs/scale.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis

from warehouse.contract.rollups import (
    HISTOGRAM_BUCKETS,
    NONE,
    QUALITIES,
    RUNGS,
    SOME,
    STATES,
    UNKNOWN,
    UNOWNED,
    histogram_column,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.contract.rollups import Rule

MICROSECONDS = 1_000_000
SHARES = (*RUNGS, *QUALITIES)
_WHO = ("device_uuid", "owner", "cluster", "node")
_KEYED = (*_WHO, "key")


@dataclass(frozen=True, slots=True)
class Rolling:
    """How to roll up. ``several``: more than one source may speak of one instant. ``lean``: only what accounts need.

    ``each``: every sample is a row of its own.
    """

    rule: Rule
    several: bool = True
    lean: bool = False
    each: bool = False


def micro(instant: Any) -> Any:
    """Give a timestamp column as whole microseconds since the epoch."""
    return instant.delta(ibis.timestamp("1970-01-01 00:00:00"), unit="microsecond").cast("int64")


def owned_share(samples: Any) -> Any:
    """Give the share of a device's power and energy that is the owner's: all of it where nobody told of a share."""
    return ibis.coalesce(samples.share_ratio.cast("float64"), 1.0)


def pieces(samples: Any, bucket_seconds: int, how: Rolling) -> Any:
    """Give runs of samples that agree, cut at the edges of buckets, with their sums.

    One row for each ``run`` and ``bucket`` (a number of buckets since the epoch) of a device and owner, which ``key``
    numbers; what ``rows`` makes of them is what roll-ups hold.
    """
    read = samples.mutate(owner=ibis.coalesce(samples.attempt_key, ""))
    who = read.select(*_WHO).distinct()
    who = who.mutate(key=ibis.row_number().over(order_by=list(_WHO)).cast("int32"))
    metrics = _metrics(read, lean=how.lean)
    keyed = read.select(
        *_WHO,
        at=micro(read.sampled_at),
        cadence=(read.cadence_seconds * MICROSECONDS).round().cast("int64"),
        **metrics,
    ).inner_join(who, list(_WHO))
    if how.several:
        keyed = keyed.group_by(*_WHO, "key", "at").aggregate(
            **{name: keyed[name].max() for name in ("cadence", *metrics)}
        )
    told = _told(keyed, how, tuple(metrics))
    summed = _summed(_cut(_numbered(told, how, tuple(metrics)), bucket_seconds), how)
    return summed.inner_join(who, "key")


def _metrics(samples: Any, *, lean: bool) -> dict[str, Any]:
    found = {name: samples[f"{name}_ratio"] for name in SHARES if name != "gpu_bound"}
    found["gpu_bound"] = samples.gpu_bound_seconds / samples.cadence_seconds
    found["process"] = samples.process_count
    found["memory_max"] = ibis.coalesce(samples.memory_used_bytes_max, samples.memory_used_bytes)
    if not lean:
        found["memory"] = samples.memory_used_bytes
        owned = owned_share(samples)
        found["share"] = samples.share_ratio
        found["power"] = samples.power_watts * owned
        found["energy"] = samples.energy_joules * owned
        found["power_min"] = samples.power_watts
        found["power_max"] = ibis.coalesce(samples.power_watts_max, samples.power_watts)
        found["celsius_max"] = ibis.coalesce(samples.temperature_celsius_max, samples.temperature_celsius)
    return found


def _told(keyed: Any, how: Rolling, metrics: tuple[str, ...]) -> Any:
    """Tell of each sample its code, and how far it reaches."""
    threshold = dict.fromkeys(STATES, how.rule.threshold_ratio) | {"process": 0.0}
    code = sum(3**place * _state(keyed[name], threshold[name]) for place, name in enumerate(STATES))
    return keyed.select(
        "key",
        "at",
        "cadence",
        *metrics,
        code=ibis.cases((keyed.owner != "", code), else_=UNOWNED).cast("int8"),
        reach=keyed.at + (how.rule.continuous_cadences * keyed.cadence).round().cast("int64"),
    )


def _state(column: Any, threshold: float) -> Any:
    return ibis.cases((column.isnull(), UNKNOWN), (column > threshold, SOME), else_=NONE)


def _numbered(told: Any, how: Rolling, metrics: tuple[str, ...]) -> Any:
    """Give each sample the time it covers and the number of its run; the first and last of a coverage stand alone."""
    along = ibis.window(group_by="key", order_by="at")
    seen = told.mutate(
        following=told.at.lead().over(along),
        at_before=told.at.lag(1).over(along),
        reach_before=told.reach.lag(1).over(along),
        reach_long_before=told.reach.lag(2).over(along),
        code_before=told.code.lag(1).over(along),
    )
    goes_on = ibis.coalesce(seen.at <= seen.reach_before, False)
    is_second = ~ibis.coalesce(seen.at_before <= seen.reach_long_before, False)
    is_last = ~ibis.coalesce(seen.following <= seen.reach, False)
    begins = ~goes_on | (seen.code != seen.code_before) | ((is_second | is_last) & (seen.code != UNOWNED))
    seen = seen.select(
        "key",
        "at",
        "cadence",
        "code",
        *metrics,
        until=ibis.cases((is_last, seen.at + seen.cadence), else_=seen.following),
        begins=1 if how.each else ibis.cases((begins, 1), else_=0),
    )
    numbering = ibis.cumulative_window(group_by="key", order_by="at")
    return seen.mutate(run=seen.begins.sum().over(numbering)).filter(seen.until > seen.at)


def _cut(numbered: Any, bucket_seconds: int) -> Any:
    """Cut what each sample covers at the edges of buckets."""
    width = bucket_seconds * MICROSECONDS
    first, last = (numbered.at / width).floor().cast("int64"), ((numbered.until - 1) / width).floor().cast("int64")
    cut = numbered.mutate(bucket=ibis.range(first, last + 1).unnest())
    cut = cut.mutate(
        start=ibis.greatest(cut.at, cut.bucket * width), end=ibis.least(cut.until, (cut.bucket + 1) * width)
    )
    return cut.mutate(seconds=(cut.end - cut.start) / MICROSECONDS)


def _summed(cut: Any, how: Rolling) -> Any:
    def amount(name: str) -> Any:
        return (cut[name] * cut.seconds).sum()

    def known(name: str) -> Any:
        return ibis.cases((cut[name].notnull(), cut.seconds), else_=0.0).sum()

    sums: dict[str, Any] = {f"{name}_seconds": amount(name) for name in SHARES}
    sums |= {f"{name}_known_seconds": known(name) for name in SHARES}
    sums["memory_used_bytes_max"] = cut.memory_max.max()
    if not how.lean:
        sums |= {"process_seconds": amount("process"), "process_known_seconds": known("process")}
        sums |= {"share_seconds": amount("share"), "share_known_seconds": known("share")}
        sums |= {"memory_byte_seconds": amount("memory"), "memory_known_seconds": known("memory")}
        sums |= {"power_joules": amount("power"), "power_known_seconds": known("power")}
        sums["energy_joules"] = (cut.energy * cut.seconds / (cut.cadence / MICROSECONDS)).sum()
        sums["process_count_max"] = cut.process.max()
        sums |= {"power_watts_min": cut.power_min.min(), "power_watts_max": cut.power_max.max()}
        sums["temperature_celsius_max"] = cut.celsius_max.max()
        for rung in RUNGS:
            sums |= {f"{rung}_ratio_min": cut[rung].min(), f"{rung}_ratio_max": cut[rung].max()}
            place = (cut[rung] * (HISTOGRAM_BUCKETS - 1)).ceil()
            for bucket in range(HISTOGRAM_BUCKETS):
                held = ibis.cases((place == bucket, cut.seconds), else_=0.0)
                sums[histogram_column(rung, bucket)] = held.sum()
    return cut.group_by("key", "run", "bucket").aggregate(
        code=cut.code.max(),
        start=cut.start.min(),
        end=cut.end.max(),
        sample_count=cut.count(),
        covered_seconds=cut.seconds.sum(),
        **sums,
    )


def coarser(found: Any, times: int) -> Any:
    """Give the pieces of buckets that are ``times`` as long."""
    wider = found.mutate(bucket=(found.bucket / times).floor().cast("int64"))
    kept = (*_KEYED, "run", "bucket", "code", "start", "end")
    sums = _again(wider, tuple(name for name in found.columns if name not in kept))
    return wider.group_by(*_KEYED, "run", "bucket").aggregate(
        code=wider.code.max(), start=wider.start.min(), end=wider.end.max(), **sums
    )


def _again(table: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Sum sums up again; the least of the least and the most of the most."""
    found: dict[str, Any] = {}
    for name in names:
        column = table[name]
        found[name] = column.min() if name.endswith("_min") else column.max() if name.endswith("_max") else column.sum()
    return found


def rows(found: Any, how: Rolling) -> Any:
    """Make rows of pieces: what lasts and the ends of coverage keep their place, the rest of one code is one row."""
    along = {"group_by": "key", "order_by": "start"}
    each = ibis.window(**along)
    quiet = _is_quiet(found.code)
    runs = found.mutate(
        quiet=quiet,
        touches=ibis.coalesce(found.end.lag().over(each) == found.start, False),
        quiet_before=ibis.coalesce(quiet.lag().over(each), False),
    )
    numbering = ibis.cumulative_window(**along)
    breaks = ibis.cases((runs.touches, 0), else_=1)
    turns = ibis.cases((runs.touches & (runs.quiet == runs.quiet_before), 0), else_=1)
    runs = runs.mutate(span=breaks.sum().over(numbering), turn=turns.sum().over(numbering))
    of_turn = ibis.window(group_by=["key", "turn"])
    of_span = ibis.window(group_by=["key", "span"])
    in_bucket = ibis.window(group_by=["key", "span", "bucket"])
    length = runs.end.max().over(of_turn) - runs.start.min().over(of_turn)
    lasting = runs.quiet & (length >= round(how.rule.pause_seconds * MICROSECONDS))
    is_end = (runs.run == runs.run.min().over(of_span)) | (runs.run == runs.run.max().over(of_span))
    apart = lasting | (is_end & (runs.code != UNOWNED)) | how.each
    placed = runs.mutate(
        lasting=lasting,
        part=ibis.cases((apart, runs.run), else_=-1),
        seen_start=runs.start.min().over(in_bucket),
        seen_end=runs.end.max().over(in_bucket),
    )
    kept = (*_KEYED, "run", "bucket", "code", "start", "end")
    sums = _again(placed, tuple(name for name in found.columns if name not in kept))
    return (
        placed.group_by(*_KEYED, "bucket", "span", "code", "part", "lasting", "seen_start", "seen_end")
        .aggregate(start=placed.start.min(), end=placed.end.max(), **sums)
        .drop("key", "span", "part")
    )


def _is_quiet(code: Any) -> Any:
    """Say whether a piece may belong to a pause by some rung: no process, or a process and a rung without activity."""
    digits = {name: (code / 3**place).floor().cast("int64") % 3 for place, name in enumerate(STATES)}
    still = digits[RUNGS[0]] == NONE
    for rung in RUNGS[1:]:
        still |= digits[rung] == NONE
    process = digits["process"]
    return (code != UNOWNED) & ((process == NONE) | ((process == SOME) & still))
