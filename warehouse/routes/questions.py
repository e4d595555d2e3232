"""Questions that the data can be asked: each is a route of its own with a typed document."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from fastapi import Depends, HTTPException, Request, Response

from warehouse import access, web
from warehouse.access import Identity
from warehouse.client import Remembering
from warehouse.contract.documents import DOCUMENTS
from warehouse.contract.errors import BadUseError
from warehouse.contract.questions import PARAMETERS, QUESTIONS, ROWS
from warehouse.server_settings import ANSWER_SECONDS
from warehouse.viewer import BEHALF, Viewer, from_header

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import FastAPI

    from warehouse.client import Document


def add(app: FastAPI, site: web.Site) -> None:
    """Add a route for each question, and one that says which there are."""
    as_reader = site.door.for_roles(*access.READERS)
    for question in site.answers:
        content: dict[str, Any] = {web.ARROW: {"schema": {"type": "string"}}} if question in ROWS else {}
        app.get(
            f"/v1/answers/{question}",
            summary=f"Answer the question {question!r} for what the token's owner may see.",
            operation_id=f"answer_{question}",
            responses={
                200: {"model": DOCUMENTS.get(question, dict[str, object]), "content": content},
                **web.refusals(400, 404),
            },
            openapi_extra={"parameters": [*map(_parameter, QUESTIONS.get(question, ())), _BEHALF_PARAMETER]},
        )(_route(site, question, as_reader))

    @app.get("/v1/answers/{question}", include_in_schema=False, dependencies=[Depends(as_reader)])
    def none_such(question: str) -> Response:
        raise BadUseError(f"no question {question[:100]!r}; there are {', '.join(site.answers)}")


def _route(
    site: web.Site, question: str, as_reader: Callable[[Request], Awaitable[Identity]]
) -> Callable[[Request, Identity], Awaitable[Response]]:
    async def answer(request: Request, identity: Identity = Depends(as_reader)) -> Response:
        began = time.monotonic()
        asked = dict(request.query_params)
        for name, value in asked.items():
            if "\0" in value:
                raise BadUseError(f"{name[:100]}: a text with a NUL cannot be stored, and so not be found")

        answer_of, seen = site.answers[question], site.store.seen_by(_viewer(request, identity))

        def work() -> Document:
            return answer_of(seen, site.settings, asked)

        # What is known waits for no thread, for those are busy with what is not.
        document = answer_of.at_hand(seen, site.settings, asked) if isinstance(answer_of, Remembering) else None
        if document is None:
            document = await web.while_awaited(request, site.settings[ANSWER_SECONDS], work)
        site.observations.answered(time.monotonic() - began)
        if web.wants_arrow(request) and question in ROWS:
            return web.arrow_answer(as_table(document, ROWS[question]))
        return web.json_answer(document)

    return answer


def _viewer(request: Request, identity: Identity) -> Viewer:
    """Give whose eyes see: the caller's, or those of the person on whose behalf an operator's program asks."""
    behalf = request.headers.get(BEHALF)
    if behalf is None:
        return identity.viewer
    if identity.role is not access.Role.OPERATOR:
        raise HTTPException(403, f"{BEHALF}: a token of role {identity.role} asks for nobody else")
    return from_header(behalf)


_BEHALF_PARAMETER: dict[str, object] = {
    "name": BEHALF,
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "With an operator's token: answer as this person may see it. Percent-encoded JSON of an object with "
    "`name` and a list of `accounts`.",
}


def _parameter(name: str) -> dict[str, object]:
    kind, meaning = PARAMETERS[name]
    return {"name": name, "in": "query", "required": False, "schema": {"type": kind}, "description": meaning}


def as_table(document: Document, rows_key: str) -> pa.Table:
    """Give a document's main list as a table; the rest of the document is the schema's metadata, as JSON."""
    rows = document.get(rows_key)
    rest = {key: value for key, value in document.items() if key != rows_key}
    table = pa.Table.from_pylist(rows if isinstance(rows, list) else [])
    return table.replace_schema_metadata({"trueload": orjson.dumps(rest)})
