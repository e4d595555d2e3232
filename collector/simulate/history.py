"""Tells the past of a simulated cluster as batches, at a cadence of one minute.

Two weeks through the NVML binding would take two weeks. The rows here come from the same functions of time as the
present (:mod:`collector.simulate.activity`), in slices of tables that are worked out once per level of work. They are
sent as any agent's are. A span of time always gives the same batches under the same names, so sending one again adds
nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from collector.simulate import traced
from collector.simulate.activity import NOISE_LENGTH, PEAK_OVER_MEAN, minute_mean, noise_index
from collector.simulate.scenario import IDLE, MINUTE_SECONDS, GpuModel, Level, Scenario, SimulatedDevice
from collector.simulate.schedule import CPUS_PER_GPU, PlannedAttempt, attempts, inventory, records
from warehouse.contract import wire
from warehouse.contract.model import HostSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warehouse.contract.model import KernelProfile, LengthProfile, ProcessSample

AGENT: Final = "demo-history"
HOST_CADENCE_SECONDS: Final = 600.0
"""What jobs use of their hosts is told of the past in steps of ten minutes: enough for means, and few rows."""

ROWS_PER_BATCH: Final = 20_160
"""Two weeks of minutes: one card and source per batch, so that most tags are said once for all rows."""

RATIO_DIGITS: Final = 4

Values = list[float] | list[int]
Tables = dict[str, Values]


@dataclass(frozen=True, slots=True)
class Segment:
    """Minutes ``[first, last)`` since the scenario's start in which a card does one thing for one owner."""

    first: int
    last: int
    level: Level
    attempt: PlannedAttempt | None
    seed: int


def write_history(
    scenario: Scenario,
    start_at: float,
    since_at: float,
    until_at: float,
    send: Callable[[wire.Batch], None],
    *,
    with_inventory: bool,
) -> int:
    """Send everything that happened within ``[since_at, until_at)``; both are whole minutes after ``start_at``.

    Jobs, attempts and allocations go first, so that every sample's owner is known when it arrives. ``send`` returns
    when the receiver has the batch. ``with_inventory``: nodes and devices are told, too. Returns the number of samples.
    """
    samples = 0
    name = f"{int(since_at)}-{int(until_at)}"
    for sequence, tables in enumerate(
        _all_tables(scenario, start_at, since_at, until_at, with_inventory=with_inventory)
    ):
        send(wire.Batch(AGENT, name, sequence, until_at, tables))
        samples += tables["device_sample"].rows if "device_sample" in tables else 0
    return samples


def _all_tables(
    scenario: Scenario, start_at: float, since_at: float, until_at: float, *, with_inventory: bool
) -> Iterator[dict[str, wire.Table]]:
    planned = attempts(scenario, start_at, since_at, until_at)
    told = [record for attempt in planned for record in records(scenario, attempt, until_at)]
    if with_inventory:
        told += inventory(scenario, start_at, until_at)
    yield wire.from_records(told)
    first, last = int(since_at - start_at) // MINUTE_SECONDS, int(until_at - start_at) // MINUTE_SECONDS
    for device in scenario.devices:
        segments = list(_segments(scenario, device, planned, start_at, (first, last)))
        for source in _COLUMNS:
            kept = [segment for segment in segments if source != "kernels" or segment.level.gpu_bound is not None]
            for piece in _pieces(kept):
                yield {"device_sample": _sample_table(scenario.cluster, device, start_at, source, piece)}
                if source == "kernels":
                    yield wire.from_records(_traced(scenario.cluster, device, start_at, until_at, piece))
    hosts = [row for attempt in planned for row in _hosts(scenario.cluster, attempt, since_at, until_at)]
    for first_row in range(0, len(hosts), ROWS_PER_BATCH):
        yield wire.from_records(hosts[first_row : first_row + ROWS_PER_BATCH])


