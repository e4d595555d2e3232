"""Laws of the account of GPU time, against a second count that goes through every single second."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.analysis.worlds import T0, World, allocation, attempt, job, sample
from warehouse.contract.model import Device
from warehouse.contract.settings import Settings
from warehouse.contract.units import iso

START, LENGTH, CADENCE, PAUSE = 3540, 120, 5, 20
"""Two minutes across a full hour, one sample each five seconds, and pauses that last from twenty seconds on."""

SETTINGS = Settings({"waste.idle_stretch_seconds": float(PAUSE)})
DEVICES = ("GPU-0", "GPU-1")
PARTS = ("no_process", "with_process", "gaps")
few = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Case:
    """Allocations as (job, device, start, end) and samples as (at, device, owner, busy share, processes)."""

    allocations: list[tuple[int, str, int, int]]
    samples: dict[tuple[int, str], tuple[int | None, float | None, float | None]]

    def fill(self, world: World) -> World:
        """Put the case into a store, with both devices in its inventory."""
        jobs = sorted({number for number, *_ in self.allocations})
        records: list[Any] = [Device(name, "c", "n0", T0 + START, T0 + START + LENGTH) for name in DEVICES]
        records += [record for number in jobs for record in (job(number), attempt(number, START, START + LENGTH))]
        records += [allocation(number, device, start, end) for number, device, start, end in self.allocations]
        world.settings = SETTINGS
        return world.fill(
            records,
            [
                sample(at, device, owner, float(CADENCE), driver_util_ratio=busy, process_count=processes)
                for (at, device), (owner, busy, processes) in self.samples.items()
            ],
        )


spans = st.tuples(st.integers(0, LENGTH - 1), st.integers(1, LENGTH)).map(
    lambda pair: (START + pair[0], START + min(pair[0] + pair[1], LENGTH))
)
held = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(DEVICES), spans), min_size=1, max_size=5)
readings = st.tuples(
    st.sampled_from([1, 1, 1, 2, 3, None]),
    st.sampled_from([0.0, 0.0, 0.25, 1.0, None]),
    st.sampled_from([0.0, 1.0, 1.0, None]),
)
cases = st.builds(
    lambda rows, samples: Case(
        sorted({(number, device, *span) for number, device, span in rows}),
        {(START + CADENCE * at, device): reading for (at, device), reading in samples.items()},
    ),
    held,
    st.dictionaries(
        st.tuples(st.integers(0, LENGTH // CADENCE - 1), st.sampled_from(DEVICES)), readings, max_size=48, min_size=8
    ),
)


def count_seconds(case: Case, since: int, until: int) -> dict[int, dict[str, float | None]]:
    """Count second by second what became of each job's time in a window."""
    seen = _seen(case)
    counts: dict[int, dict[str, float]] = {number: defaultdict(float) for number, *_ in case.allocations}
    untold: set[int] = set()
    for device in DEVICES:
        kinds: dict[int, dict[int, str]] = defaultdict(dict)
        shares: dict[tuple[int, int], float] = {}
        for second in range(START, START + LENGTH):
            holders = [
                number for number, name, start, end in case.allocations if name == device and start <= second < end
            ]
            for number in holders:
                shares[number, second] = shares.get((number, second), 0.0) + 1.0 / len(holders)
                busy, processes = seen.get((second, device, number), (None, None))
                kinds[number][second] = _kind(busy, processes)
        for (number, second), share in shares.items():
            if not since <= second < until:
                continue
            busy, _ = seen.get((second, device, number), (None, None))
            counts[number]["allocated"] += share
            if busy is None:
                counts[number]["unknown"] += share
                continue
            counts[number]["used"] += share * busy
            counts[number]["held_idle"] += share * (1 - busy)
            kind = kinds[number][second]
            if kind == "with_process" and _length(kinds[number], second) < PAUSE:
                kind = "gaps"
            if kind == "untold":
                untold.add(number)
            counts[number][kind] += share * (1 - busy)
    return {number: _as_account(count, number in untold) for number, count in counts.items() if count["allocated"]}


def _as_account(count: dict[str, float], untold: bool) -> dict[str, float | None]:
    known = count["used"] + count["held_idle"] > 0
    account: dict[str, float | None] = {name: count[name] for name in ("allocated", "unknown")}
    account |= {name: count[name] if known else None for name in ("used", "held_idle")}
    return account | {name: count[name] if known and not untold else None for name in PARTS}


