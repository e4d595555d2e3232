from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.ship import (
    TOGETHER,
    Backoff,
    BatchRefusedError,
    Endpoint,
    ParallelSender,
    Poster,
    Shipper,
    TokenRefusedError,
)
from collector.spool import Bounds, Spool
from warehouse.contract import wire
from warehouse.contract.errors import UnreachableError
from warehouse.contract.model import Event

Wait = Callable[[Callable[[], object]], None]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", "node-1", Bounds(10**9, 1e9)) as opened:
        yield opened


@pytest.fixture
def endpoint(receiver: Any, token_file: Path) -> Endpoint:
    return Endpoint(receiver.url, token_file, first_wait_seconds=0.01, longest_wait_seconds=0.05)


@pytest.fixture
def shipper(spool: Spool, endpoint: Endpoint) -> Iterator[Shipper]:
    made = Shipper(spool, endpoint)
    yield made
    made.stop(5.0)


def put(spool: Spool, detail: str = "") -> None:
    spool.put(wire.from_records([Event("c", "node-1", "test", 1.0, detail=detail)]))


def body(sequence: int = 1) -> bytes:
    tables = wire.from_records([Event("c", "node-1", "test", 1.0)])
    return wire.encode(wire.Batch("node-1", "boot", sequence, 1.0, tables))


def test_a_batch_is_posted_with_its_token_and_type_and_then_gone(
    shipper: Shipper, spool: Spool, receiver: Any, wait_until: Wait
) -> None:
    put(spool, "hello")
    shipper.start()
    shipper.wake()
    wait_until(lambda: not spool.waiting())
    assert [row["detail"] for row in receiver.rows("event")] == ["hello"]
    headers = receiver.headers[0]
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/vnd.trueload.batch+json"
    assert headers["Content-Encoding"] == "gzip"


def test_a_server_that_is_busy_gets_the_batch_again(
    shipper: Shipper, spool: Spool, receiver: Any, wait_until: Wait
) -> None:
    receiver.statuses = [503, 429, 503]
    put(spool)
    shipper.start()
    shipper.wake()
    wait_until(lambda: not spool.waiting())
    assert receiver.answered == [503, 429, 503, 200]
    assert len(receiver.batches) == 1


def test_batches_arrive_in_order_after_a_failure(
    shipper: Shipper, spool: Spool, receiver: Any, wait_until: Wait
) -> None:
    receiver.statuses = [503]
    for number in range(4):
        put(spool, str(number))
    shipper.start()
    shipper.wake()
    wait_until(lambda: not spool.waiting())
    assert [row["detail"] for row in receiver.rows("event")] == ["0", "1", "2", "3"]


def test_a_batch_that_the_server_has_already_is_gone_too(
    shipper: Shipper, spool: Spool, receiver: Any, wait_until: Wait
) -> None:
    put(spool)
    batch = wire.decode(spool.waiting()[0].path.read_bytes())
    receiver.known.add((batch.agent, batch.boot_id, batch.sequence, batch.part))
    shipper.start()
    shipper.wake()
    wait_until(lambda: not spool.waiting())
    assert receiver.batches == []


def test_a_refused_token_keeps_the_batch_until_the_file_holds_a_good_one(
    shipper: Shipper, spool: Spool, receiver: Any, token_file: Path, wait_until: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    token_file.write_text("wrong", encoding="ascii")
    put(spool)
    shipper.start()
    shipper.wake()
    wait_until(lambda: receiver.answered.count(401) >= 3)
    assert len(spool.waiting()) == 1
    token_file.write_text("secret", encoding="ascii")
    wait_until(lambda: not spool.waiting())
    told = [record.message for record in caplog.records if "401" in record.message]
    assert len(told) == 1
    assert "check the token" in told[0]


def test_one_batch_that_is_never_taken_costs_one_batch(
    shipper: Shipper, spool: Spool, receiver: Any, wait_until: Wait
) -> None:
    receiver.statuses = [400]
    put(spool, "bad")
    put(spool, "good")
    shipper.start()
    shipper.wake()
    wait_until(lambda: not spool.waiting())
    assert [row["detail"] for row in receiver.rows("event")] == ["good"]
    assert shipper.refused_total == 1
    assert len(list(spool.folder.glob("*.refused"))) == 1


def test_what_waits_is_sent_once_more_when_it_ends(shipper: Shipper, spool: Spool, receiver: Any) -> None:
    shipper.start()
    put(spool)
    shipper.stop(5.0)
    assert len(receiver.batches) == 1


def test_a_server_that_is_away_does_not_delay_the_end(spool: Spool, token_file: Path, free_port: int) -> None:
    shipper = Shipper(spool, Endpoint(f"http://127.0.0.1:{free_port}", token_file, first_wait_seconds=60.0))
    put(spool)
    shipper.start()
    shipper.wake()
    begin = time.monotonic()
    shipper.stop(5.0)
    assert time.monotonic() - begin < 4.0
    assert len(spool.waiting()) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, TokenRefusedError),
        (403, TokenRefusedError),
        (400, BatchRefusedError),
        (413, BatchRefusedError),
        (429, UnreachableError),
        (500, UnreachableError),
    ],
)
def test_each_answer_has_its_error(status: int, kind: type[Exception], endpoint: Endpoint, receiver: Any) -> None:
    receiver.statuses = [status]
    poster = Poster(endpoint)
    with pytest.raises(kind, match=f"answered {status}"):
        poster.post(body())
    poster.close()


