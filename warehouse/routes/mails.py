"""Which mails went out, and who wants none: what `trueload report` asks before it sends one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from warehouse import outbox, web
from warehouse.access import Role

if TYPE_CHECKING:
    from fastapi import FastAPI


def add(app: FastAPI, site: web.Site) -> None:
    """Add the route."""

    @app.post(
        "/v1/mail/{action}",
        summary="Claim a mail before it is sent, say what became of it, list them; who wants none.",
        dependencies=[Depends(site.door.for_roles(Role.OPERATOR))],
        responses={200: {"model": dict[str, object]}, **web.refusals(400, 404, 413)},
        openapi_extra=web.body_of({"type": "object"}),
    )
    async def mail(action: str, request: Request) -> Response:
        asked = web.as_object(await web.read_body(request), action)
        return web.json_answer(await run_in_threadpool(outbox.act, site.store, action, asked))
