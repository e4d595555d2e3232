"""What those need who keep the store. Routes that name folders of the server are for callers on its machine alone."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Depends, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool

from warehouse import backup, purge, web
from warehouse.access import Role
from warehouse.contract.errors import BadInputError

if TYPE_CHECKING:
    from fastapi import FastAPI


def add(app: FastAPI, site: web.Site) -> None:
    """Add the routes."""
    operators = Depends(site.door.for_roles(Role.OPERATOR))
    anything: dict[int | str, dict[str, Any]] = {200: {"model": dict[str, object]}}

    @app.post(
        "/v1/backup",
        summary="Copy the store into a new folder of the server's machine.",
        dependencies=[operators],
        responses={**anything, **web.refusals(400, 413)},
        openapi_extra=web.body_of({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}),
    )
    async def make_backup(request: Request) -> Response:
        _require_this_machine(request)
        target = web.as_object(await web.read_body(request), "backup").get("to")
        if not isinstance(target, str) or "\0" in target or not Path(target).is_absolute():
            raise BadInputError("backup", "to", "expected the whole path of a new folder")
        return web.json_answer(await run_in_threadpool(backup.write_backup, site.store, Path(target)))

    @app.post(
        "/v1/verify",
        summary="Read everything and hold the counts against each other.",
        dependencies=[operators],
        responses={**anything, **web.refusals()},
    )
    async def verify(request: Request) -> Response:
        _require_this_machine(request)
        return web.json_answer(await run_in_threadpool(backup.verify, site.store))

    @app.post(
        "/v1/purge",
        summary="Delete a person's or project's data for good.",
        dependencies=[operators],
        responses={**anything, **web.refusals(400, 413)},
        openapi_extra=web.body_of(
            {
                "type": "object",
                "properties": {
                    "user": {"type": ["string", "null"]},
                    "project": {"type": ["string", "null"]},
                    "cluster": {"type": ["string", "null"]},
                    "dry_run": {"type": "boolean"},
                },
            }
        ),
    )
    async def erase(request: Request) -> Response:
        _require_this_machine(request)
        asked = web.as_object(await web.read_body(request), "purge")
        whom, dry_run = purge.read_asked(asked)
        return web.json_answer(await run_in_threadpool(purge.purge, site.store, whom, dry_run=dry_run))


def _require_this_machine(request: Request) -> None:
    host = "" if request.client is None else request.client.host
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if not here:
        raise HTTPException(403, "for callers on the server's own machine: run the command there")