def _hosts(cluster: str, attempt: PlannedAttempt, since_at: float, until_at: float) -> Iterator[HostSample]:
    """Give what an attempt's control group used of each host, where the scenario tells it."""
    begin, end = max(attempt.start_at, since_at), min(attempt.end_at, until_at)
    gpus = Counter(device.node for device in attempt.devices)
    at = begin
    while at < end:
        seconds, level = min(HOST_CADENCE_SECONDS, end - at), attempt.level_at(at)
        for node, count in gpus.items() if level.cores is not None else ():
            yield HostSample(
                *(cluster, node, "group", at, seconds, "host"),
                subject=f"/system.slice/slurmstepd.scope/job_{attempt.job_id}",
                attempt_key=attempt.attempt_key(cluster),
                cpu_seconds=round((level.cores or 0.0) * count * seconds, 3),
                cpu_limit_count=float(CPUS_PER_GPU * count),
                io_stall_seconds=round(level.io_some * seconds, 3),
                io_full_stall_seconds=round(level.io_full * seconds, 3),
                disk_read_bytes=level.read * count * seconds,
            )
        at += HOST_CADENCE_SECONDS


def _segments(
    scenario: Scenario,
    device: SimulatedDevice,
    planned: list[PlannedAttempt],
    start_at: float,
    span: tuple[int, int],
) -> Iterator[Segment]:
    """Give what the card does, gap by gap and phase by phase; nothing after it is lost."""
    lost = scenario.lost_minute(device)
    cursor, last = span[0], span[1] if lost is None else min(span[1], lost)
    for attempt in planned:
        if device not in attempt.devices:
            continue
        begins, ends = (round(at - start_at) // MINUTE_SECONDS for at in (attempt.start_at, attempt.end_at))
        if begins > cursor:
            yield Segment(cursor, min(begins, last), IDLE, None, 0)
        changes = [begins + phase.from_minute for phase in attempt.workload.phases[1:]] + [ends]
        at = begins
        for phase, change in zip(attempt.workload.phases, changes, strict=True):
            begin, end = max(at, cursor), min(change, ends, last)
            if end > begin:
                yield Segment(begin, end, phase.level, attempt, attempt.seed(device))
            at = change
        cursor = max(cursor, min(ends, last))
    if last > cursor:
        yield Segment(cursor, last, IDLE, None, 0)


def _pieces(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Group segments so that no batch has more rows than ROWS_PER_BATCH."""
    piece: list[Segment] = []
    rows = 0
    for segment in segments:
        first = segment.first
        while first < segment.last:
            last = min(segment.last, first + ROWS_PER_BATCH - rows)
            piece.append(Segment(first, last, segment.level, segment.attempt, segment.seed))
            rows += last - first
            first = last
            if rows == ROWS_PER_BATCH:
                yield piece
                piece, rows = [], 0
    if piece:
        yield piece


def _sample_table(
    cluster: str, device: SimulatedDevice, start_at: float, source: str, segments: list[Segment]
) -> wire.Table:
    columns: dict[str, list[wire.Value]] = {
        name: [] for name in ("sampled_at", "attempt_key", "share_ratio", "attribution", *_COLUMNS[source])
    }
    for segment in segments:
        count = segment.last - segment.first
        owner = None if segment.attempt is None else segment.attempt.attempt_key(cluster)
        first_at = int(start_at) + segment.first * MINUTE_SECONDS
        columns["sampled_at"] += range(first_at, first_at + count * MINUTE_SECONDS, MINUTE_SECONDS)
        columns["attempt_key"] += [owner] * count
        columns["share_ratio"] += [None if owner is None else 1.0] * count
        columns["attribution"] += [None if owner is None else "scheduler"] * count
        tables = _tables(segment.level, device.model)
        for name in _COLUMNS[source]:
            columns[name] += _slice(tables[name], noise_index(segment.seed, segment.first), count)
    rows = len(columns["sampled_at"])
    tags: dict[str, wire.Column] = {
        "cluster": cluster,
        "node": device.node,
        "device_uuid": device.uuid,
        "cadence_seconds": float(MINUTE_SECONDS),
        "source": source,
    }
    return wire.Table(rows, {**tags, **{name: _shortest(values) for name, values in columns.items()}})


def _traced(
    cluster: str, device: SimulatedDevice, start_at: float, until_at: float, segments: list[Segment]
) -> list[ProcessSample | KernelProfile | LengthProfile]:
    """Give what the tracer of each owner told beside the device's own rows."""
    told: list[ProcessSample | KernelProfile | LengthProfile] = []
    for segment in segments:
        attempt, level = segment.attempt, segment.level
        if attempt is None:
            continue
        told += traced.profiles(cluster, device, attempt, level, until_at)
        tables, first = _tables(level, device.model), noise_index(segment.seed, segment.first)
        busy = [_slice(tables[name], first, segment.last - segment.first) for name in _COLUMNS["kernels"]]
        for begin in range(segment.first, segment.last, traced.CELL_MINUTES):
            end = min(begin + traced.CELL_MINUTES, segment.last)
            sums = tuple(sum(column[begin - segment.first : end - segment.first]) for column in busy)
            span = (start_at + begin * MINUTE_SECONDS, start_at + end * MINUTE_SECONDS)
            told.append(traced.process_sample(cluster, device, attempt, level, span, sums))
    return told


def _slice(table: Values, first: int, count: int) -> Values:
    """Take entries from ``first`` on, round and round."""
    if len(table) == 1:
        return table * count
    whole, rest = divmod(first + count, NOISE_LENGTH)
    return (table * (whole + 1))[first : whole * NOISE_LENGTH + rest]


def _shortest(values: list[wire.Value]) -> wire.Column:
    """Say a column that has one value only once."""
    return values[0] if values.count(values[0]) == len(values) else values


_COLUMNS: Final = {
    "nvml": (
        *("driver_util_ratio", "process_count", "memory_used_bytes", "memory_used_bytes_max"),
        *("power_watts", "power_watts_max", "energy_joules"),
        *("temperature_celsius", "temperature_celsius_max", "sm_clock_hertz"),
    ),
    "gpm": (
        *("engine_active_ratio", "sm_active_ratio", "sm_occupancy_ratio"),
        *("tensor_active_ratio", "dram_active_ratio"),
    ),
    "kernels": ("gpu_bound_seconds", "copy_seconds", "gpu_busy_seconds"),
}
"""What each source tells, as on a real node. Kernel time is told for the jobs that carry the tracer."""


@lru_cache(maxsize=256)
def _tables(level: Level, model: GpuModel) -> Tables:
    """Give each column's values for every entry of the noise table (one entry where nothing varies)."""
    length = NOISE_LENGTH if level.spread else 1
    tables: Tables = {name: [] for names in _COLUMNS.values() for name in names}
    for index in range(length):
        for name, value in _row(level, model, index).items():
            tables[name].append(value)  # type: ignore[arg-type]  # a column is all int or all float by its name
    return tables


def _row(level: Level, model: GpuModel, index: int) -> dict[str, float]:
    mean = minute_mean(level, model, index)
    bound_seconds = (mean.gpu_bound_ratio or 0.0) * MINUTE_SECONDS
    copy_seconds = (mean.copy_ratio or 0.0) * MINUTE_SECONDS
    power_watts = round(mean.power_watts, 1)
    peak_watts = power_watts if mean.engine_active_ratio == 0 else round(mean.power_watts * PEAK_OVER_MEAN, 1)
    return {
        "driver_util_ratio": round(mean.driver_util_ratio, RATIO_DIGITS),
        "process_count": mean.process_count,
        "memory_used_bytes": float(mean.memory_used_bytes),
        "memory_used_bytes_max": float(mean.memory_used_bytes),
        "power_watts": power_watts,
        "power_watts_max": peak_watts,
        "energy_joules": round(mean.power_watts * MINUTE_SECONDS),
        "temperature_celsius": round(mean.temperature_celsius, 1),
        "temperature_celsius_max": round(mean.temperature_celsius + 1.0, 1),
        "sm_clock_hertz": mean.sm_clock_hertz,
        "engine_active_ratio": round(mean.engine_active_ratio, RATIO_DIGITS),
        "sm_active_ratio": round(mean.sm_active_ratio, RATIO_DIGITS),
        "sm_occupancy_ratio": round(mean.sm_occupancy_ratio, RATIO_DIGITS),
        "tensor_active_ratio": round(mean.tensor_active_ratio, RATIO_DIGITS),
        "dram_active_ratio": round(mean.dram_active_ratio, RATIO_DIGITS),
        "gpu_bound_seconds": round(bound_seconds, RATIO_DIGITS),
        "copy_seconds": round(copy_seconds, RATIO_DIGITS),
        # Copies of these jobs overlap with kernels by half.
        "gpu_busy_seconds": round(bound_seconds + copy_seconds / 2, RATIO_DIGITS),
    }
