"""What a server says to agents: how far it is, what its backup has, what somebody wants to see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse import batches
from warehouse.agent_desk import LOOKED_AT_SECONDS, AgentDesk
from warehouse.backup import write_backup
from warehouse.contract import exchange, model, wire
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.exchange import Holdings, Position, Series
from warehouse.contract.settings import Settings
from warehouse.store import Store, open_store
from warehouse.viewer import Viewer

ALICE, BOB = Viewer("alice", ()), Viewer("bob", ())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "data", create=True)
    yield opened
    opened.close()


def put(store: Store, *numbers: int, records: list[model.Record] | None = None) -> None:
    tables = wire.from_records(records or [model.Event("c", "node-1", "test", 1.0)])
    for number in numbers:
        batches.commit(store, [batches.check(wire.Batch("node-1", "boot", number, 1.0, tables))])


def hold(store: Store, end_at: float | None = None) -> None:
    put(
        store,
        *(1,),
        records=[
            model.Job("c/1#0", "c", "1", "slurm", user="alice"),
            model.Attempt(
                "c/1#0:1",
                "c/1#0",
                model.AttemptState.RUNNING,
                raw_state=None,
                start_at=100.0,
                end_at=None,
                source="slurm",
            ),
            model.Allocation("a", "c/1#0:1", 1.0, 100.0, end_at, "slurm", device_uuid="GPU-a", node="node-1"),
        ],
    )


def test_a_server_names_what_it_lacks_of_what_an_agent_holds(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    put(store, 1, 2, 3, 5)
    answer = AgentDesk(store).compare("node-1", [Holdings("boot", 7, ((2, 7, 0),))])
    assert exchange.read_positions(answer)[1] == [Position("boot", 5, ((4, 4, 0), (6, 7, 0)))]
    assert "3 batches that were acknowledged (up to 7) are not in the store (up to 5)" in caplog.text


def test_a_stream_that_the_server_never_saw_is_lacking_whole(store: Store) -> None:
    answer = AgentDesk(store).compare("node-1", [Holdings("other", 2, ((1, 2, 0),))])
    assert exchange.read_positions(answer)[1] == [Position("other", None, ((1, 2, 0),))]


def test_agents_are_told_what_the_last_backup_has(store: Store, tmp_path: Path) -> None:
    desk = AgentDesk(store)
    put(store, 1, 2)
    assert desk.acknowledgement("node-1", "boot")["backed_up_until"] is None
    write_backup(store, tmp_path / "backup")
    put(store, 3)
    assert desk.acknowledgement("node-1", "boot")["backed_up_until"] == 2
    assert desk.acknowledgement("node-1", "other")["backed_up_until"] is None
    write_backup(store, tmp_path / "second")
    assert desk.acknowledgement("node-1", "boot")["backed_up_until"] == 3


def test_each_server_process_has_a_run_of_its_own(store: Store) -> None:
    assert AgentDesk(store).server_run != AgentDesk(store).server_run


def test_a_look_at_an_attempt_asks_its_node_and_shows_what_came(store: Store) -> None:
    hold(store)
    desk, seen = AgentDesk(store), store.seen_by(ALICE)
    first = desk.answer(seen, Settings(), {"attempt": "c/1#0:1"})
    assert first == {"attempt": "c/1#0:1", "series": [], "waiting_for": ["GPU-a"]}
    assert desk.acknowledgement("node-2", "boot")["asks"] == []
    asks = desk.acknowledgement("node-1", "boot")["asks"]
    assert isinstance(asks, list)
    ask_id = asks[0]["ask_id"]
    series = Series("GPU-a", "nvml", [99.0, 100.0, 101.0], {"power_watts": [1.0, 2.0, None]})
    assert desk.take_detail("node-1", ask_id, [series])
    second = desk.answer(seen, Settings(), {"attempt": "c/1#0:1"})
    assert second["waiting_for"] == []
    assert second["series"] == [
        {"device_uuid": "GPU-a", "source": "nvml", "at": [100.0, 101.0], "columns": {"power_watts": [2.0, None]}}
    ]
    asks = desk.acknowledgement("node-1", "boot")["asks"]
    assert asks == [{"ask_id": ask_id, "device_uuid": "GPU-a", "since_at": 101.0}]
    desk.take_detail("node-1", ask_id, [Series("GPU-a", "nvml", [101.0, 102.0], {"power_watts": [3.0, 4.0]})])
    third = desk.answer(seen, Settings(), {"attempt": "c/1#0:1"})["series"]
    assert isinstance(third, list)
    assert third[0]["at"] == [100.0, 101.0, 102.0]
    assert third[0]["columns"] == {"power_watts": [2.0, 3.0, 4.0]}


def test_nobody_looks_at_the_devices_of_others(store: Store) -> None:
    hold(store)
    desk = AgentDesk(store)
    with pytest.raises(NotFoundError):
        desk.answer(store.seen_by(BOB), Settings(), {"attempt": "c/1#0:1"})
    with pytest.raises(BadUseError, match="name the attempt"):
        desk.answer(store.seen_by(ALICE), Settings(), {})
    assert desk.acknowledgement("node-1", "boot")["asks"] == []


def test_what_came_after_the_attempt_is_not_shown_to_its_owner(store: Store) -> None:
    hold(store, end_at=100.5)
    desk, seen = AgentDesk(store), store.seen_by(ALICE)
    desk.answer(seen, Settings(), {"attempt": "c/1#0:1"})
    asks = desk.acknowledgement("node-1", "boot")["asks"]
    assert isinstance(asks, list)
    desk.take_detail(
        "node-1", asks[0]["ask_id"], [Series("GPU-a", "nvml", [100.0, 101.0], {"power_watts": [2.0, 9.0]})]
    )
    shown = desk.answer(seen, Settings(), {"attempt": "c/1#0:1"})["series"]
    assert isinstance(shown, list)
    assert shown[0]["at"] == [100.0]


def test_a_device_that_nobody_looks_at_any_more_is_not_asked_for_and_what_nobody_asked_for_is_not_taken(
    store: Store,
) -> None:
    hold(store)
    now = [0.0]
    desk = AgentDesk(store, clock=lambda: now[0])
    desk.answer(store.seen_by(ALICE), Settings(), {"attempt": "c/1#0:1"})
    asks = desk.acknowledgement("node-1", "boot")["asks"]
    assert isinstance(asks, list)
    assert not desk.take_detail("node-2", asks[0]["ask_id"], [])
    now[0] = LOOKED_AT_SECONDS + 1
    assert desk.acknowledgement("node-1", "boot")["asks"] == []
    assert not desk.take_detail("node-1", asks[0]["ask_id"], [])


numbers = st.sets(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=40)


@settings(max_examples=100, deadline=None)
@given(numbers, numbers)
def test_runs_hold_exactly_their_numbers_and_less_exactly_those_that_are_known(
    held: set[tuple[int, int]], known: set[tuple[int, int]]
) -> None:
    def listed(runs: tuple[exchange.Run, ...]) -> list[tuple[int, int]]:
        return [(sequence, part) for first, last, part in runs for sequence in range(first, last + 1)]

    assert sorted(listed(exchange.runs(held))) == sorted(held)
    assert sorted(listed(exchange.without(exchange.runs(held), known))) == sorted(held - known)
