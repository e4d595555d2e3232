"""Roll-ups answer as samples do, to 1e-6, and go on answering when samples are gone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis import pipeline, reading
from analysis.benchmarks._fleet import Fleet, write_fleet
from analysis.benchmarks._same import count_values, differences
from analysis.benchmarks.engines import ask_all
from tests.analysis.worlds import T0, World, allocation, attempt, job, sample
from warehouse import lake, rollups, summaries
from warehouse.contract.model import Device
from warehouse.contract.settings import Settings
from warehouse.contract.units import SECONDS_PER_HOUR, iso
from warehouse.store import Store, open_store

FOREVER = 4e9
few = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ASKED: list[tuple[str, dict[str, str]]] = [
    ("waste", {"by": "job"}),
    ("waste", {"since": iso(T0 + 600.5) or "", "until": iso(T0 + 4000.0) or ""}),
    ("fleet", {}),
    ("recommend", {}),
    ("weekly", {"week": "2026-W45", "zone": "Asia/Kolkata"}),
    ("job", {"id": "1"}),
]


def gone(store: Store, what: str = "samples") -> None:
    """Take samples away as retention does; also minutes, if asked for."""
    with store.transaction() as transaction:
        transaction.execute("UPDATE rolled_hour SET samples_gone = true")
        transaction.execute("DELETE FROM device_sample")
        transaction.execute("DELETE FROM sealed_day WHERE table_name = 'device_sample'")
        if what == "minutes":
            transaction.execute("UPDATE rolled_hour SET minutes_gone = true")
            transaction.execute("DELETE FROM rollup_1m")


def answers(store: Store, chosen: Settings | None = None, asked: list[tuple[str, dict[str, str]]] = ASKED) -> list[Any]:
    """Answer all questions."""
    found, _ = ask_all(store, asked, pipeline.ANSWERS, chosen or Settings())
    return list(found)


def places(one: object, other: object, *but: str) -> list[str]:
    """Give where two answers differ."""
    return [place for place in differences(one, other) if not any(word in place for word in but)]


runs = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.sampled_from([0.0, 0.0, 0.3, 1.0, None]),
        st.sampled_from([0.0, 1.0, 1.0, None]),
        st.sampled_from([1, 1, 1, 2, None]),
    ),
    min_size=3,
    max_size=14,
)


@few
@given(runs, st.sampled_from([10.0, 30.0]), st.integers(0, 5000))
def test_answers_from_roll_ups_are_those_from_samples(
    world: World, pieces: list[Any], cadence: float, shift: int
) -> None:
    samples, at = [], float(shift)
    for count, busy, processes, owner in pieces:
        for _ in range(count):
            samples.append(
                sample(
                    at, "GPU-0", owner, cadence, driver_util_ratio=busy, process_count=processes, sm_active_ratio=0.25
                )
            )
            at += cadence
        at += cadence * (count % 3)
    records: list[Any] = [Device("GPU-0", "c", "n0", T0, T0 + 30_000)]
    for number, (start, end) in enumerate([(shift - 7.0, shift + 2345.5), (shift + 1500.0, shift + 9000.0)], start=1):
        records += [job(number), attempt(number, start, end), allocation(number, "GPU-0", start, end)]
    world.fill(records, samples)
    expected = answers(world.store, asked=ASKED[:2])
    rollups.roll(world.store, Settings(), FOREVER)
    assert places(expected, answers(world.store, asked=ASKED[:2])) == []
    gone(world.store)
    # Allocations end between samples: where several shared a minute, its parts cannot be told apart any more.
    assert [one["gpu_seconds"]["allocated"] for one in answers(world.store, asked=ASKED[:2])] == [
        one["gpu_seconds"]["allocated"] for one in expected
    ]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[Any]]]:
    """Give a store of a small fleet that is summed up, and the answers that it gave before."""
    store = open_store(tmp_path_factory.mktemp("fleet"), create=True)
    write_fleet(store, Fleet(gpus=3, seconds=30 * SECONDS_PER_HOUR, cadence_seconds=60.0))
    expected = answers(store)
    (first, *_) = lake.days_to_seal(store, date(2100, 1, 1))
    lake.seal(store, store.data, *first)
    rollups.roll(store, Settings(), FOREVER)
    yield store, expected
    store.close()


def test_a_fleet_answers_the_same_from_roll_ups(fleet: tuple[Store, list[Any]]) -> None:
    store, expected = fleet
    assert places(expected, answers(store)) == []
    assert sum(map(count_values, expected)) > 1000


def test_many_samples_are_summed_up_in_parts_to_the_same(
    fleet: tuple[Store, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, expected = fleet
    monkeypatch.setattr(reading, "MOST_SAMPLES", 1000)
    kept = store.read("SELECT * FROM rolled_hour")
    with store.transaction() as transaction:
        transaction.execute("DELETE FROM rolled_hour")
    found = answers(store, asked=ASKED[:1])
    with store.transaction() as transaction:
        transaction.execute_with(kept, "INSERT INTO rolled_hour FROM incoming")
    assert places(expected[0], found[0]) == []


def test_when_samples_are_gone_old_weeks_come_out_the_same_and_say_from_what(fleet: tuple[Store, list[Any]]) -> None:
    store, expected = fleet
    assert [found["resolution"] for found in expected[:3]] == ["samples"] * 3
    gone(store)
    found = answers(store)
    assert {answer["resolution"] for answer in found if "resolution" in answer} == {"minutes"}
    assert places(expected, found, ".resolution", ".timeline.points") == []
    shown = found[-1]["timeline"]["points"]
    was = expected[-1]["timeline"]["points"]
    assert shown[1]["driver_util_ratio"] == pytest.approx(was[1]["driver_util_ratio"], abs=0.01)
    gone(store, "minutes")
    found = answers(store, asked=ASKED[:1])
    assert found[0]["resolution"] == "hours"
    assert places(expected[0], found[0], ".resolution") == []


def test_when_roll_ups_are_gone_too_summaries_of_attempts_answer(world: World) -> None:
    records = [job(), attempt(end=7200.0), allocation(end=7200.0), job(2), attempt(2, 86400.0, 90000.0)]
    at = [60.0 * step for step in range(120)] + [86400.0 + 60.0 * step for step in range(60)]
    told: dict[str, Any] = {"driver_util_ratio": 0.25, "process_count": 1.0}
    world.fill(records, [sample(moment, owner=1 if moment < 7200 else 2, **told) for moment in at])
    asked: list[tuple[str, dict[str, str]]] = [("waste", {"until": iso(T0 + 7200.0) or ""})]
    (expected,) = answers(world.store, asked=asked)
    rollups.roll(world.store, Settings(), FOREVER)
    summaries.summarise(world.store)
    (same,) = answers(world.store, asked=asked)
    gone(world.store)
    with world.store.transaction() as transaction:
        for table, instant in (("rolled_hour", "hour_at"), ("rollup_1h", "bucket_at"), ("rollup_1m", "bucket_at")):
            transaction.execute(f"DELETE FROM {table} WHERE {instant} < make_timestamp(?)", [int((T0 + 80000) * 1e6)])
    (found,) = answers(world.store, asked=asked)
    assert (expected["resolution"], found["resolution"]) == ("samples", "attempts")
    assert places(expected, same) == []
    for name in ("allocated", "used", "held_idle", "unknown"):
        assert found["gpu_seconds"][name] == pytest.approx(expected["gpu_seconds"][name], rel=1e-9), name
    assert (found["gpu_seconds"]["gaps"], expected["gpu_seconds"]["gaps"]) == (None, 5400.0)


def test_shares_of_a_card_are_told_by_minutes_when_samples_are_gone(world: World) -> None:
    records = [job(), attempt(), allocation(), job(2), attempt(2), allocation(2)]
    told = [
        sample(60.0 * step, owner=owner, driver_util_ratio=0.5, process_count=1.0, share_ratio=share)
        for step in range(60)
        for owner, share in ((1, 0.75), (2, 0.25))
    ]
    world.fill(records, told)
    (expected,) = answers(world.store, asked=ASKED[:1])
    assert {row["key"]: row["gpu_seconds"]["allocated"] for row in expected["rows"]} == {"c/1#0": 2700, "c/2#0": 900}
    rollups.roll(world.store, Settings(), FOREVER)
    gone(world.store)
    (found,) = answers(world.store, asked=ASKED[:1])
    assert places(expected, found, ".resolution") == []


def test_u01_sharers_have_their_part_of_the_power_with_samples_without_and_in_their_summaries(world: World) -> None:
    records = [job(), attempt(), allocation(), job(2), attempt(2), allocation(2)]
    told = [
        sample(
            60.0 * step, owner=owner, driver_util_ratio=0.71, power_watts=300.0, energy_joules=18e3, share_ratio=share
        )
        for step in range(60)
        for owner, share in ((1, 0.75), (2, 0.25))
    ]
    world.fill(records, told)

    def watts() -> list[set[float]]:
        shown = [world.ask("job", id=key)["timeline"]["points"] for key in ("c/1#0", "c/2#0")]
        return [{point["power_watts"] for point in points} for points in shown]

    assert watts() == [{225.0}, {75.0}]
    rollups.roll(world.store, Settings(), FOREVER)
    summaries.summarise(world.store)
    found = world.store.read("SELECT power_watts, energy_joules FROM attempt_summary ORDER BY attempt_key").to_pylist()
    assert [tuple(row.values()) for row in found] == [(225.0, 0.75 * 60 * 18e3), (75.0, 0.25 * 60 * 18e3)]
    gone(world.store)
    assert watts() == [{225.0}, {75.0}]
