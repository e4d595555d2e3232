"""Roll-ups: what is summed up when, and that nothing is counted twice or lost whatever breaks when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from warehouse import lake, rollups
from warehouse.contract import wire
from warehouse.contract.settings import Settings
from warehouse.contract.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from warehouse.due import rolled_hours
from warehouse.keeper import keep
from warehouse.store import Store, open_store

NEVER_MIND = 10 * SECONDS_PER_DAY
FIRST = date(1970, 1, 1)
OWNERS = ("c/1#0:1", "c/2#0:1", None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = open_store(tmp_path / "data", create=True)
    yield opened
    opened.close()


def add(store: Store, times: Sequence[float], busy: Sequence[float | None], **more: Any) -> None:
    """Write samples of one device, ten seconds each."""
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "attempt_key": "c/1#0:1",
        "sampled_at": list(times),
        "driver_util_ratio": list(busy),
        "process_count": 1.0,
        **more,
    }
    with store.transaction() as transaction:
        transaction.write({"device_sample": wire.Table(len(times), columns)})


def roll(store: Store, **settings: Any) -> int:
    """Sum up all that is due."""
    return rollups.roll(store, Settings(settings), NEVER_MIND)


def rows(store: Store, table: str = "rollup_1h") -> list[dict[str, Any]]:
    """Give the rows of a roll-up, hot and sealed, in order of time."""
    with store.snapshot() as tables:
        found = getattr(tables, table).order_by("start_at", "activity_code").to_pyarrow().to_pylist()
    return list(found)


def hours(store: Store) -> list[float]:
    """Give the hours that are read from roll-ups."""
    with store.cursor() as cursor:
        return [one.hour_at / SECONDS_PER_HOUR for one in rolled_hours(cursor)]


def test_a_busy_hour_is_one_row_beside_its_first_and_last_sample(store: Store) -> None:
    add(store, [10.0 * at for at in range(360)], [0.25] * 180 + [0.75] * 180, power_watts=[100.0] * 359 + [300.0])
    assert roll(store) == 1
    first, inner, last = rows(store)
    assert (first["sample_count"], inner["sample_count"], last["sample_count"]) == (1, 358, 1)
    assert inner["covered_seconds"] == 3580.0
    assert inner["driver_util_seconds"] == pytest.approx(10 * (179 * 0.25 + 179 * 0.75))
    assert (inner["driver_util_ratio_min"], inner["driver_util_ratio_max"]) == (0.25, 0.75)
    assert (inner["driver_util_03_seconds"], inner["driver_util_08_seconds"]) == (1790.0, 1790.0)
    assert (inner["power_joules"], last["power_joules"], last["power_watts_max"]) == (358_000.0, 3000.0, 300.0)


def test_what_nobody_measured_is_absent_and_not_zero(store: Store) -> None:
    add(store, [0.0, 10.0], [None, None])
    roll(store)
    for row in rows(store):
        assert row["driver_util_seconds"] is None
        assert (row["driver_util_known_seconds"], row["covered_seconds"]) == (0.0, 10.0)
        assert row["gpu_bound_seconds"] is None


def test_u01_power_and_energy_of_a_shared_card_are_split_and_add_up_to_the_card(store: Store) -> None:
    # Shares change when power does: 100 W are the first owner's, 300 W are split evenly, 200 W are nobody's.
    watts = [100.0] * 180 + [300.0] * 180
    for owner, shares in (("c/1#0:1", [1.0, 0.5]), ("c/2#0:1", [0.0, 0.5])):
        told = [shares[0]] * 180 + [shares[1]] * 180
        times = [10.0 * at for at in range(360)]
        joules = [10.0 * power for power in watts]
        add(store, times, [0.5] * 360, attempt_key=owner, share_ratio=told, power_watts=watts, energy_joules=joules)
    add(store, [3600.0, 3610.0], [0.0, 0.0], attempt_key=None, power_watts=[200.0, 200.0])
    assert roll(store) == 2
    for table in ("rollup_1m", "rollup_1h"):
        found = {owner: [row for row in rows(store, table) if row["attempt_key"] == owner] for owner in OWNERS}
        for column in ("power_joules", "energy_joules"):
            sums = [sum(row[column] or 0.0 for row in found[owner]) for owner in OWNERS]
            assert sums[:2] == [1800 * 100.0 + 1800 * 150.0, 1800 * 150.0], (table, column)
        assert sum(row["power_joules"] for row in found[None]) == 20 * 200.0
        assert max(row["power_watts_max"] for row in found["c/2#0:1"]) == 300.0


def test_a_pause_that_lasts_keeps_its_place_and_shorter_ones_are_summed_up(store: Store) -> None:
    busy = [0.5, 0.5, 0.0, 0.0, 0.5, 0.5, *[0.0] * 6, 0.5, 0.5]
    add(store, [10.0 * at for at in range(len(busy))], busy)
    roll(store)
    found = [(row["start_at"].second + 60 * row["start_at"].minute, row["covered_seconds"]) for row in rows(store)]
    assert sorted(found) == [(0, 10.0), (10, 40.0), (20, 20.0), (60, 60.0), (130, 10.0)]
    assert [row["covered_seconds"] for row in rows(store) if row["lasting"]] == [60.0]


def test_time_without_samples_is_in_no_row(store: Store) -> None:
    add(store, [0.0, 10.0, 100.0, 110.0], [0.5] * 4)
    roll(store)
    assert sum(row["covered_seconds"] for row in rows(store)) == 40.0
    assert {(row["seen_start_at"].second, row["seen_end_at"].second) for row in rows(store)} == {(0, 20), (40, 0)}


def test_a_sample_across_the_edge_of_an_hour_is_in_both(store: Store) -> None:
    add(store, [3595.0], [0.5])
    assert roll(store) == 1
    assert [row["covered_seconds"] for row in rows(store)] == [5.0]
    add(store, [3605.0], [1.0])
    assert roll(store) == 2
    assert sum(row["covered_seconds"] for row in rows(store)) == 20.0
    assert sum(row["driver_util_seconds"] for row in rows(store)) == 15.0


def test_minutes_and_hours_sum_up_the_same(store: Store) -> None:
    add(store, [7.0 + 10.0 * at for at in range(900)], [(at % 11) / 10 if at % 7 else 0.0 for at in range(900)])
    roll(store)
    names = ("covered_seconds", "driver_util_seconds", "driver_util_known_seconds", "driver_util_00_seconds")
    for name in names:
        by_minute, by_hour = (sum(row[name] for row in rows(store, table)) for table in ("rollup_1m", "rollup_1h"))
        assert by_minute == pytest.approx(by_hour, rel=1e-12), name


def test_only_what_changed_is_summed_up_again_with_the_hours_beside_it(store: Store) -> None:
    add(store, [SECONDS_PER_HOUR * hour for hour in range(10)], [0.5] * 10)
    assert roll(store) == 10
    assert roll(store) == 0
    add(store, [SECONDS_PER_HOUR * 5 + 10.0], [0.5])
    assert hours(store) == [0, 1, 2, 3, 7, 8, 9]
    assert roll(store) == 3
    assert hours(store) == list(range(10))
    assert sum(row["sample_count"] for row in rows(store)) == 11


def test_an_hour_is_summed_up_when_it_is_over_and_late_batches_had_their_time(store: Store) -> None:
    add(store, [0.0], [0.5])
    assert rollups.roll(store, Settings(), 3600.0 + 299.0) == 0
    assert rollups.roll(store, Settings(), 3600.0 + 300.0) == 1


def test_other_settings_make_all_hours_due(store: Store) -> None:
    add(store, [0.0, 10.0], [0.05, 0.5])
    roll(store)
    assert roll(store, **{"waste.active_threshold_ratio": 0.1}) == 1
    assert sorted(row["activity_code"] // 9 % 3 for row in rows(store)) == [0, 1]


def test_samples_that_arrive_while_an_hour_is_summed_up_make_it_due_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, [0.0], [0.5])
    chunk = rollups._roll_chunk

    def arrive_meanwhile(*given: Any) -> Any:
        found = chunk(*given)
        add(store, [100.0], [0.5])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(rollups, "_roll_chunk", arrive_meanwhile)
        roll(store)
    assert hours(store) == []
    assert roll(store) == 1
    assert (hours(store), sum(row["sample_count"] for row in rows(store))) == ([0.0], 2)


def test_roll_ups_are_sealed_with_their_day_and_late_samples_write_it_anew(store: Store) -> None:
    add(store, [0.0, 10.0, SECONDS_PER_HOUR], [0.5] * 3)
    keep(store, store.data, Settings(), 5 * SECONDS_PER_DAY)
    sealed = {day.table: day.row_count for day in lake.sealed_days(store)}
    assert sealed == {"device_sample": 3, "rollup_1m": 3, "rollup_1h": 3, "rollup_source": 2}
    add(store, [20.0], [1.0])
    keep(store, store.data, Settings(), 5 * SECONDS_PER_DAY)
    assert {day.table: day.generation for day in lake.sealed_days(store)} == dict.fromkeys(sealed, 2)
    assert sum(row["driver_util_seconds"] for row in rows(store)) == 25.0
    assert sum(row["sample_count"] for row in rows(store, "rollup_1m")) == 4


def test_days_that_were_sealed_before_there_were_roll_ups_are_summed_up(store: Store) -> None:
    add(store, [0.0, SECONDS_PER_DAY], [0.5, 0.5])
    with store.transaction() as transaction:
        transaction.execute("DELETE FROM rollup_due")
    lake.seal(store, store.data, "device_sample", FIRST)
    assert roll(store) == 1
    assert hours(store) == [0.0]


def test_several_sources_of_one_instant_count_once(store: Store) -> None:
    for source, name in (("nvml", "driver_util_ratio"), ("gpm", "engine_active_ratio")):
        add(store, [0.0, 10.0], [None, None], source=source, **{name: [0.5, 0.5]})
    roll(store)
    assert sum(row["sample_count"] for row in rows(store)) == 2
    assert sum(row["driver_util_seconds"] for row in rows(store)) == 10.0
    found = {row["source"]: (row["driver_util_count"], row["engine_active_count"]) for row in sources(store)}
    assert found == {"nvml": (2, 0), "gpm": (0, 2)}


def sources(store: Store) -> list[dict[str, Any]]:
    """Give what is known of sources."""
    with store.snapshot() as tables:
        return list(tables.rollup_source.to_pyarrow().to_pylist())
