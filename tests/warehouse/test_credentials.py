"""Who may do what: tokens of the store, over real HTTP: issued, bound to a node, rotated, revoked at once."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from click.testing import CliRunner

import trueload
from tests.warehouse.test_server import Running
from warehouse import access
from warehouse.access import READERS, Role
from warehouse.client import HttpClient
from warehouse.contract import exchange, model, wire
from warehouse.contract.errors import BadUseError, NotFoundError, RefusedError
from warehouse.credentials import Credentials
from warehouse.store import open_store

ROUTES = [
    ("GET", "/v1/answers/count", {Role.USER, Role.LEAD, Role.OPERATOR}),
    ("GET", "/v1/me", set(Role)),
    ("POST", "/v1/batches", {Role.AGENT, Role.OPERATOR}),
    ("POST", "/v1/past_attempts", {Role.OPERATOR}),
    ("POST", "/v1/imports/sacct", {Role.OPERATOR}),
    ("POST", "/v1/imports/sacct/new", {Role.OPERATOR}),
    ("POST", "/v1/imports/sacct/text", {Role.AGENT, Role.OPERATOR}),
    ("GET", "/v1/imports/sacct/cursor", {Role.AGENT, Role.OPERATOR}),
    ("POST", "/v1/imports/sacct/cursor", {Role.AGENT, Role.OPERATOR}),
    ("POST", "/v1/credentials/list", {Role.OPERATOR}),
    ("POST", "/v1/mail/list", {Role.OPERATOR}),
    ("POST", "/v1/advice/list", {Role.OPERATOR}),
    ("POST", "/v1/backup", {Role.OPERATOR}),
    ("POST", "/v1/verify", {Role.OPERATOR}),
    ("POST", "/v1/purge", {Role.OPERATOR}),
    ("POST", "/v1/sql", {Role.OPERATOR}),
    ("POST", "/v1/held", {Role.AGENT, Role.OPERATOR}),
    ("POST", "/v1/detail", {Role.AGENT, Role.OPERATOR}),
    ("GET", "/metrics", {Role.METRICS, Role.OPERATOR}),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give one running server for the module."""
    server = Running(tmp_path_factory.mktemp("data"))
    yield server
    server.stop()


