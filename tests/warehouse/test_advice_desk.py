"""Advice is kept as it was first told, and every change of it stays on record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.test_server import Running
from warehouse import advice_desk, purge
from warehouse.contract import wire
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.model import Job
from warehouse.purge import Whom
from warehouse.store import Store, open_store

ADVICE: dict[str, Any] = {
    "recommendation_id": "r-0123456789abcdef",
    "remedy": "release",
    "subject": {"kind": "job", "id": "c/1#0"},
    "since_at": 0.0,
    "until_at": 1000.0,
    "saving_gpu_seconds": {"low": 1.0, "likely": 2.0, "high": 3.0},
    "subject_gpu_seconds": {"allocated": 10.0, "used": 4.0},
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Give an empty store."""
    opened = open_store(tmp_path / "data", create=True)
    yield opened
    opened.close()


def record(store: Store, **other: object) -> dict[str, Any]:
    return advice_desk.act(store, "record", {"recommendations": [{**ADVICE, **other}]})


def mark(store: Store, state: str, **other: object) -> dict[str, Any]:
    asked = {"recommendation_id": ADVICE["recommendation_id"], "state": state, **other}
    return advice_desk.act(store, "mark", asked)


def listed(store: Store) -> dict[str, Any]:
    return advice_desk.act(store, "list", {})


def test_what_was_promised_first_stays_what_it_is_held_against(store: Store) -> None:
    assert record(store) == {"new": 1, "known": 0}
    assert record(store, saving_gpu_seconds={"low": 9.0, "likely": 9.0, "high": 9.0}) == {"new": 0, "known": 1}
    (kept,) = listed(store)["recommendations"]
    assert (kept["likely_gpu_seconds"], kept["until_at"], kept["state"]) == (2.0, "1970-01-01T00:16:40Z", "open")


def test_telling_the_same_again_writes_nothing(store: Store) -> None:
    record(store)
    version = store.data_version()
    record(store)
    assert store.data_version() == version


def test_every_change_stays_on_record(store: Store) -> None:
    record(store)
    mark(store, "seen")
    mark(store, "rejected", reason="needed for a demo", quiet_days=90)
    mark(store, "adopted", predicted_gpu_seconds=2.0, realised_gpu_seconds=1.5)
    assert [(row["state"], row["reason"]) for row in listed(store)["outcomes"]] == [
        ("open", None),
        ("seen", None),
        ("rejected", "needed for a demo"),
        ("adopted", None),
    ]
    (kept,) = listed(store)["recommendations"]
    assert (kept["predicted_gpu_seconds"], kept["realised_gpu_seconds"]) == (2.0, 1.5)


def test_bad_use_is_refused_with_its_field_and_changes_nothing(store: Store) -> None:
    record(store)
    for asked in ({"state": "gone"}, {"state": "rejected"}, {"state": "seen", "quiet_days": -1}):
        with pytest.raises(BadUseError):
            mark(store, **asked)
    with pytest.raises(BadUseError):
        record(store, saving_gpu_seconds={"low": "x", "likely": None, "high": 1.0})
    with pytest.raises(BadUseError):
        advice_desk.act(store, "forget", {})
    with pytest.raises(NotFoundError):
        advice_desk.act(store, "mark", {"recommendation_id": "r-0", "state": "seen"})
    assert [row["state"] for row in listed(store)["outcomes"]] == ["open"]


def test_near_and_far_it_is_the_same(tmp_path: Path) -> None:
    server = Running(tmp_path / "served")
    far = server.client()
    far.advice("record", {"recommendations": [ADVICE]})
    far.advice("mark", {"recommendation_id": ADVICE["recommendation_id"], "state": "seen"})
    kept: Any = far.advice("list", {})["outcomes"]
    assert [row["state"] for row in kept] == ["open", "seen"]
    with pytest.raises(NotFoundError):
        far.advice("mark", {"recommendation_id": "r-0", "state": "seen"})
    far.close()
    server.stop()


def test_advice_on_a_job_goes_with_the_data_of_its_user(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.write(wire.from_records([Job("c/1#0", "c", "1", "t", user="ada")]))
    record(store)
    purge.purge(store, Whom("user", "ada"), dry_run=False, files_at_once=True)
    assert listed(store) == {"recommendations": [], "outcomes": []}