def test_a_missing_token_file_is_named(receiver: Any, tmp_path: Path) -> None:
    poster = Poster(Endpoint(receiver.url, tmp_path / "absent.token"))
    with pytest.raises(TokenRefusedError, match=r"absent\.token.*No such file.*; name its file by agent\.token_file"):
        poster.post(body())


def test_nobody_listening_is_unreachable(token_file: Path, free_port: int) -> None:
    with pytest.raises(UnreachableError, match="no answer"):
        Poster(Endpoint(f"http://127.0.0.1:{free_port}", token_file)).post(body())


def test_waits_double_up_to_the_longest_and_are_shortened_by_half_at_most() -> None:
    endpoint = Endpoint("http://localhost", None, first_wait_seconds=1.0, longest_wait_seconds=4.0)
    stopped = threading.Event()
    stopped.set()
    full, half = Backoff(endpoint, draw=lambda: 0.0), Backoff(endpoint, draw=lambda: 0.999)
    seen = []
    for _ in range(4):
        seen.append(full.seconds())
        full.fail(UnreachableError("away"), stopped)
    assert seen == [1.0, 2.0, 4.0, 4.0]
    assert half.seconds() == pytest.approx(0.5, abs=0.01)
    full.succeed()
    assert full.seconds() == 1.0


def test_several_batches_under_way_all_arrive(endpoint: Endpoint, receiver: Any) -> None:
    receiver.statuses = [503, 503]
    sender = ParallelSender(endpoint, threading.Event(), at_a_time=3)
    for sequence in range(10):
        sender.send(body(sequence))
    sender.settle()
    sender.close()
    assert sorted(batch.sequence for batch in receiver.batches) == list(range(10))


def test_a_batch_that_is_never_taken_is_told_when_settling(endpoint: Endpoint, receiver: Any) -> None:
    receiver.statuses = [400]
    sender = ParallelSender(endpoint, threading.Event(), at_a_time=2)
    sender.send(body())
    with pytest.raises(BatchRefusedError):
        sender.settle()
    sender.close()


def test_a_server_that_will_not_compare_still_gets_every_batch(
    shipper: Shipper, spool: Spool, receiver: Any, wait_until: Wait
) -> None:
    put(spool, "kept")
    spool.acknowledge(spool.waiting()[0])
    receiver.held_status = 400
    put(spool, "new")
    shipper.start()
    shipper.wake()
    wait_until(lambda: not spool.waiting())
    assert [row["detail"] for row in receiver.rows("event")] == ["new"]


def test_a_mistake_of_our_own_ends_one_try_and_not_the_sending(
    shipper: Shipper, spool: Spool, receiver: Any, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, tries = Poster.post, []

    def fail_once(poster: Poster, body: bytes) -> Any:
        tries.append(body)
        if len(tries) == 1:
            raise AttributeError("nobody thought of this")
        return post(poster, body)

    monkeypatch.setattr(Poster, "post", fail_once)
    put(spool, "twice tried")
    shipper.start()
    shipper.wake()
    wait_until(lambda: not spool.waiting())
    assert [row["detail"] for row in receiver.rows("event")] == ["twice tried"]
    assert shipper.failed_total == 1


def put_sample(spool: Spool, at: float) -> None:
    columns: dict[str, wire.Column] = {"cluster": "c", "node": "node-1", "device_uuid": "GPU-a", "source": "nvml"}
    spool.put({"device_sample": wire.Table(1, columns | {"cadence_seconds": 10.0, "sampled_at": at})})


def test_a_backlog_of_samples_goes_several_at_a_time_and_no_record_overtakes(
    shipper: Shipper, spool: Spool, receiver: Any, wait_until: Wait
) -> None:
    for number in range(20):
        put_sample(spool, 10.0 * number)
    put(spool, "in its place")
    put(spool, "behind it")
    for number in range(20, 24):
        put_sample(spool, 10.0 * number)
    receiver.hold = threading.Barrier(TOGETHER)  # it answers nobody before so many have come
    shipper.start()
    shipper.wake()
    wait_until(lambda: len(receiver.batches) == 2 * TOGETHER)
    receiver.hold.abort()  # from here on everybody is answered at once
    wait_until(lambda: not spool.waiting())
    kinds = ["event" if "event" in batch.tables else "sample" for batch in receiver.batches]
    assert kinds == ["sample"] * 20 + ["event"] * 2 + ["sample"] * 4
    assert [row["detail"] for row in receiver.rows("event")] == ["in its place", "behind it"]
    assert sorted(row["sampled_at"] for row in receiver.rows("device_sample")) == [10.0 * place for place in range(24)]
    assert (shipper.shipped_total, shipper.failed_total) == (26, 0)


def test_of_several_batches_under_way_those_that_were_taken_are_not_sent_again(
    shipper: Shipper, spool: Spool, receiver: Any, wait_until: Wait
) -> None:
    receiver.statuses = [200, 503, 400, 200]
    for number in range(4):
        put_sample(spool, 10.0 * number)
    shipper.start()
    shipper.wake()
    wait_until(lambda: not spool.waiting())
    assert sorted(receiver.answered) == [200, 200, 200, 400, 503]
    assert (shipper.shipped_total, shipper.refused_total, shipper.failed_total) == (3, 1, 1)