def call(running: Running, method: str, path: str, token: str, body: object = None) -> urllib3.BaseHTTPResponse:
    """Ask with a token."""
    headers = {"Authorization": f"Bearer {token}"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return urllib3.request(method, running.url + path, headers=headers, body=content, retries=False)


def new(running: Running, role: Role, name: str = "alice", **asked: object) -> dict[str, Any]:
    """Make a token as an operator does."""
    wanted = {"role": role.value, "name": name, "accounts": ["lab"] if role is Role.LEAD else [], **asked}
    return running.client().manage_tokens("new", wanted)


def of_node(node: str, agent: str | None = None) -> bytes:
    """Give a batch that speaks of a node."""
    return wire.encode(wire.Batch(agent or node, "boot", 1, 0.0, wire.from_records([model.Node("c", node, 1.0)])))


def enrol(running: Running, node: str, token: str | None = None) -> urllib3.BaseHTTPResponse:
    """Enrol a node, by the join secret if no other token is given."""
    return call(running, "POST", "/v1/enrol", token or access.ensure_join_secret(running.store.data), {"node": node})


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(("method", "path", "allowed"), ROUTES)
def test_a_route_lets_in_its_roles_and_no_others(
    running: Running, method: str, path: str, allowed: set[Role], role: Role
) -> None:
    status = call(running, method, path, new(running, role)["token"]).status
    assert (status != 403) == (role in allowed)
    assert status != 401


def questions(running: Running) -> list[str]:
    """Give the paths of the questions that the server answers, each a route of its own."""
    paths = [getattr(route, "path", "") for route in running.app.routes]
    return [path for path in paths if path.startswith("/v1/answers/") and "{" not in path]


@pytest.mark.parametrize("role", list(Role))
def test_every_question_is_answered_to_readers_alone(running: Running, role: Role) -> None:
    token = new(running, role)["token"]
    assert {call(running, "GET", path, token).status == 403 for path in questions(running)} == {role not in READERS}
    assert {call(running, "GET", path, "forged").status for path in questions(running)} == {401}


def test_every_route_of_the_server_is_judged_here_by_role(running: Running) -> None:
    known = {(method, path) for method, path, _ in ROUTES} | {("POST", "/v1/enrol")}
    known |= {("GET", path) for path in questions(running)}
    for route in running.app.routes:
        path = getattr(route, "path", "").format(question="count", format_name="sacct", action="list")
        if path != "/healthz":
            assert {(method, path) for method in route.methods} <= known  # type: ignore[attr-defined]


@pytest.mark.parametrize(("method", "path", "allowed"), ROUTES)
def test_a_revoked_token_opens_nothing_from_then_on(
    running: Running, method: str, path: str, allowed: set[Role]
) -> None:
    made = new(running, Role.OPERATOR)
    assert call(running, method, path, made["token"]).status != 401
    running.client().manage_tokens("revoke", {"credential_id": made["credential_id"]})
    assert call(running, method, path, made["token"]).status == 401


def test_me_says_who_came(running: Running) -> None:
    token = new(running, Role.LEAD, "dan")["token"]
    told = json.loads(call(running, "GET", "/v1/me", token).data)
    assert told == {"name": "dan", "role": "lead", "node": None, "accounts": ["lab"]}


def test_a_user_counts_the_own_jobs_and_a_lead_those_of_the_account(running: Running) -> None:
    jobs: list[model.Record] = [
        model.Job("c/1#0", "c", "1", "s", user="alice", account="lab"),
        model.Job("c/2#0", "c", "2", "s", user="bob", account="lab"),
        model.Job("c/3#0", "c", "3", "s", user="carol", account="other"),
    ]
    running.client().load("sight", [], wire.from_records(jobs))

    def count(token: str) -> int:
        return int(json.loads(call(running, "GET", "/v1/answers/count", token).data)["jobs"])

    assert count(new(running, Role.USER, "alice")["token"]) == 1
    assert count(new(running, Role.LEAD, "dan")["token"]) == 2
    assert count(new(running, Role.USER, "nobody")["token"]) == 0
    assert count(new(running, Role.OPERATOR, "op")["token"]) == 3


def test_an_enrolled_node_speaks_for_itself_alone(running: Running) -> None:
    token = json.loads(enrol(running, "n1").data)["token"]
    assert call(running, "POST", "/v1/batches", token, of_node("n1")).status == 200
    assert call(running, "POST", "/v1/batches", token, of_node("n2")).status == 403
    assert call(running, "POST", "/v1/batches", token, of_node("n2", agent="n1")).status == 403
    assert running.store.read("SELECT count(*) AS n FROM node WHERE node = 'n2'").to_pylist() == [{"n": 0}]


def test_a_node_renews_its_own_token_and_the_old_one_ends(running: Running) -> None:
    old = json.loads(enrol(running, "n3").data)["token"]
    assert enrol(running, "n4", old).status == 403
    fresh = json.loads(enrol(running, "n3", old).data)["token"]
    assert call(running, "POST", "/v1/batches", old, of_node("n3")).status == 401
    assert call(running, "POST", "/v1/batches", fresh, of_node("n3")).status == 200


def test_nobody_enrols_without_the_join_secret_and_a_replaced_one_ends(running: Running) -> None:
    old = access.ensure_join_secret(running.store.data)
    assert enrol(running, "n5", "guess").status == 401
    assert enrol(running, "n5", running.tokens.by_role[Role.AGENT]).status == 401
    assert enrol(running, "n5", new(running, Role.USER)["token"]).status == 401
    access.rotate_join_secret(running.store.data)
    assert enrol(running, "n5", old).status == 401
    assert enrol(running, "n5").status == 200


@pytest.mark.parametrize("body", [b"", b"[]", b'{"node": 5}', b'{"node": ""}', b'{"node": "a\\nb"}', b"\xff"])
def test_an_enrolment_without_a_node_is_told_what_is_missing(running: Running, body: bytes) -> None:
    answer = call(running, "POST", "/v1/enrol", access.ensure_join_secret(running.store.data), body)
    assert (answer.status, bool(json.loads(answer.data)["message"])) == (400, True)


def test_a_rotated_token_keeps_its_rights_and_the_old_one_ends(running: Running) -> None:
    made = new(running, Role.LEAD, "dan")
    fresh = running.client().manage_tokens("rotate", {"credential_id": made["credential_id"]})
    assert (fresh["role"], fresh["name"], fresh["accounts"]) == ("lead", "dan", ["lab"])
    assert call(running, "GET", "/v1/me", made["token"]).status == 401
    assert call(running, "GET", "/v1/me", str(fresh["token"])).status == 200
    with pytest.raises(BadUseError, match="was revoked"):
        running.client().manage_tokens("rotate", {"credential_id": made["credential_id"]})


@pytest.mark.parametrize(
    "asked",
    [
        {"role": "king", "name": "a"},
        {"role": "user", "name": ""},
        {"role": "user", "name": "a", "accounts": ["lab"]},
        {"role": "lead", "name": "a"},
        {"role": "user", "name": "a", "node": "n"},
        {"role": "user", "name": 5},
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(running: Running, asked: dict[str, object]) -> None:
    with pytest.raises(BadUseError):
        running.client().manage_tokens("new", asked)
    with pytest.raises(NotFoundError):
        running.client().manage_tokens("revoke", {"credential_id": "none"})


def test_tokens_are_kept_as_hashes_and_listed_without_them(running: Running) -> None:
    token = new(running, Role.USER)["token"]
    running.store.read("SELECT 1")
    assert token not in json.dumps(running.client().manage_tokens("list", {}))
    assert token not in str(running.store.read("SELECT * FROM credential").to_pylist())


def test_credentials_and_their_last_use_outlive_the_process(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    before = Credentials(store)
    kept, token = before.issue(Role.USER, "alice")
    gone, lost = before.issue(Role.USER, "bob")
    before.revoke(gone.credential_id)
    before.identify(token)
    before.write_use()
    store.close()

    store = open_store(tmp_path)
    after = Credentials(store)
    found = {known.credential_id: known for known in after.everything()}
    assert after.identify(token) == kept.identity
    assert after.identify(lost) is None
    assert found[kept.credential_id].last_used_at is not None
    assert found[gone.credential_id].last_used_at is None
    store.close()


def test_the_shared_token_of_agents_opens_nothing_once_switched_off(tmp_path: Path) -> None:
    from warehouse.door import Door

    store = open_store(tmp_path, create=True)
    tokens, credentials = access.ensure_tokens(tmp_path), Credentials(store)
    shared = tokens.by_role[Role.AGENT]
    assert Door(tokens, credentials, shared_agent_token=True).identify(shared) is not None
    assert Door(tokens, credentials, shared_agent_token=False).identify(shared) is None
    store.close()


def test_the_command_writes_tokens_into_files_of_mode_600_and_lists_and_revokes_them(tmp_path: Path) -> None:
    open_store(tmp_path / "data", create=True).close()
    runner = CliRunner()

    def run(*arguments: str) -> str:
        result = runner.invoke(trueload.cli, ["token", *arguments, "--data", str(tmp_path / "data")])
        assert result.exit_code == 0, result.output
        return result.output

    file = tmp_path / "alice.token"
    said = run("new", "--role", "user", "--name", "alice", "--file", str(file))
    token = file.read_text()
    assert (file.stat().st_mode & 0o777, token in said) == (0o600, False)
    (known,) = json.loads(run("list", "--json"))["credentials"]
    assert (known["name"], known["revoked_at"]) == ("alice", None)
    run("revoke", known["credential_id"])
    (known,) = json.loads(run("list", "--json"))["credentials"]
    assert known["revoked_at"] is not None
    before = access.ensure_join_secret(tmp_path / "data")
    run("rotate", "--join")
    assert access.ensure_join_secret(tmp_path / "data") != before


def test_a_client_with_a_wrong_token_is_told_so(running: Running) -> None:
    with pytest.raises(RefusedError):
        HttpClient(running.url, "wrong").manage_tokens("list", {})


def test_a_nodes_token_speaks_for_no_other_node_when_it_says_what_it_holds_or_shows(running: Running) -> None:
    token = json.loads(enrol(running, "own-node").data)["token"]
    for path, document in (
        ("/v1/held", exchange.holdings_document("other", [])),
        ("/v1/detail", exchange.detail_document("other", "ask", [])),
    ):
        body = gzip.compress(json.dumps(document).encode())
        assert call(running, "POST", path, token, body).status == 403
        assert call(running, "POST", path, token, body[:10]).status == 400
        own = gzip.compress(json.dumps({**document, "agent": "own-node"}).encode())
        assert call(running, "POST", path, token, own).status == 200
