"""The interface is what its OpenAPI document says: each route is asked with what the document allows, and more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from analysis.pipeline import ANSWERS
from tests.warehouse.test_purge import records
from tests.warehouse.test_server import Running
from warehouse.access import Role
from warehouse.contract import wire
from warehouse.contract.documents import DOCUMENTS
from warehouse.contract.errors import BadUseError
from warehouse.contract.questions import PARAMETERS, QUESTIONS
from warehouse.server import openapi
from warehouse.web import ARROW

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "8"))
"""Requests for each route; by hand some thousands."""

LEFT_OUT = {"/v1/backup"}
"""It would write into folders of any name."""

CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]

for media_type in ("application/gzip", ARROW):
    schemathesis.openapi.media_type(media_type, st.binary(max_size=200))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give a server with the real questions and a little data."""
    server = Running(tmp_path_factory.mktemp("data"), ANSWERS)
    with server.store.transaction() as transaction:
        transaction.write(wire.from_records(records()))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def document(running: Running) -> dict[str, Any]:
    """Give the document of the running server."""
    return openapi(running.app)


def test_every_route_is_described_and_says_who_is_refused(running: Running, document: dict[str, Any]) -> None:
    paths = {route.path for route in running.app.routes if getattr(route, "include_in_schema", False)}  # type: ignore[attr-defined]
    assert paths == set(document["paths"])
    for path, item in document["paths"].items():
        for operation in item.values():
            refused = {"401", "403", "503"} <= set(operation["responses"])
            assert refused or (path == "/healthz" and operation["security"] == [])


def test_every_answer_that_has_a_type_is_described_by_it(document: dict[str, Any]) -> None:
    for question in ANSWERS:
        answer = document["paths"][f"/v1/answers/{question}"]["get"]["responses"]["200"]["content"]["application/json"]
        named = answer["schema"].get("$ref", "").rpartition("/")[2]
        assert named == (DOCUMENTS[question].__name__ if question in DOCUMENTS else "")


@pytest.mark.parametrize("question", ANSWERS)
def test_the_parameters_of_a_question_are_those_that_it_takes(running: Running, question: str) -> None:
    with pytest.raises(BadUseError, match="unknown parameter") as refused:
        running.client().ask(question, {"nonsense": "1"})
    assert str(refused.value).rpartition("there are ")[2].split(", ") == sorted(QUESTIONS[question])
    assert set(QUESTIONS[question]) <= set(PARAMETERS)


@pytest.mark.slow
def test_the_server_does_what_its_document_says(running: Running, document: dict[str, Any]) -> None:
    schema = schemathesis.openapi.from_dict(document)
    headers = {"Authorization": f"Bearer {running.tokens.by_role[Role.OPERATOR]}"}
    asked = set()
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if operation.path in LEFT_OUT:
            continue

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy())
        def ask(case: schemathesis.Case[Any]) -> None:
            answer = case.call(base_url=running.url, headers=headers, timeout=60)
            assert answer.status_code < 500, (case, answer.text)
            case.validate_response(answer, checks=CHECKS)

        ask()
        asked.add(operation.path)
    assert asked == set(document["paths"]) - LEFT_OUT
