"""Who may come in by which route, for every route there is: one that is added and not judged here fails the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from analysis.pipeline import ANSWERS
from tests.warehouse.test_purge import records
from tests.warehouse.test_server import Running
from warehouse.access import READERS, Role
from warehouse.contract import wire

AGENTS = {Role.AGENT, Role.OPERATOR}
OPERATORS = {Role.OPERATOR}
MAY = {
    ("GET", "/v1/me"): set(Role),
    ("GET", "/metrics"): {Role.METRICS, Role.OPERATOR},
    ("GET", "/v1/answers/{question}"): set(READERS),
    ("POST", "/v1/batches"): AGENTS,
    ("POST", "/v1/held"): AGENTS,
    ("POST", "/v1/detail"): AGENTS,
    ("POST", "/v1/imports/{format_name}/text"): AGENTS,
    ("GET", "/v1/imports/{format_name}/cursor"): AGENTS,
    ("POST", "/v1/imports/{format_name}/cursor"): AGENTS,
    ("POST", "/v1/imports/{format_name}/new"): OPERATORS,
    ("POST", "/v1/imports/{format_name}"): OPERATORS,
    ("POST", "/v1/past_attempts"): OPERATORS,
    ("POST", "/v1/credentials/{action}"): OPERATORS,
    ("POST", "/v1/mail/{action}"): OPERATORS,
    ("POST", "/v1/advice/{action}"): OPERATORS,
    ("POST", "/v1/sql"): OPERATORS,
    ("POST", "/v1/backup"): OPERATORS,
    ("POST", "/v1/verify"): OPERATORS,
    ("POST", "/v1/purge"): OPERATORS,
}
"""The roles that a route lets in. ``/v1/enrol`` has a secret of its own, ``/healthz`` none."""

APART = {("POST", "/v1/enrol"), ("GET", "/healthz")}
PLACES = {"question": "fleet", "format_name": "sacct", "action": "list"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give a server with the real questions and two people's jobs."""
    server = Running(tmp_path_factory.mktemp("data"), ANSWERS)
    with server.store.transaction() as transaction:
        transaction.write(wire.from_records(records()))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def tokens(running: Running) -> dict[Role, str]:
    """Give a token of each role."""
    asked: dict[Role, dict[str, object]] = {
        Role.USER: {"name": "alice"},
        Role.LEAD: {"name": "dan", "accounts": ["lab"]},
        Role.METRICS: {"name": "prometheus"},
    }
    made = {role: running.client().manage_tokens("new", {"role": role.value, **words}) for role, words in asked.items()}
    return {**running.tokens.by_role, **{role: str(document["token"]) for role, document in made.items()}}


def routes(running: Running) -> set[tuple[str, str]]:
    """Give every route of the application, the answers under their common name."""
    found = set()
    for route in running.app.routes:
        path = getattr(route, "path", "")
        if path.startswith("/v1/answers/"):
            path = "/v1/answers/{question}"
        found |= {(method, path) for method in getattr(route, "methods", None) or {"MOUNT"}}
    return found


def ask(running: Running, method: str, path: str, headers: dict[str, str]) -> int:
    """Ask with an empty body; gives the status."""
    url = running.url + path.format(**PLACES)
    return urllib3.request(method, url, headers=headers, body=b"", retries=False, timeout=60).status


def test_every_route_there_is_has_been_judged(running: Running) -> None:
    assert routes(running) == set(MAY) | APART


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("route", list(MAY), ids=" ".join)
def test_a_route_lets_in_its_roles_and_nobody_else(
    running: Running, tokens: dict[Role, str], route: tuple[str, str], role: Role
) -> None:
    status = ask(running, *route, {"Authorization": f"Bearer {tokens[role]}"})
    assert status not in (401, 403) if role in MAY[route] else status == 403


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer "}, {"Authorization": "Bearer x"}])
@pytest.mark.parametrize("question", sorted(ANSWERS))
def test_no_question_is_answered_without_a_token(running: Running, question: str, headers: dict[str, str]) -> None:
    assert ask(running, "GET", f"/v1/answers/{question}", headers) == 401


def test_asking_without_a_token_writes_nothing(running: Running) -> None:
    before = running.store.data_version()
    for method, path in routes(running):
        status = ask(running, method, path, {})
        assert status == (200 if path == "/healthz" else 401), path
    assert running.store.data_version() == before


def test_a_token_says_nothing_in_the_address_or_a_cookie(running: Running, tmp_path: Path) -> None:
    token = running.tokens.by_role[Role.OPERATOR]
    assert ask(running, "GET", f"/v1/me?token={token}&access_token={token}", {"Cookie": f"token={token}"}) == 401
