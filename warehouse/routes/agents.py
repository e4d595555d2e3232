"""What agents say beside their batches: what they still hold, and the last hour of a device that somebody looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Depends, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool

from warehouse import web
from warehouse.access import Identity, Role
from warehouse.contract import exchange, wire
from warehouse.contract.metrics import BY_NAME

if TYPE_CHECKING:
    from fastapi import FastAPI

BODY = web.body_of({"type": "string", "format": "binary"}, "application/gzip")


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The last number that the store has of a stream, and runs ``[first, last, part]`` that it lacks."""

    boot_id: str
    stored_until: int | None
    missing: list[list[int]]


@dataclass(frozen=True, slots=True)
class Positions:
    """How far the server is with each stream that was asked about. ``server_run`` changes with each start."""

    server_run: str
    streams: list[StreamPosition]


@dataclass(frozen=True, slots=True)
class Taken:
    """Whether somebody still waited for it."""

    taken: bool


def add(app: FastAPI, site: web.Site) -> None:
    """Add the routes."""
    as_agent = site.door.for_roles(Role.AGENT, Role.OPERATOR)

    @app.post(
        "/v1/held",
        summary="Say which of an agent's acknowledged batches are not in the store.",
        responses={200: {"model": Positions}, **web.refusals(400, 413)},
        openapi_extra=BODY,
    )
    async def compare(request: Request, identity: Identity = Depends(as_agent)) -> Response:  # noqa: FAST002 - a local name
        agent, holdings = exchange.read_holdings(_object(await web.read_body(request), "held"))
        _require_own(agent, identity)
        return web.json_answer(await run_in_threadpool(site.desk.compare, agent, holdings))

    @app.post(
        "/v1/detail",
        summary="Take the last hour of a device as it was read, which an acknowledgement asked for.",
        responses={200: {"model": Taken}, **web.refusals(400, 413)},
        openapi_extra=BODY,
    )
    async def take_detail(request: Request, identity: Identity = Depends(as_agent)) -> Response:  # noqa: FAST002 - a local name
        body = await web.read_body(request)
        agent, ask_id, series = await run_in_threadpool(lambda: exchange.read_detail(_object(body, "detail"), BY_NAME))
        _require_own(agent, identity)
        return web.json_answer({"taken": site.desk.take_detail(agent, ask_id, series)})


def _require_own(agent: str, identity: Identity) -> None:
    """Refuse a node's own token that speaks for another sender."""
    if identity.node is not None and agent != identity.node:
        raise HTTPException(403, f"the token is of node {identity.node!r}; the request speaks of {agent[:200]!r}")


def _object(body: bytes, origin: str) -> dict[str, object]:
    """Read a gzip'd JSON object, treating it as hostile."""
    return web.as_object(wire.inflate(body, origin), origin)
