"""Rows of foreign files: a content is loaded once, and what is known of a job's starts can be asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from warehouse.client import RecordId
from warehouse.contract import model, wire
from warehouse.ingest import load_import, past_attempts, which_are_new
from warehouse.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = open_store(tmp_path, create=True)
    yield opened
    opened.close()


def test_an_imported_content_is_new_once_and_an_old_content_stays_known(store: Store) -> None:
    first, second = RecordId("1", 11), RecordId("1", 22)
    assert which_are_new(store, "sacct", [first, second]) == [True, True]
    load_import(store, "sacct", [first], wire.from_records([model.Job("k", "c", "1", "s", name="running")]))
    load_import(store, "sacct", [second], wire.from_records([model.Job("k", "c", "1", "s", name="ended")]))
    assert which_are_new(store, "sacct", [first, second]) == [False, False]
    assert which_are_new(store, "other", [first]) == [True]


def test_past_attempts_come_in_order_of_start(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.write(
            wire.from_records(
                [
                    model.Job("c/7#0", "c", "7", "s"),
                    model.Attempt("c/7#0:b", "c/7#0", model.AttemptState.COMPLETED, None, 20.0, None, "s"),
                    model.Attempt("c/7#0:a", "c/7#0", model.AttemptState.REQUEUED, None, 10.0, 15.0, "s"),
                ]
            )
        )
    found = past_attempts(store, "c", ["6", "7"])
    assert [(past.attempt_key, past.state, past.end_at) for past in found] == [
        ("c/7#0:a", "requeued", 15.0),
        ("c/7#0:b", "completed", None),
    ]
