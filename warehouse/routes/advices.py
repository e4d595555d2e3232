"""Advice that was given and what became of it: what ``trueload recommendations`` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from warehouse import advice_desk, web
from warehouse.access import Role

if TYPE_CHECKING:
    from fastapi import FastAPI


def add(app: FastAPI, site: web.Site) -> None:
    """Add the route."""

    @app.post(
        "/v1/advice/{action}",
        summary="Keep advice that was told, say what became of it, list it.",
        dependencies=[Depends(site.door.for_roles(Role.OPERATOR))],
        responses={200: {"model": dict[str, object]}, **web.refusals(400, 404, 413)},
        openapi_extra=web.body_of({"type": "object"}),
    )
    async def advice(action: str, request: Request) -> Response:
        asked = web.as_object(await web.read_body(request), action)
        return web.json_answer(await run_in_threadpool(advice_desk.act, site.store, action, asked))
