"""Tokens, enrolment, TLS, proxies, waits: what a node says to the server and believes of it."""

from __future__ import annotations

import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collector.poster import (
    BatchRefusedError,
    BusyError,
    Endpoint,
    Poster,
    TokenRefusedError,
    Trust,
    retry_after_seconds,
)
from collector.ship import Backoff, Shipper
from collector.spool import KEPT_FOLDER, Bounds, Spool
from tests.warehouse.test_server import Running
from warehouse import access
from warehouse.contract import wire
from warehouse.contract.errors import BadUseError, UnreachableError
from warehouse.contract.model import Event


def body(node: str = "node-1", sequence: int = 1, events: int = 1) -> bytes:
    records = [Event("c", node, "test", float(at), detail=str(at)) for at in range(events)]
    return wire.encode(wire.Batch(node, "boot", sequence, 1.0, wire.from_records(records)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("data"))
    yield running
    running.stop()


@pytest.fixture
def enrolling(server: Running, tmp_path: Path) -> Iterator[Poster]:
    """Give a poster of a node that has the join secret and no token yet."""
    access.ensure_join_secret(server.store.data)
    poster = Poster(
        Endpoint(
            server.url,
            tmp_path / "node.token",
            join_token_file=access.join_file(server.store.data),
            node=tmp_path.name,
        )
    )
    yield poster
    poster.close()


def own_token(poster: Poster) -> Path:
    path = poster.endpoint.token_file
    assert path is not None
    return path


def test_a_node_enrols_by_itself_and_keeps_its_token_to_itself(enrolling: Poster) -> None:
    assert not enrolling.post(body(enrolling.endpoint.node)).duplicate
    assert stat.S_IMODE(own_token(enrolling).stat().st_mode) == 0o600
    token = own_token(enrolling).read_text()
    assert enrolling.post(body(enrolling.endpoint.node)).duplicate
    assert own_token(enrolling).read_text() == token


def test_a_token_that_was_revoked_is_replaced_with_the_join_secret(enrolling: Poster, server: Running) -> None:
    node = enrolling.endpoint.node
    enrolling.post(body(node))
    before = own_token(enrolling).read_text()
    known = server.client().manage_tokens("list", {})["credentials"]
    assert isinstance(known, list)
    mine = next(one for one in known if one["node"] == node)
    server.client().manage_tokens("revoke", {"credential_id": mine["credential_id"]})
    with pytest.raises(UnreachableError, match="enrolled anew"):
        enrolling.post(body(node, 2))
    assert own_token(enrolling).read_text() != before
    assert not enrolling.post(body(node, 2)).duplicate


def test_a_token_that_is_old_is_replaced_with_itself(server: Running, tmp_path: Path, enrolling: Poster) -> None:
    node = enrolling.endpoint.node
    enrolling.post(body(node))
    before = own_token(enrolling).read_text()
    wrong = tmp_path / "wrong"
    wrong.write_text("not the join secret")
    rotating = Poster(
        Endpoint(server.url, own_token(enrolling), join_token_file=wrong, node=node, token_max_age_seconds=1e-6)
    )
    rotating.post(body(node, 2))
    assert own_token(enrolling).read_text() != before
    rotating.close()


def test_a_join_secret_that_is_wrong_is_named(server: Running, tmp_path: Path) -> None:
    wrong = tmp_path / "join"
    wrong.write_text("wrong")
    poster = Poster(Endpoint(server.url, tmp_path / "node.token", join_token_file=wrong, node="n"))
    with pytest.raises(TokenRefusedError, match=r"enrolling failed: check the join secret in .*join"):
        poster.post(body("n"))
    poster.close()


def test_a_batch_of_another_node_is_set_aside_and_does_not_stop_the_others(enrolling: Poster) -> None:
    with pytest.raises(BatchRefusedError, match="403"):
        enrolling.post(body("somebody-else"))
    assert not enrolling.post(body(enrolling.endpoint.node, 7)).duplicate


def test_a_token_file_without_a_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(TokenRefusedError, match="empty: holds no token"):
        Poster(Endpoint("http://127.0.0.1:1", tmp_path / "empty")).post(body())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5.0),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("soon", None),
        (None, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(value, now=10.0) == seconds


def test_a_server_that_says_when_is_not_asked_before_and_never_waited_for_too_long(token_file: Path) -> None:
    waited: list[float] = []
    stop: Any = SimpleNamespace(wait=waited.append)
    endpoint = Endpoint("http://localhost", token_file, first_wait_seconds=1.0, longest_wait_seconds=60.0)
    Backoff(endpoint, draw=lambda: 0.5).fail(BusyError("busy", 8.0), stop)
    Backoff(endpoint, draw=lambda: 0.0).fail(BusyError("busy", 9999.0), stop)
    assert waited == [10.0, 60.0]


def test_a_batch_that_is_too_large_goes_in_parts_that_are_kept_and_named_apart(
    receiver: Any, token_file: Path, tmp_path: Path
) -> None:
    receiver.statuses = [413, 413]
    with Spool(tmp_path / "spool", "node-1", Bounds(10**9, 1e9)) as spool:
        events = [Event("c", "node-1", "test", float(at)) for at in range(5)]
        spool.put(wire.from_records(events))
        shipper = Shipper(spool, Endpoint(receiver.url, token_file))
        shipper.start()
        shipper.stop(20.0)
        assert sorted((batch.sequence, batch.part) for batch in receiver.batches) == [(1, 0), (1, 1), (1, 2)]
        assert sorted(row["happened_at"] for row in receiver.rows("event")) == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert spool.waiting() == []
        assert len(list((tmp_path / "spool" / KEPT_FOLDER).iterdir())) == 3


def test_one_row_that_is_too_large_is_set_aside(receiver: Any, token_file: Path, tmp_path: Path) -> None:
    receiver.statuses = [413]
    with Spool(tmp_path / "spool", "node-1", Bounds(10**9, 1e9)) as spool:
        spool.put(wire.from_records([Event("c", "node-1", "test", 1.0)]))
        shipper = Shipper(spool, Endpoint(receiver.url, token_file))
        shipper.start()
        shipper.stop(20.0)
        assert (shipper.refused_total, spool.waiting()) == (1, [])


def test_a_whole_whose_halves_are_half_written_is_cut_again(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with Spool(folder, "node-1", Bounds(10**9, 1e9)) as spool:
        whole = spool.put(wire.from_records([Event("c", "node-1", "test", float(at)) for at in range(2)]))
        content = whole.read_bytes()
        assert spool.split(spool.waiting()[0])
        assert len(spool.waiting()) == 2
    whole.write_bytes(content)  # as a kill leaves it: the halves are there, the whole too
    with Spool(folder, "node-1", Bounds(10**9, 1e9)) as spool:
        assert [batch.path for batch in spool.waiting()] == [whole]


def test_what_the_last_backup_has_is_let_go_and_the_newest_stays(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", "node-1", Bounds(10**9, 1e9)) as spool:
        for _ in range(4):
            spool.put(wire.from_records([Event("c", "node-1", "test", 1.0)]))
        waiting = spool.waiting()
        for batch in waiting[:3]:
            spool.acknowledge(batch)
        assert spool.kept_count == 3
        spool.acknowledge(waiting[3], backed_up_until=2)
        assert [held.held for held in spool.holdings()] == [((3, 4, 0),)]
        assert spool.holdings()[0].acknowledged == 4


def test_u27_what_is_kept_for_a_backup_is_bounded_and_nothing_is_dropped_by_that(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", "node-1", Bounds(10**9, 1e9, kept_max_bytes=1)) as spool:
        for _ in range(5):
            spool.put(wire.from_records([Event("c", "node-1", "test", 1.0)]))
        for batch in spool.waiting():
            spool.acknowledge(batch)
        assert (spool.kept_count, spool.dropped_total) == (1, 0)


# ----------------------------------------------------------------------------------------------- TLS and proxies


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a self-made certificate for 127.0.0.1, with its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(path.with_suffix(".key")), "-out", str(path)],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + path.with_suffix(".key").read_text())
    return path


@pytest.fixture
def secure(receiver: Any, certificate: Path) -> Iterator[str]:
    """Give the address of the receiver behind TLS that asks for a client's certificate."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, _ = receiver.take(dict(self.headers), self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b'{"acknowledged": true}')

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    class Quiet(HTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    served = Quiet(("127.0.0.1", 0), Handler)
    served.socket = context.wrap_socket(served.socket, server_side=True)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"https://127.0.0.1:{served.server_address[1]}"
    served.shutdown()
    served.server_close()
    thread.join()


def test_a_server_is_believed_by_its_authority_and_a_client_by_its_certificate(
    secure: str, certificate: Path, token_file: Path
) -> None:
    trusted = Poster(Endpoint(secure, token_file, trust=Trust(certificate, certificate)))
    assert not trusted.post(body()).duplicate
    trusted.close()
    for trust in (Trust(None, certificate), Trust(certificate, None)):
        poster = Poster(Endpoint(secure, token_file, trust=trust))
        with pytest.raises(UnreachableError, match="no answer"):
            poster.post(body())
        poster.close()


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadUseError, match=r"agent\.tls_ca_file"):
        Poster(Endpoint("https://127.0.0.1:1", None, trust=Trust(tmp_path / "absent.pem")))


def test_the_proxy_of_the_environment_is_used_unless_the_host_is_exempt(
    receiver: Any, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(UnreachableError, match="no answer"):
        Poster(Endpoint(receiver.url, token_file)).post(body())
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert not Poster(Endpoint(receiver.url, token_file)).post(body()).duplicate
