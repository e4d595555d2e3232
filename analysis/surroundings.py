"""What is known of attempts beside the use of their devices: hosts, boards, events, ranks.

Everything is a mean over the time in which it was measured, with its source and the share of the attempt that this
covers. Amounts of several nodes add up; shares of time are means over node-seconds. The control group of a job speaks
for it where there is one, else the tree of its processes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from analysis.evidence import Happening, RankWork, Reading
from analysis.frames import Columns, Tables, fetch, none_if_nan, not_rolled, rolled_span, seconds, timestamp, united
from analysis.kernel_work import gather_works

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.holdings import Span
    from analysis.waves import Work

SHARES: Final = {
    "cpu_throttled_ratio": "cpu_throttled_seconds",
    "cpu_iowait_ratio": "cpu_iowait_seconds",
    "cpu_stall_ratio": "cpu_stall_seconds",
    "memory_stall_ratio": "memory_stall_seconds",
    "io_stall_ratio": "io_stall_seconds",
    "io_full_stall_ratio": "io_full_stall_seconds",
}
"""Shares of time, and the columns of ``host_sample`` behind them."""

RATES: Final = {
    "cpu_count": "cpu_seconds",
    "disk_read_bytes_per_second": "disk_read_bytes",
    "disk_written_bytes_per_second": "disk_written_bytes",
    "network_received_bytes_per_second": "network_received_bytes",
    "network_transmitted_bytes_per_second": "network_transmitted_bytes",
}
"""Amounts per second over all nodes of the attempt; of CPU seconds: cores in use."""

LEVELS: Final = ("cpu_limit_count", "memory_resident_bytes", "page_cache_bytes", "memory_limit_bytes")
"""What stood at the end of each cadence: the highest of each node, over all nodes."""

SLOWED: Final = ("thermal_slowed_ratio", "power_braked_ratio", "power_capped_ratio")
SLOWED_AT_LEAST: Final = 0.05
"""A cadence in which the clock was lowered for less than a twentieth of the time says nothing."""

_SCOPES: Final = ("group", "tree")
_COMMUNICATION: Final = ("nccl", "rccl", "msccl", "nvshmem")
"""Beginnings of names of communication libraries' kernels: they spin while they wait for other ranks."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """By attempt key: readings of hosts and boards, ranks and counted kernels.

    ``events`` stand by what they are about: ``attempt`` where one is named, else ``device``, else ``node``, and its
    name.
    """

    host: Mapping[str, Mapping[str, Reading]] = field(default_factory=dict)
    board: Mapping[str, Mapping[str, Reading]] = field(default_factory=dict)
    ranks: Mapping[str, tuple[RankWork, ...]] = field(default_factory=dict)
    kernels: Mapping[str, int] = field(default_factory=dict)
    works: Mapping[str, Work] = field(default_factory=dict)
    events: Mapping[tuple[str, str | None], Sequence[Happening]] = field(default_factory=dict)

    def events_of(
        self, attempt_key: str, devices: Sequence[str], nodes: Sequence[str], span: Span
    ) -> tuple[Happening, ...]:
        """Give the events of an attempt: its own, and those on its devices, or on its nodes as a whole, in its time."""
        there = [*(("device", name) for name in devices), *(("node", name) for name in nodes)]
        near = (event for place in there for event in self.events.get(place, ()))
        found = [event for event in near if span[0] <= event.happened_at <= span[1]]
        return tuple(
            sorted(
                {*self.events.get(("attempt", attempt_key), ()), *found}, key=lambda one: (one.happened_at, one.kind)
            )
        )


def gather_surroundings(tables: Tables, window: Span) -> Surroundings:
    """Gather what stands beside the devices' use within a window."""
    profiles = _profiles(tables, window)
    return Surroundings(
        host=_hosts(tables, window),
        board=_boards(tables, window),
        ranks={key: ranks for key, own in profiles.items() if (ranks := _ranks(own.hours))},
        kernels={key: own.kernels for key, own in profiles.items()},
        works=gather_works(tables, window) if profiles else {},
        events=_events(tables, window),
    )


def _inside(table: Any, column: str, window: Span) -> Any:
    return table.filter(table[column] >= timestamp(window[0]), table[column] < timestamp(window[1]))


