"""Housekeeping: what is sealed and forgotten when."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from warehouse import lake
from warehouse.contract import wire
from warehouse.contract.settings import Settings
from warehouse.contract.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from warehouse.keeper import keep
from warehouse.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give a store with one sample on each of the first three days of the epoch."""
    opened = open_store(tmp_path, create=True)
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": [0.0, SECONDS_PER_DAY, 2 * SECONDS_PER_DAY],
    }
    with opened.transaction() as transaction:
        transaction.write({"device_sample": wire.Table(3, columns)})
    yield opened
    opened.close()


def sealed(store: Store) -> list[date]:
    """Give the days whose samples lie in the lake."""
    return [day.date for day in lake.sealed_days(store) if day.table == "device_sample"]


def test_a_day_is_sealed_26_hours_after_it_ended(store: Store, tmp_path: Path) -> None:
    keep(store, tmp_path, Settings(), now=SECONDS_PER_DAY + 25 * SECONDS_PER_HOUR)
    assert sealed(store) == []
    keep(store, tmp_path, Settings(), now=SECONDS_PER_DAY + 26 * SECONDS_PER_HOUR)
    assert sealed(store) == [date(1970, 1, 1)]


def test_a_second_round_has_nothing_to_do(store: Store, tmp_path: Path) -> None:
    now = 5 * SECONDS_PER_DAY
    assert keep(store, tmp_path, Settings(), now) > 0
    assert keep(store, tmp_path, Settings(), now) == 0


def test_days_past_their_time_go_away_and_their_files_follow(store: Store, tmp_path: Path) -> None:
    keep(store, tmp_path, Settings(), now=5 * SECONDS_PER_DAY)
    settings = Settings({"lake.keep_days": 3, "lake.keep_replaced_seconds": 0.0})
    keep(store, tmp_path, settings, now=5 * SECONDS_PER_DAY)
    assert sealed(store) == [date(1970, 1, 3)]
    assert len(list((tmp_path / "lake" / "device_sample").glob("date=*/gen=*"))) == 1
