"""While batches come in answers stand for a moment, in proportion to what they cost; nothing else ever waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import pipeline
from tests.warehouse.test_batches import samples
from warehouse import batches
from warehouse.contract import model, wire
from warehouse.contract.settings import Settings
from warehouse.freshness import Freshness
from warehouse.store import Store, open_store


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Give a clock that stands at 0."""
    return Clock()


@pytest.fixture
def fresh(clock: Clock) -> Freshness:
    """Give the freshness of a server whose answers may be ten seconds old."""
    made = Freshness(clock)
    made.most_seconds = 10.0
    return made


def test_after_a_pause_the_next_batch_shows_at_once(fresh: Freshness, clock: Clock) -> None:
    for _ in range(2):
        before = fresh.number()
        fresh.worked(0.5)
        clock.now += 5.0
        fresh.wrote(at_once=False)
        assert fresh.number() > before


def test_a_version_stands_ten_times_as_long_as_its_answers_took(fresh: Freshness, clock: Clock) -> None:
    fresh.wrote(at_once=False)
    shown = fresh.number()
    fresh.worked(0.25)
    fresh.wrote(at_once=False)
    clock.now = 2.4
    assert fresh.number() == shown
    clock.now = 2.5
    assert fresh.number() > shown


def test_what_the_answers_before_took_counts_until_there_is_a_new_one(fresh: Freshness, clock: Clock) -> None:
    fresh.wrote(at_once=False)
    fresh.worked(0.25)
    clock.now = 2.5
    fresh.wrote(at_once=False)
    shown = fresh.number()
    fresh.wrote(at_once=False)
    clock.now = 4.9
    assert fresh.number() == shown
    clock.now = 5.0
    assert fresh.number() > shown


def test_however_long_answers_take_none_is_older_than_the_setting(fresh: Freshness, clock: Clock) -> None:
    fresh.wrote(at_once=False)
    shown = fresh.number()
    fresh.worked(60.0)
    fresh.wrote(at_once=False)
    clock.now = 10.0
    assert fresh.number() > shown


def test_a_write_that_is_no_batch_shows_at_once_with_all_batches_before_it(fresh: Freshness) -> None:
    fresh.wrote(at_once=False)
    shown = fresh.number()
    fresh.worked(1.0)
    fresh.wrote(at_once=False)
    assert fresh.number() == shown
    fresh.wrote(at_once=True)
    assert fresh.number() == shown + 2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = open_store(tmp_path, create=True)
    yield opened
    opened.close()


def take(store: Store, sequence: int) -> None:
    """Write a batch as the server does."""
    batches.commit(store, [batches.check(replace(samples(), sequence=sequence))])


def test_in_a_store_batches_wait_for_answers_and_an_import_or_a_purge_does_not(store: Store) -> None:
    store.freshness.most_seconds = 3600.0
    take(store, 1)
    pipeline.ANSWERS["fleet"](store, Settings(), {})
    store.worked(360.0)
    before = store.data_version()
    take(store, 2)
    assert store.data_version() == before
    with store.transaction() as transaction:
        transaction.write(wire.from_records([model.Job("c/1#0", "c", "1", "s")]))
    assert store.data_version() != before


def test_without_a_server_every_batch_shows_at_once(store: Store) -> None:
    take(store, 1)
    pipeline.ANSWERS["fleet"](store, Settings(), {})
    before = store.data_version()
    take(store, 2)
    assert store.data_version() != before