def _hosts(tables: Tables, window: Span) -> dict[str, dict[str, Reading]]:
    own = _inside(tables.host_sample, "sampled_at", window)
    own = own.filter(own.attempt_key.notnull(), own.scope.isin(_SCOPES))
    sums: dict[str, Any] = {"watched": own.cadence_seconds.sum()}
    for name, column in (SHARES | RATES).items():
        sums[name] = own[column].sum().cast("float64")
        sums[f"{name}_known"] = own.cadence_seconds.sum(where=own[column].notnull())
    by_node = own.group_by("attempt_key", "scope", "source", "node").aggregate(
        **sums, **{name: own[name].max() for name in LEVELS}
    )
    rows = fetch(by_node.order_by("attempt_key", "scope", "source", "node"))
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    keys, scopes, sources = (rows.values(name) for name in ("attempt_key", "scope", "source"))
    for row, group in enumerate(zip(keys, scopes, sources, strict=True)):
        groups[group].append(row)
    found: dict[str, dict[str, Reading]] = {}
    for (key, scope, source), own_rows in sorted(groups.items(), key=lambda item: _SCOPES.index(item[0][1])):
        known = found.setdefault(key, {})
        for name, reading in _host_readings(rows, own_rows, f"{source}:{scope}").items():
            known.setdefault(name, reading)
    return found


def _host_readings(rows: Columns, own: Sequence[int], source: str) -> dict[str, Reading]:
    """Give the readings of one attempt by one source; coverage is in node-seconds, settled by ``gather``."""
    found: dict[str, Reading] = {}
    nodes = len(own)
    for name in (*SHARES, *RATES):
        amount = [none_if_nan(rows.numbers(name)[row]) for row in own]
        known = [none_if_nan(rows.numbers(f"{name}_known")[row]) or 0.0 for row in own]
        pairs = [(value, time) for value, time in zip(amount, known, strict=True) if value is not None and time > 0]
        if not pairs:
            continue
        whole = sum(time for _, time in pairs)
        if name in SHARES:
            mean = min(sum(value for value, _ in pairs) / whole, 1.0)
        else:
            mean = sum(value / time for value, time in pairs)
        found[name] = Reading(mean, source, whole / nodes)
    watched = sum(none_if_nan(rows.numbers("watched")[row]) or 0.0 for row in own)
    for name in LEVELS:
        levels = [value for row in own if (value := none_if_nan(rows.numbers(name)[row])) is not None]
        if levels:
            found[name] = Reading(sum(levels), source, watched / nodes)
    return found


def _boards(tables: Tables, window: Span) -> dict[str, dict[str, Reading]]:
    found: dict[str, dict[str, Reading]] = defaultdict(dict)
    power = _power(tables, window)
    joules, known = power.numbers("joules"), power.numbers("known")
    for row, key in enumerate(power.values("attempt_key")):
        if known[row] > 0:
            found[key]["power_watts"] = Reading(float(joules[row] / known[row]), "device samples", float(known[row]))
    for key, slowed in _slowed(tables, window).items():
        found[key] |= slowed
    return found


def _power(tables: Tables, window: Span) -> Columns:
    """Give energy and known time by attempt, of roll-ups where they are to be read; whole hours there."""
    samples = _inside(not_rolled(tables), "sampled_at", window)
    samples = samples.filter(samples.attempt_key.notnull(), samples.power_watts.notnull())
    cadence = samples.cadence_seconds.cast("float64")
    parts = samples.group_by("attempt_key").aggregate(
        joules=(samples.power_watts.cast("float64") * cadence).sum(), known=cadence.sum()
    )
    span = rolled_span(tables)
    if span is not None:
        both = (max(span[0], window[0]), min(span[1], window[1]))
        hours = _inside(tables.rollup_1h, "start_at", both)
        hours = hours.filter(hours.attempt_key.notnull())
        rolled = hours.group_by("attempt_key").aggregate(
            joules=hours.power_joules.sum(), known=hours.power_known_seconds.sum()
        )
        parts = united(parts, rolled)
    return fetch(parts.group_by("attempt_key").aggregate(joules=parts.joules.sum(), known=parts.known.sum()))


