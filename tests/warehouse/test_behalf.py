"""An operator's program asks as a person would, near and far: it sees what that person sees, and nobody else may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from tests.warehouse.test_server import Running
from warehouse.access import Role
from warehouse.client import Client, Document, LocalClient, Parameters, RecordId
from warehouse.contract import model, wire
from warehouse.contract.errors import BadUseError, RefusedError
from warehouse.contract.settings import Settings
from warehouse.sight import Sight
from warehouse.viewer import BEHALF, Viewer, as_header, from_header

ODD = "Zo\u00eb \u202e O'Hara\r\n; DROP"


def _seen(store: Sight, _settings: Settings, _parameters: Parameters) -> Document:
    """Give the keys of the jobs that can be seen."""
    with store.snapshot() as tables:
        keys = tables.job.job_key.execute().tolist()
    return {"jobs": sorted(keys)}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give a server that knows a job of alice's (account ml), of bob's (bio), and of somebody with an odd name."""
    server = Running(tmp_path_factory.mktemp("data"), {"seen": _seen})
    people = (("1", "alice", "ml"), ("2", "bob", "bio"), ("3", ODD, "bio"))
    jobs = [model.Job(f"c/{at}#0", "c", at, "test", user=user, account=account) for at, user, account in people]
    server.client().load("test", [RecordId("r", 1)], wire.from_records(jobs))
    yield server
    server.stop()


@pytest.fixture(params=["near", "far"])
def client(request: pytest.FixtureRequest, running: Running) -> Client:
    """Give an operator's client: of the store itself, and of the server."""
    near: Callable[[], Any] = lambda: LocalClient(running.store, {"seen": _seen}, Settings())  # noqa: E731
    return {"near": near, "far": running.client}[request.param]()  # type: ignore[no-any-return]


def test_a_person_sees_the_own_jobs_and_those_of_the_accounts_led(client: Client) -> None:
    assert client.ask("seen", {}) == {"jobs": ["c/1#0", "c/2#0", "c/3#0"]}
    assert client.on_behalf_of("alice").ask("seen", {}) == {"jobs": ["c/1#0"]}
    assert client.on_behalf_of("alice", ("bio",)).ask("seen", {}) == {"jobs": ["c/1#0", "c/2#0", "c/3#0"]}
    assert client.on_behalf_of(ODD).ask("seen", {}) == {"jobs": ["c/3#0"]}
    assert client.ask("seen", {}) == {"jobs": ["c/1#0", "c/2#0", "c/3#0"]}


def test_nobody_else_asks_for_anybody(running: Running) -> None:
    token = running.client().manage_tokens("new", {"role": "lead", "name": "bob", "accounts": ["bio"]})["token"]
    headers = {"Authorization": f"Bearer {token}", BEHALF: as_header(Viewer("alice"))}
    answer = urllib3.request("GET", f"{running.url}/v1/answers/seen", headers=headers, retries=False)
    assert answer.status == 403
    with pytest.raises(RefusedError):
        running.client(Role.AGENT).on_behalf_of("alice").ask("seen", {})


def test_the_header_never_makes_somebody_who_sees_everything() -> None:
    whole = from_header(as_header(Viewer("operator", everything=True)))
    assert whole == Viewer("operator")
    assert from_header(as_header(Viewer(ODD, ("ml", "a b")))) == Viewer(ODD, ("ml", "a b"))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "alice",
        "%FF",
        "[1]",
        '{"name": "a"}',
        '{"name": 1, "accounts": []}',
        '{"name": "", "accounts": []}',
        '{"name": "a\\u0000", "accounts": []}',
        '{"name": "a", "accounts": [""]}',
        "[" * 60_000,
    ],
)
def test_a_header_that_says_nobody_is_refused(running: Running, value: str) -> None:
    with pytest.raises(BadUseError, match="Trueload-On-Behalf-Of"):
        from_header(value)
    token = running.tokens.by_role[Role.OPERATOR]
    headers = {"Authorization": f"Bearer {token}", BEHALF: value}
    answer = urllib3.request("GET", f"{running.url}/v1/answers/seen", headers=headers, retries=False)
    assert answer.status == 400
