"""The clocks of senders, as the server knows them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from collector import poster
from collector.poster import Endpoint, Poster
from tests.warehouse.serving import ServerProcess
from warehouse import access
from warehouse.clocks import MOST_SENDERS, Clocks
from warehouse.contract import wire
from warehouse.contract.clocks import AHEAD_AT_MOST_HEADER, SENT_AT_HEADER
from warehouse.contract.model import Event
from warehouse.contract.settings import Settings

NOW = 1_700_000_000.0


def headers(sent_at: float, at_most: float | None = None) -> dict[str, str]:
    return {SENT_AT_HEADER: repr(sent_at)} | ({} if at_most is None else {AHEAD_AT_MOST_HEADER: repr(at_most)})


def one(clocks: Clocks) -> tuple[float, float]:
    (reading,) = clocks.all().values()
    return reading.offset.low, reading.offset.high


def test_send_and_receive_times_and_the_last_exchange_bound_the_offset() -> None:
    clocks = Clocks(2.0)
    clocks.note("a", headers(NOW + 9.9, 10.1), NOW - 500, NOW)
    assert one(clocks) == pytest.approx((9.9, 10.1))


def test_a_sender_that_says_nothing_is_bounded_by_when_it_made_the_batch() -> None:
    clocks = Clocks(2.0)
    clocks.note("a", {}, NOW - 3600, NOW)  # waited in a spool, or its clock is behind: nobody can tell
    assert one(clocks) == (-3600, float("inf"))
    assert not any(map(clocks.is_off, clocks.all().values()))
    clocks.note("a", {}, NOW + 60, NOW)
    assert all(map(clocks.is_off, clocks.all().values()))


def test_a_clock_that_was_set_between_two_batches_voids_the_older_word() -> None:
    clocks = Clocks(2.0)
    clocks.note("a", headers(NOW + 100.0, 0.01), NOW, NOW)
    assert one(clocks) == (100.0, float("inf"))


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "soon", "", "1e999"])
def test_hostile_headers_are_no_numbers(text: str) -> None:
    clocks = Clocks(2.0)
    clocks.note("a", {SENT_AT_HEADER: text, AHEAD_AT_MOST_HEADER: text}, NOW - 1.0, NOW)
    assert one(clocks) == (-1.0, float("inf"))


def test_a_clock_that_goes_wrong_and_right_is_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks(2.0)
    with caplog.at_level(logging.INFO, "trueload.clocks"):
        for ahead in (0.0, 30.0, 31.0, 30.0, 0.0, 0.0):
            clocks.note("node-1", headers(NOW + ahead, ahead + 0.1), NOW, NOW)
    wrong, right = (record.getMessage() for record in caplog.records)
    assert wrong.startswith("the clock of 'node-1' is 30.1 s ahead (give or take 0.1 s); its rows bear its time")
    assert right == "the clock of 'node-1' is right again"


def test_senders_are_bounded() -> None:
    clocks = Clocks(2.0)
    for number in range(MOST_SENDERS + 10):
        clocks.note(f"n{number}", headers(NOW), NOW, NOW)
    assert len(clocks.all()) == MOST_SENDERS
    assert "n9" not in clocks.all()


def test_those_that_are_off_come_first() -> None:
    clocks = Clocks(2.0)
    for name, ahead in (("a", 0.0), ("b", 9.0), ("c", -9.0)):
        clocks.note(name, headers(NOW + ahead, ahead + 0.25), NOW, NOW)
    document: Any = clocks.answer(None, Settings(), {})  # type: ignore[arg-type]
    assert (document["off"], document["limit_seconds"]) == (2, 2.0)
    assert [(told["sender"], told["is_off"]) for told in document["senders"]] == [
        ("b", True),
        ("c", True),
        ("a", False),
    ]
    assert document["senders"][0]["ahead_low_seconds"] == 9.0
    assert document["senders"][0]["ahead_high_seconds"] == 9.25
    assert document["senders"][0]["measured_at"] == "2023-11-14T22:13:20Z"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = ServerProcess(tmp_path_factory.mktemp("clocks") / "data", variables={"TRUELOAD_SQL__OVER_HTTP": "yes"})
    yield started
    started.stop()


def body(agent: str, sequence: int, at: float) -> bytes:
    return wire.encode(wire.Batch(agent, "boot", sequence, at, wire.from_records([Event("c", agent, "test", at)])))


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [30.0, -30.0, 0.0])
def test_a_node_whose_clock_is_off_is_known_and_its_rows_are_not_moved(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    node, at = f"node{ahead:+.0f}", time.time() + ahead - 60.0
    monkeypatch.setattr(poster, "time", SimpleNamespace(time=lambda: time.time() + ahead))
    sender = Poster(Endpoint(server.url, access.token_file(server.data, access.Role.AGENT)))
    for sequence in (1, 2):
        sender.post(body(node, sequence, at))
    assert sender.clock is not None
    assert sender.clock.low <= ahead <= sender.clock.high
    assert sender.clock.high - sender.clock.low < 5
    sender.close()
    client = server.client()
    document: Any = client.ask("clocks", {})
    (told,) = (one for one in document["senders"] if one["sender"] == node)
    assert told["ahead_low_seconds"] <= ahead + 0.001
    assert told["ahead_high_seconds"] >= ahead - 0.001
    assert told["is_off"] is (ahead != 0.0)
    stored: Any = client.sql(f"SELECT DISTINCT epoch(happened_at) AS at FROM event WHERE node = '{node}'")
    assert [row["at"] for row in stored["rows"]] == [pytest.approx(at, abs=0.001)]
    client.close()
