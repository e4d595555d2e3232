"""Routes of what agents say beside their batches: what they still hold, and the last hour that somebody looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from fastapi import Depends, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool

from warehouse.access import Identity, Role
from warehouse.contract import exchange, wire
from warehouse.contract.errors import BadInputError
from warehouse.contract.metrics import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import FastAPI

    from warehouse.agent_desk import AgentDesk
    from warehouse.door import Door

GZIP = {"requestBody": {"required": True, "content": {"application/gzip": {"schema": {"type": "string"}}}}}


def add(app: FastAPI, door: Door, desk: AgentDesk, read_body: Callable[[Request], Awaitable[bytes]]) -> None:
    """Add the routes. ``read_body`` reads a body within the server's limit."""
    as_agent = door.for_roles(Role.AGENT, Role.OPERATOR)

    @app.post("/v1/held", summary="Which of the acknowledged batches are not in the store.", openapi_extra=GZIP)
    async def compare(request: Request, identity: Identity = Depends(as_agent)) -> Response:  # noqa: FAST002 - a local name
        agent, holdings = exchange.read_holdings(_object(await read_body(request), "held"))
        _require_own(agent, identity)
        return _answer(await run_in_threadpool(desk.compare, agent, holdings))

    @app.post("/v1/detail", summary="The last hour of a device that was asked for.", openapi_extra=GZIP)
    async def take_detail(request: Request, identity: Identity = Depends(as_agent)) -> Response:  # noqa: FAST002 - a local name
        body = await read_body(request)
        agent, ask_id, series = await run_in_threadpool(lambda: exchange.read_detail(_object(body, "detail"), BY_NAME))
        _require_own(agent, identity)
        return _answer({"taken": desk.take_detail(agent, ask_id, series)})


def _require_own(agent: str, identity: Identity) -> None:
    """Refuse a node's own token that speaks for another sender."""
    if identity.node is not None and agent != identity.node:
        raise HTTPException(403, f"the token is of node {identity.node!r}; the request speaks of {agent[:200]!r}")


def _object(body: bytes, origin: str) -> dict[str, object]:
    """Read a gzip'd JSON object, treating it as hostile."""
    try:
        content = orjson.loads(wire.inflate(body, origin))
    except ValueError as cause:
        raise BadInputError(origin, None, f"not JSON ({cause})") from cause
    if not isinstance(content, dict):
        raise BadInputError(origin, None, "expected an object")
    return content


def _answer(content: object) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
