"""Free questions in SQL: for operators, read-only, and only where the site has switched them on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fastapi import Depends, HTTPException, Request, Response

from warehouse import sql, web
from warehouse.access import Identity, Role
from warehouse.contract.errors import BadInputError
from warehouse.server_settings import SQL_OPEN, SQL_ROWS, SQL_SECONDS

if TYPE_CHECKING:
    from fastapi import FastAPI

LOG = logging.getLogger("trueload.server")
SWITCHED_OFF = (
    "SQL is switched off here: set sql.over_http = true and start the server anew, or ask while it is stopped"
)


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """Rows by column; ``cut`` says that there are more."""

    columns: list[str]
    rows: list[dict[str, object]]
    cut: bool


def add(app: FastAPI, site: web.Site) -> None:
    """Add the route; while it is switched off it refuses everybody."""
    operators = site.door.for_roles(Role.OPERATOR)

    @app.post(
        "/v1/sql",
        summary="Run one SELECT over the documented tables (off by default: setting sql.over_http).",
        responses={
            200: {"model": SqlAnswer, "content": {web.ARROW: {"schema": {"type": "string"}}}},
            **web.refusals(400, 413),
        },
        openapi_extra=web.body_of({"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]}),
    )
    async def ask(request: Request, identity: Identity = Depends(operators)) -> Response:  # noqa: FAST002 - a local name
        if not site.settings[SQL_OPEN]:
            raise HTTPException(403, SWITCHED_OFF)
        statement = web.as_object(await web.read_body(request), "sql").get("sql")
        if not isinstance(statement, str):
            raise BadInputError("sql", "sql", "expected the text of a SELECT")
        LOG.info("SQL of %s: %r", identity.name, statement[:1000])
        seconds = site.settings[SQL_SECONDS]
        work = partial(sql.ask, site.store, statement, most_rows=site.settings[SQL_ROWS], most_seconds=seconds)
        # The statement's own limit comes first: a little more here, so that it is the one that is told.
        found = await web.while_awaited(request, seconds + 5, work)
        return web.arrow_answer(found.rows) if web.wants_arrow(request) else web.json_answer(found.document())