def _seen(case: Case) -> dict[tuple[int, str, int], tuple[float | None, float | None]]:
    """Give what is known of each second, by device and owner."""
    known: dict[tuple[int, str, int], tuple[float | None, float | None]] = {}
    by_owner: dict[tuple[str, int], list[int]] = defaultdict(list)
    for (at, device), (owner, _, _) in sorted(case.samples.items()):
        if owner is not None:
            by_owner[device, owner].append(at)
    for (device, owner), times in by_owner.items():
        for at, following in zip(times, [*times[1:], None], strict=True):
            near = following is not None and following - at <= 2.5 * CADENCE
            until = following if near and following is not None else at + CADENCE
            for second in range(at, until):
                known[second, device, owner] = case.samples[at, device][1:]
    return known


def _kind(busy: float | None, processes: float | None) -> str:
    if busy is None:
        return "unknown"
    if processes == 0:
        return "no_process"
    if busy > 0:
        return "gaps"
    return "untold" if processes is None else "with_process"


def _length(kinds: dict[int, str], second: int) -> int:
    first = last = second
    while kinds.get(first - 1) == kinds[second]:
        first -= 1
    while kinds.get(last + 1) == kinds[second]:
        last += 1
    return last - first + 1


def at(second: int) -> str:
    """Give an instant of the case as a parameter."""
    return str(iso(T0 + second))


def rows_by_job(document: dict[str, Any]) -> dict[int, dict[str, float | None]]:
    """Give the accounts of a document by job, without those of no length."""
    rows = {int(row["key"].split("/")[1].split("#")[0]): row["gpu_seconds"] for row in document["rows"]}
    return {number: row for number, row in rows.items() if row["allocated"]}


@pytest.mark.slow
@few
@given(case=cases)
def test_the_account_is_what_counting_every_second_gives(case: Case, world: World) -> None:
    document = case.fill(world).ask("waste", by="job", rung="driver_util")
    found = rows_by_job(document)
    expected = count_seconds(case, START, START + LENGTH)
    assert {number: {name: row[name] for name in expected[number]} for number, row in found.items()} == {
        number: pytest.approx(row, abs=1e-6, nan_ok=True) for number, row in expected.items()
    }


@pytest.mark.slow
@few
@given(case=cases, cut=st.integers(START + 1, START + LENGTH - 1))
def test_two_halves_of_a_window_add_up_to_the_whole(case: Case, cut: int, world: World) -> None:
    case.fill(world)
    edges = [START, cut, START + LENGTH]
    whole = world.ask("waste", by="job", rung="driver_util", since=at(edges[0]), until=at(edges[2]))
    halves = [
        world.ask("waste", by="job", rung="driver_util", since=at(since), until=at(until))
        for since, until in itertools.pairwise(edges)
    ]
    for name in ("allocated", "used", "held_idle", "unknown", "failed"):
        parts = [half["gpu_seconds"][name] or 0.0 for half in halves]
        assert sum(parts) == pytest.approx(whole["gpu_seconds"][name] or 0.0, abs=1e-6)
    expected = [count_seconds(case, since, until) for since, until in itertools.pairwise(edges)]
    for half, counted in zip(halves, expected, strict=True):
        found = rows_by_job(half)
        assert {number: {name: row[name] for name in counted[number]} for number, row in found.items()} == {
            number: pytest.approx(row, abs=1e-6) for number, row in counted.items()
        }


@pytest.mark.slow
@few
@given(case=cases)
def test_every_second_is_booked_once_and_none_is_invented(case: Case, world: World) -> None:
    document = case.fill(world).ask("waste", by="job", since=at(START), until=at(START + LENGTH))
    total = document["gpu_seconds"]
    assert total["capacity"] == pytest.approx(LENGTH * len(DEVICES))
    assert total["capacity"] == pytest.approx(
        total["allocated"] + total["unallocated"] + total["down"] + total["unreported"]
    )
    for amounts in (total, *(row["gpu_seconds"] for row in document["rows"])):
        assert 0 <= amounts["allocated"] <= LENGTH * len(DEVICES) + 1e-6
        used, held_idle = amounts["used"] or 0.0, amounts["held_idle"] or 0.0
        assert used + held_idle + amounts["unknown"] == pytest.approx(amounts["allocated"], abs=1e-6)
        assert min(used, held_idle, amounts["unknown"]) >= 0
        if amounts["gaps"] is not None:
            assert sum(amounts[name] for name in PARTS) == pytest.approx(held_idle, abs=1e-6)
    fleet = world.ask("fleet", since=at(START), until=at(START + LENGTH))
    for name in ("capacity", "allocated", "unallocated", "down", "unreported", "unknown"):
        parts = [point["gpu_seconds"][name] or 0.0 for point in fleet["series"]]
        assert sum(parts) == pytest.approx(total[name], abs=1e-6)
