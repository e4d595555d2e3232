"""From samples to stretches: how long each device was watched, busy and idle, for whom.

A sample covers its cadence; up to ``waste.continuous_cadences`` it reaches to the next one. Samples
of one device and instant from several sources are one: of each metric the highest that anybody gave. What comes back is
one row per *stretch*: neighbouring samples of one owner on one device that agree on whether there was a process and on
whether there was activity by each rung. A stretch ends after an hour, and at the edges of windows and allocations, so
that any share of time can be summed from it without going back to the samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
import pyarrow as pa

from analysis.frames import Columns, Floats, Ints, Tables, codes, fetch, local_table, seconds, timestamp
from analysis.settings import IDLE_STRETCH_SECONDS
from warehouse.contract.metrics import RUNGS_BEST_FIRST, Rung
from warehouse.contract.rollups import ACTIVE_THRESHOLD_RATIO, CONTINUOUS_CADENCES
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.holdings import Holdings
    from warehouse.contract.settings import Settings

NONE, SOME, UNKNOWN = 0, 1, 2
"""How a stretch stands on activity by a rung, and on processes."""

QUALITIES = ("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio")
"""How well busy time fills the card: means over covered time, never summands of the account."""

STATES = (*(rung.value for rung in RUNGS_BEST_FIRST), "process")
_OPEN_PAST, _OPEN_FUTURE = -1e12, 1e12
_CODES = 3 ** len(STATES)


@dataclass(frozen=True, slots=True)
class Activity:
    """Stretches in order of owner, device and time.

    ``device`` points into ``devices``, ``owner`` tells owners apart, ``holding`` points into the holdings (-1: none),
    ``window`` is the window between two edges (-1 before the first). ``seen_*`` is the stretch as it was sampled,
    ``held_*`` as far as the owner held the device, ``covered`` the length that lies in the window too. ``state[name]``
    is NONE, SOME or UNKNOWN, ``busy[rung]`` the busy share x covered seconds, ``quality[name]`` the same of a quality
    and ``quality_covered[name]`` the seconds in which it is known, ``memory_bytes`` the highest seen (NaN: never).
    """

    devices: Sequence[str]
    device: Ints
    owner: Ints
    holding: Ints
    window: Ints
    seen_start: Floats
    seen_end: Floats
    held_start: Floats
    held_end: Floats
    start: Floats
    covered: Floats
    state: dict[str, Ints]
    busy: dict[Rung, Floats]
    quality: dict[str, Floats]
    quality_covered: dict[str, Floats]
    memory_bytes: Floats


def gather_activity(
    tables: Tables, held: Holdings, edges: Sequence[float], settings: Settings, owners: Sequence[str] | None = None
) -> Activity:
    """Find the stretches that matter for the windows between ``edges``.

    Samples from a little before the first and after the last edge are read too: a pause that began before the window
    keeps its true length. ``owners`` leaves only the samples of some attempts.
    """
    samples = _near(tables, edges, settings)
    if owners is not None:
        samples = samples.filter(samples.attempt_key.isin(list(owners)))
    pieces = _pieces(_merge(samples), settings)
    return _arrange(fetch(_stretches(pieces, held, edges)))


def _near(tables: Tables, edges: Sequence[float], settings: Settings) -> Any:
    samples = tables.device_sample
    longest = fetch(samples.aggregate(cadence=samples.cadence_seconds.max())).numbers("cadence")[0]
    margin = settings[IDLE_STRETCH_SECONDS] + settings[CONTINUOUS_CADENCES] * (0.0 if np.isnan(longest) else longest)
    return samples.filter(
        samples.sampled_at >= timestamp(edges[0] - margin), samples.sampled_at < timestamp(edges[-1] + margin)
    )


def _merge(samples: Any) -> Any:
    """Make one row of the rows that several sources give of one device at one instant."""
    columns = {
        "cadence": samples.cadence_seconds.max(),
        Rung.DRIVER_UTIL.value: samples.driver_util_ratio.max(),
        Rung.ENGINE_ACTIVE.value: samples.engine_active_ratio.max(),
        Rung.GPU_BOUND.value: (samples.gpu_bound_seconds / samples.cadence_seconds).max(),
        "process": samples.process_count.max(),
    }
    columns |= {name: samples[name].max() for name in QUALITIES}
    columns["memory"] = ibis.coalesce(samples.memory_used_bytes_max.max(), samples.memory_used_bytes.max())
    merged = samples.group_by("device_uuid", "attempt_key", "sampled_at").aggregate(**columns)
    return merged.select("device_uuid", "attempt_key", *columns, at=seconds(merged.sampled_at))


def _pieces(merged: Any, settings: Settings) -> Any:
    """Give each sample the time it covers and the number of the stretch it belongs to."""
    along = {"group_by": ["device_uuid", "attempt_key"], "order_by": "at"}
    threshold = dict.fromkeys(STATES, settings[ACTIVE_THRESHOLD_RATIO]) | {"process": 0.0}
    code = sum(3**place * _state(merged[name], threshold[name]) for place, name in enumerate(STATES))
    hour = (merged.at / SECONDS_PER_HOUR).floor().cast("int64")
    samples = merged.mutate(code=code + hour * _CODES, reach=merged.at + settings[CONTINUOUS_CADENCES] * merged.cadence)
    each = ibis.window(**along)
    following, before = samples.at.lead().over(each), samples.code.lag().over(each)
    samples = samples.mutate(
        until=ibis.cases((following <= samples.reach, following), else_=samples.at + samples.cadence),
        goes_on=(samples.at <= samples.reach.lag().over(each)) & (samples.code == before),
    )
    begins = ibis.cases((samples.goes_on, 0), else_=1)
    return samples.mutate(run=begins.sum().over(ibis.cumulative_window(**along)))


def _state(column: Any, threshold: float) -> Any:
    return ibis.cases((column.isnull(), UNKNOWN), (column > threshold, SOME), else_=NONE)


def _stretches(pieces: Any, held: Holdings, edges: Sequence[float]) -> Any:
    """Cut the pieces at windows and allocations and sum them up by stretch."""
    windows = _windows(edges)
    cut = pieces.join(windows, [pieces.at < windows.window_end, pieces.until > windows.window_start])
    holders = _holders(held)
    cut = cut.left_join(
        holders,
        [
            cut.attempt_key == holders.holder,
            cut.device_uuid == holders.held_device,
            cut.at < holders.holding_end,
            cut.until > holders.holding_start,
        ],
    )
    held_start = ibis.greatest(cut.at, ibis.coalesce(cut.holding_start, cut.at))
    held_end = ibis.least(cut.until, ibis.coalesce(cut.holding_end, cut.until))
    start = ibis.greatest(held_start, cut.window_start)
    end = ibis.least(held_end, cut.window_end)
    cut = cut.mutate(
        held_start=held_start,
        held_end=held_end,
        start=start,
        length=ibis.greatest(end - start, ibis.literal(0.0)),
    )
    sums = {f"busy_{rung.value}": (cut[rung.value] * cut.length).sum() for rung in RUNGS_BEST_FIRST}
    for name in QUALITIES:
        sums[f"sum_{name}"] = (cut[name] * cut.length).sum()
        sums[f"known_{name}"] = ibis.cases((cut[name].notnull(), cut.length), else_=0.0).sum()
    return cut.group_by("device_uuid", "attempt_key", "run", "window", "holding").aggregate(
        code=cut.code.min(),
        seen_start=cut.at.min(),
        seen_end=cut.until.max(),
        held_start=cut.held_start.min(),
        held_end=cut.held_end.max(),
        start=cut.start.min(),
        covered=cut.length.sum(),
        memory=cut.memory.max(),
        **sums,
    )


def _holders(held: Holdings) -> Any:
    """Give the holdings of named devices as a table that samples can be joined to."""
    named = np.flatnonzero(held.named & (held.end > held.start))
    devices = held.words.values("device_uuid")
    return local_table(
        {
            "holding": named,
            "holder": [held.attempt_keys[at] for at in held.attempt[named]],
            "held_device": [devices[row] for row in held.row[named]],
            "holding_start": held.start[named],
            "holding_end": held.end[named],
        },
        {
            "holding": pa.int64(),
            "holder": pa.string(),
            "held_device": pa.string(),
            "holding_start": pa.float64(),
            "holding_end": pa.float64(),
        },
    )


def _windows(edges: Sequence[float]) -> Any:
    """Give the windows between the edges as a table, with one before the first and one after the last."""
    return local_table(
        {
            "window": range(-1, len(edges)),
            "window_start": [_OPEN_PAST, *edges],
            "window_end": [*edges, _OPEN_FUTURE],
        },
        {"window": pa.int64(), "window_start": pa.float64(), "window_end": pa.float64()},
    )


def _arrange(found: Columns) -> Activity:
    device, devices = codes(found.values("device_uuid"))
    owner, _ = codes(found.values("attempt_key"))
    window = found.numbers("window").astype(np.int64)
    order = np.lexsort((window, found.numbers("seen_start"), device, owner))
    code = found.numbers("code")[order].astype(np.int64) % _CODES
    holding = found.numbers("holding")[order]
    return Activity(
        devices=devices,
        device=device[order],
        owner=owner[order],
        holding=np.where(np.isnan(holding), -1, holding).astype(np.int64),
        window=window[order],
        seen_start=found.numbers("seen_start")[order],
        seen_end=found.numbers("seen_end")[order],
        held_start=found.numbers("held_start")[order],
        held_end=found.numbers("held_end")[order],
        start=found.numbers("start")[order],
        covered=found.numbers("covered")[order],
        state={name: code // 3**place % 3 for place, name in enumerate(STATES)},
        busy={rung: np.nan_to_num(found.numbers(f"busy_{rung.value}")[order]) for rung in RUNGS_BEST_FIRST},
        quality={name: np.nan_to_num(found.numbers(f"sum_{name}")[order]) for name in QUALITIES},
        quality_covered={name: found.numbers(f"known_{name}")[order] for name in QUALITIES},
        memory_bytes=found.numbers("memory")[order],
    )
