"""What goes when, what stays, and that a crash between any two steps counts nothing twice and loses nothing."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.test_rollups import add
from warehouse import backup, comeback, lake, purge
from warehouse.contract import model, wire
from warehouse.contract.settings import Settings
from warehouse.contract.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from warehouse.due import rolled_hours
from warehouse.keeper import keep
from warehouse.purge import Whom
from warehouse.store import Store, open_store

NOW = 20 * SECONDS_PER_DAY
RULES = Settings(
    {"lake.keep_days": 17, "lake.keep_1m_days": 18, "lake.keep_1h_days": 19, "lake.keep_replaced_seconds": 0.0}
)
DAYS = 5
FOREVER = Settings({"lake.keep_days": 0, "lake.keep_1m_days": 0})


def records() -> list[model.Record]:
    """Give a job that ran for the first two hours, and its allocation."""
    return [
        model.Job("c/1#0", "c", "1", "s", user="alice", submit_at=0.0),
        model.Attempt("c/1#0:1", "c/1#0", model.AttemptState.COMPLETED, "COMPLETED", 0.0, 7200.0, "s"),
        model.Allocation("c/1#0:1:0", "c/1#0:1", 1.0, 0.0, 7200.0, "s", device_uuid="GPU-1", node="n"),
    ]


def fill(data: Path) -> Store:
    """Make a store with samples in the first two hours of five days."""
    store = open_store(data, create=True)
    with store.transaction() as transaction:
        transaction.write(wire.from_records(records()))
    for day in range(DAYS):
        times = [day * SECONDS_PER_DAY + 600.0 * at for at in range(12)]
        add(store, times, [0.5] * 12, cadence_seconds=600.0)
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give a filled store."""
    opened = fill(tmp_path / "data")
    yield opened
    opened.close()


def busy_seconds(store: Store) -> float:
    """Give what a reader sees of the fleet: by hour from the roll-up where it stands, else from samples."""
    with store.snapshot() as tables, store.cursor() as cursor:
        rolled = {one.hour_at for one in rolled_hours(cursor)}
        rows = tables.rollup_1h.to_pyarrow().to_pylist()
        samples = tables.device_sample.to_pyarrow().to_pylist()
    told = sum(row["driver_util_seconds"] for row in rows if hour(row["bucket_at"]) in rolled)
    fresh = (one for one in samples if hour(one["sampled_at"]) not in rolled)
    return float(told + sum(one["driver_util_ratio"] * one["cadence_seconds"] for one in fresh))


