"""Foreign text comes in as it is, from collectors beside a scheduler, and how far each of them is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Depends, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool

from warehouse import text_imports, web
from warehouse.access import Identity, Role
from warehouse.contract.errors import BadInputError

if TYPE_CHECKING:
    from fastapi import FastAPI

BODY = web.body_of({"type": "string", "format": "binary"}, "application/gzip")


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the records of a text: ``read`` = kept + unchanged + rejected."""

    format: str
    read: int
    kept: int
    unchanged: int
    rejected: list[dict[str, object]]
    altered: list[dict[str, object]]
    errors: list[dict[str, object]]
    files: list[str]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Up to when everything has been brought in, in seconds since the epoch; null: nothing has."""

    until_at: float | None


def add(app: FastAPI, site: web.Site) -> None:
    """Add the routes."""
    as_collector = site.door.for_roles(Role.AGENT, Role.OPERATOR)

    @app.post(
        "/v1/imports/{format_name}/text",
        summary="Read a gzip'd text in a foreign format. Sending it again changes nothing.",
        responses={200: {"model": Report}, **web.refusals(400, 413, 429)},
        openapi_extra=BODY,
    )
    async def take_text(
        format_name: str,
        request: Request,
        identity: Identity = Depends(as_collector),  # noqa: FAST002 - a local name
        cluster: str = "",
        zone: str = "",
    ) -> Response:
        _require_collector(format_name, identity)
        body = await web.read_body(request)
        site.committer.require_space()
        asked = {"cluster": cluster, "zone": zone}
        return web.json_answer(
            await run_in_threadpool(text_imports.load_text, site.store, site.settings, format_name, body, asked)
        )

    @app.get(
        "/v1/imports/{format_name}/cursor",
        summary="Say up to when a collector has brought everything in.",
        responses={200: {"model": Cursor}, **web.refusals(400)},
    )
    async def read_cursor(
        format_name: str,
        cluster: str,
        identity: Identity = Depends(as_collector),  # noqa: FAST002 - a local name
    ) -> Response:
        _require_collector(format_name, identity)
        name = text_imports.named("cluster", cluster)
        until = await run_in_threadpool(text_imports.read_cursor, site.store, format_name, name)
        return web.json_answer({"until_at": until})

    @app.post(
        "/v1/imports/{format_name}/cursor",
        summary="Remember up to when a collector has brought everything in; it never goes back.",
        responses={200: {"model": Cursor}, **web.refusals(400, 413)},
        openapi_extra=web.body_of(
            {
                "type": "object",
                "properties": {"cluster": {"type": "string"}, "until_at": {"type": "number"}},
                "required": ["cluster", "until_at"],
            }
        ),
    )
    async def move_cursor(
        format_name: str,
        request: Request,
        identity: Identity = Depends(as_collector),  # noqa: FAST002 - a local name
    ) -> Response:
        _require_collector(format_name, identity)
        asked = web.as_object(await web.read_body(request), "cursor")
        cluster, until_at = asked.get("cluster"), asked.get("until_at")
        if not isinstance(cluster, str) or not isinstance(until_at, (int, float)) or isinstance(until_at, bool):
            raise BadInputError("cursor", None, "expected a cluster and until_at in seconds since the epoch")
        name = text_imports.named("cluster", cluster)
        await run_in_threadpool(text_imports.move_cursor, site.store, format_name, name, float(until_at))
        until = await run_in_threadpool(text_imports.read_cursor, site.store, format_name, name)
        return web.json_answer({"until_at": until})


def _require_collector(format_name: str, identity: Identity) -> None:
    """Refuse a node's own token, which speaks for one node, and what a collector has no business with."""
    if identity.role is Role.OPERATOR:
        return
    if identity.node is not None:
        raise HTTPException(
            403, f"the token is of node {identity.node!r}; a scheduler's accounting comes with the agents' shared token"
        )
    if format_name not in text_imports.COLLECTED:
        raise HTTPException(403, "an agent's token may send accounting alone; use an operator's")