def _slowed(tables: Tables, window: Span) -> dict[str, dict[str, Reading]]:
    """Give the attempts whose clocks were lowered: the share of time by reason, and the clocks then and otherwise.

    Samples alone tell it. Readings stand in device-seconds: ``gather`` makes shares of them.
    """
    own = _inside(tables.device_sample, "sampled_at", window)
    own = own.filter(own.attempt_key.notnull())
    reasons = [name for name in SLOWED if name in own.columns]
    if not reasons:
        return {}
    slow = own.filter(_any(own, reasons))
    keys = fetch(slow.select("attempt_key").distinct()).values("attempt_key")
    if not keys:
        return {}
    own = own.filter(own.attempt_key.isin(list(keys)))
    cadence, busy = own.cadence_seconds.cast("float64"), own.driver_util_ratio.fill_null(0.0) > SLOWED_AT_LEAST
    is_slow = _any(own, reasons)
    sums: dict[str, Any] = {"known": cadence.sum(where=own[reasons[0]].notnull())}
    sums |= {name: (own[name].cast("float64") * cadence).sum() for name in reasons}
    clock = own.sm_clock_hertz.cast("float64")
    for word, which in (("slowed", is_slow), ("free", ~is_slow & busy)):
        has = which & clock.notnull()
        sums[f"{word}_known"] = cadence.sum(where=has)
        sums[f"{word}_hertz"] = (clock * cadence).sum(where=has)
    rows = fetch(own.group_by("attempt_key").aggregate(**sums).order_by("attempt_key"))
    found: dict[str, dict[str, Reading]] = {}
    for row, key in enumerate(rows.values("attempt_key")):
        number = {name: none_if_nan(rows.numbers(name)[row]) or 0.0 for name in sums}
        known = number["known"]
        readings = {name: Reading(number[name] / known, "device samples", known) for name in reasons if known > 0}
        for word in ("slowed", "free"):
            if number[f"{word}_known"] > 0:
                mean = number[f"{word}_hertz"] / number[f"{word}_known"]
                readings[f"{word}_clock_hertz"] = Reading(mean, "device samples", number[f"{word}_known"])
        found[key] = readings
    return found


def _any(table: Any, names: Sequence[str]) -> Any:
    found = table[names[0]].fill_null(0.0) > SLOWED_AT_LEAST
    for name in names[1:]:
        found |= table[name].fill_null(0.0) > SLOWED_AT_LEAST
    return found


@dataclass
class _Profile:
    kernels: int = 0
    hours: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))


def _profiles(tables: Tables, window: Span) -> dict[str, _Profile]:
    """Give by attempt how many kernels its profiles hold, and by profile and hour the seconds of computing."""
    own = _inside(tables.kernel_profile, "hour_at", window)
    name = own.kernel_name.lower()
    computes = ~name.contains(_COMMUNICATION[0])
    for word in _COMMUNICATION[1:]:
        computes &= ~name.contains(word)
    by_hour = own.group_by("attempt_key", "profile", hour=seconds(own.hour_at)).aggregate(
        kernels=own.kernel_name.nunique(), compute=own.total_seconds.sum(where=computes)
    )
    rows = fetch(by_hour.order_by("attempt_key", "profile", "hour"))
    found: dict[str, _Profile] = defaultdict(_Profile)
    hour, kernels, compute = (rows.numbers(column) for column in ("hour", "kernels", "compute"))
    for row, (key, profile) in enumerate(zip(rows.values("attempt_key"), rows.values("profile"), strict=True)):
        found[key].kernels = max(found[key].kernels, int(kernels[row]))
        found[key].hours[profile][float(hour[row])] = none_if_nan(compute[row]) or 0.0
    return found


def _ranks(hours: Mapping[str, Mapping[float, float]]) -> tuple[RankWork, ...]:
    """Give the ranks over the hours that all of them know; the first and the last are not whole and are left out."""
    if len(hours) < 2:  # noqa: PLR2004 - one rank waits for nobody
        return ()
    common = sorted(set.intersection(*(set(own) for own in hours.values())))
    whole = common[1:-1] or common
    return tuple(RankWork(name, tuple(own[at] for at in whole)) for name, own in sorted(hours.items())) if whole else ()


def _events(tables: Tables, window: Span) -> dict[tuple[str, str | None], list[Happening]]:
    event = _inside(tables.event, "happened_at", window)
    words = ("kind", "node", "device_uuid", "attempt_key", "detail")
    rows = fetch(event.select(*words, at=seconds(event.happened_at)).order_by("at", "node", "kind", "device_uuid"))
    kinds, nodes, devices, owners, details = (rows.values(word) for word in words)
    found: dict[tuple[str, str | None], list[Happening]] = defaultdict(list)
    for row, at in enumerate(rows.numbers("at")):
        about = ("attempt", owners[row]) if owners[row] else ("device", devices[row])
        place = about if about[1] else ("node", nodes[row])
        found[place].append(Happening(kinds[row], float(at), nodes[row], devices[row], details[row]))
    return found