def hour(instant: Any) -> float:
    """Give the hour of an instant."""
    return float(round((instant - instant.__class__(1970, 1, 1)).total_seconds() // SECONDS_PER_HOUR) * 3600)


def kept(store: Store) -> dict[str, list[int]]:
    """Give by table the days of January 1970 that are sealed."""
    found: dict[str, list[int]] = {}
    for day in lake.sealed_days(store):
        found.setdefault(day.table, []).append(day.date.day)
    return found


def round_of(store: Store, rules: Settings = RULES) -> None:
    """Keep house once."""
    keep(store, store.data, rules, NOW)


def test_each_resolution_goes_after_its_own_time(store: Store) -> None:
    round_of(store)
    assert kept(store) == {
        "device_sample": [4, 5],
        "rollup_1m": [3, 4, 5],
        "rollup_1h": [2, 3, 4, 5],
        "rollup_source": [2, 3, 4, 5],
    }
    assert busy_seconds(store) == 4 * 3600.0
    assert backup.verify(store)["ok"]


def test_by_default_samples_go_after_a_quarter_and_the_rest_of_a_year_and_more_stays(store: Store) -> None:
    keep(store, store.data, Settings(), 200 * SECONDS_PER_DAY)
    assert {table: len(days) for table, days in kept(store).items()} == {
        "rollup_1m": DAYS,
        "rollup_1h": DAYS,
        "rollup_source": DAYS,
    }


def test_samples_of_a_day_that_is_not_summed_up_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("warehouse.rollups.roll", lambda *_given: 0)
        round_of(store)
    assert kept(store) == {"device_sample": [1, 2, 3, 4, 5]}


def test_samples_that_come_after_their_day_has_gone_change_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    round_of(store)
    add(store, [SECONDS_PER_DAY + 10.0], [1.0])
    assert busy_seconds(store) == 4 * 3600.0
    with caplog.at_level(logging.WARNING):
        round_of(store)
    assert "1 samples came after the samples of their hour had gone" in caplog.text
    assert busy_seconds(store) == 4 * 3600.0
    assert store.read("SELECT count(*) AS n FROM device_sample").to_pylist() == [{"n": 0}]


class Crash(BaseException):
    """The process is gone."""


STEPS = [
    "warehouse.rollups._roll_chunk",
    "warehouse.rollups._take_note",
    "warehouse.summaries._write",
    "warehouse.lake._write_part",
    "warehouse.lake._measured",
    "warehouse.lake.make_durable",
    "warehouse.lake.drop_day",
    "warehouse.retention._note",
    "warehouse.retention._said",
    "warehouse.lake.publish",
    "warehouse.lake.replace_durably",
    "warehouse.lake.tidy",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_counts_nothing_twice_and_the_next_round_ends_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = fill(tmp_path)
    for turn in (1, 3):
        calls = 0

        module, _, name = step.rpartition(".")
        works = getattr(importlib.import_module(module), name)

        def crash(*given: Any, works: Any = works, turn: int = turn, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == turn:
                raise Crash
            return works(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(step, crash)
            try:
                round_of(store, FOREVER if turn == 1 else RULES)
            except Crash:
                store.close()
                store = open_store(tmp_path)
        assert busy_seconds(store) in {DAYS * 3600.0, 4 * 3600.0}
    round_of(store)
    assert busy_seconds(store) == 4 * 3600.0
    assert kept(store)["device_sample"] == [4, 5]
    assert backup.verify(store)["ok"]
    store.close()


def summary(store: Store) -> dict[str, Any]:
    """Give the one summary made of roll-ups."""
    (row,) = store.read("SELECT * FROM attempt_summary").to_pylist()
    return dict(row)


def test_an_attempt_that_ended_is_summed_up_and_late_samples_correct_it(store: Store) -> None:
    round_of(store, FOREVER)
    found = summary(store)
    assert (found["source"], found["coverage_ratio"], found["driver_util_ratio"]) == ("samples", 1.0, 0.5)
    assert (found["gpu_bound_ratio"], found["coverage_assumed"]) == (None, False)
    add(store, [0.0], [1.0], cadence_seconds=600.0, source="dcgm")
    round_of(store, FOREVER)
    assert summary(store)["driver_util_ratio"] == pytest.approx(0.5 + 0.5 / 12)


def test_an_end_that_becomes_known_later_corrects_the_summary(store: Store) -> None:
    round_of(store, FOREVER)
    with store.transaction() as transaction:
        transaction.write(
            wire.from_records(
                [model.Allocation("c/1#0:1:0", "c/1#0:1", 1.0, 0.0, 14400.0, "s", device_uuid="GPU-1", node="n")]
            )
        )
    round_of(store, FOREVER)
    assert summary(store)["coverage_ratio"] == 0.5


def test_a_summary_outlives_everything_that_it_was_made_of(store: Store) -> None:
    round_of(store)
    assert date(1970, 1, 1).day not in kept(store)["rollup_1h"]
    assert summary(store)["driver_util_ratio"] == 0.5
    round_of(store)
    assert summary(store)["driver_util_ratio"] == 0.5


def test_a_reading_that_covers_less_says_so_itself(store: Store) -> None:
    add(store, [0.0], [None], cadence_seconds=600.0, source="kernels", gpu_bound_seconds=[300.0])
    round_of(store, FOREVER)
    rows = store.read("SELECT source, coverage_ratio, gpu_bound_ratio FROM attempt_summary ORDER BY source").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("samples", 1.0, None),
        ("samples:gpu_bound", pytest.approx(1 / 12), 0.5),
    ]


def test_a_purge_takes_roll_ups_and_summaries_too(store: Store) -> None:
    round_of(store)
    add(store, [DAYS * SECONDS_PER_DAY], [0.5], attempt_key="c/2#0:1")
    round_of(store)
    purge.purge(store, Whom("user", "alice"), files_at_once=True)
    for table in ("rollup_1m", "rollup_1h", "rollup_source", "attempt_summary", "summarised"):
        view = f"read_parquet('{store.data}/lake/{table}/**/*.parquet', union_by_name = true)"
        for source in (table, view) if table.startswith("rollup") else (table,):
            named = f"SELECT count(*) AS n FROM {source} WHERE attempt_key = 'c/1#0:1'"
            assert store.read(named).to_pylist() == [{"n": 0}], source
    assert busy_seconds(store) == 5.0
    assert backup.verify(store)["ok"]


def test_after_the_loss_of_the_database_roll_ups_come_back_from_the_lake(tmp_path: Path) -> None:
    store = fill(tmp_path)
    round_of(store)
    store.close()
    (tmp_path / "hot.duckdb").unlink()
    again = open_store(tmp_path, create=True)
    comeback.restore(again, tmp_path)
    assert busy_seconds(again) == 4 * 3600.0
    assert kept(again)["rollup_1h"] == [2, 3, 4, 5]
    again.close()


def test_after_the_loss_of_the_database_hours_that_were_due_are_summed_up_before_their_samples_go(
    tmp_path: Path,
) -> None:
    store = fill(tmp_path)
    add(store, [SECONDS_PER_DAY + 36_000.0], [0.5], cadence_seconds=600.0)  # an hour of that day that stays up to date
    round_of(store, FOREVER)
    add(store, [SECONDS_PER_DAY], [1.0], cadence_seconds=600.0, source="dcgm")
    lake.seal(store, tmp_path, "device_sample", date(1970, 1, 2))
    lake.publish(store, tmp_path)
    store.close()
    (tmp_path / "hot.duckdb").unlink()
    again = open_store(tmp_path, create=True)
    comeback.restore(again, tmp_path)
    round_of(again)
    assert "device_sample" not in kept(again) or 2 not in kept(again)["device_sample"]
    assert busy_seconds(again) == 4 * 3600.0 + 300.0 + 300.0
    again.close()
