"""What Prometheus reads of the server itself, and whether it is there at all."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST

from warehouse import web
from warehouse.access import Role

if TYPE_CHECKING:
    from fastapi import FastAPI


@dataclass(frozen=True, slots=True)
class Health:
    """The server answers; ``answered_at`` is its clock then, in seconds since the epoch."""

    ok: bool
    answered_at: float


def add(app: FastAPI, site: web.Site) -> None:
    """Add the routes."""
    scrapers = Depends(site.door.for_roles(Role.METRICS, Role.OPERATOR))

    @app.get(
        "/healthz",
        summary="Say that the server answers, and when by its clock.",
        responses={200: {"model": Health}},
        openapi_extra={"security": []},
    )
    async def health() -> Response:
        return web.json_answer({"ok": True, "answered_at": time.time()})

    @app.get(
        "/metrics",
        summary="Tell Prometheus about the server.",
        dependencies=[scrapers],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **web.refusals()},
    )
    def metrics() -> Response:
        return Response(site.observations.text(), media_type=CONTENT_TYPE_LATEST)
