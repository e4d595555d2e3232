"""Batches of agents and collectors: taken, answered after the commit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from warehouse import batches, node_rights, web
from warehouse.access import Identity, Role
from warehouse.arrow_batches import decode_arrow
from warehouse.contract.errors import OverloadedError
from warehouse.routes.bodies import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi import FastAPI

    from warehouse.contract.wire import Batch

INLINE_BYTES = 16 * 1024
"""Bodies up to this are read at once, within about a millisecond: handing them to a thread costs as much again."""

BODY = {"type": "string", "format": "binary"}


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The batch is durable; ``duplicate`` says that it was so before. Values that cannot be true were left out.

    ``server_run`` changes with each start of the server; ``backed_up_until`` is the last number of this stream that its
    last backup holds; ``asks`` name devices whose last hour somebody would like to see. ``taken_at`` and
    ``answered_at`` are the server's clock when the request came and when this answer left.
    """

    acknowledged: bool
    duplicate: bool
    rows: int
    rejected_values: int
    server_run: str
    backed_up_until: int | None
    asks: list[dict[str, object]]
    taken_at: float
    answered_at: float


class _Plain(APIRoute):
    """A route whose function takes the request and nothing else, and is called with just that.

    What FastAPI works out for each request (dependencies, parameters) costs as much as reading a small batch.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Give the function itself."""
        return self.endpoint


def add(app: FastAPI, site: web.Site) -> None:
    """Add the routes."""
    as_agent = site.door.for_roles(Role.AGENT, Role.OPERATOR)

    async def take_batch(request: Request) -> Response:
        identity, taken_at = await as_agent(request), time.time()
        body = await web.read_body(request)
        is_arrow = request.headers.get("content-type", "").startswith(web.ARROW)
        try:
            if len(body) <= INLINE_BYTES:
                batch, rows = _read(body, is_arrow=is_arrow)
            else:
                batch, rows = await run_in_threadpool(_read, body, is_arrow=is_arrow)
            _check_sender(rows, identity)
            result = await site.committer.write(rows)
        except OverloadedError:
            site.observations.batch("turned_away")
            raise
        except Exception:
            site.observations.batch("refused")
            raise
        site.clocks.note(batch.agent, request.headers, batch.sent_at, taken_at)
        site.observations.taken(batch, result, time.time())
        return web.json_answer(
            {
                "acknowledged": True,
                "duplicate": result.duplicate,
                "rows": result.rows,
                "rejected_values": result.rejected_values,
                **site.desk.acknowledgement(batch.agent, batch.boot_id),
                "taken_at": taken_at,
                "answered_at": time.time(),
            }
        )

    app.router.add_api_route(
        "/v1/batches",
        take_batch,
        methods=["POST"],
        route_class_override=_Plain,
        summary="Take a batch: gzip'd columnar JSON (docs/decisions) or, as Arrow, a container of IPC streams.",
        responses={200: {"model": Acknowledgement}, **web.refusals(400, 413, 429)},
        openapi_extra=web.body_of(BODY, "application/gzip", web.ARROW),
    )


def _read(body: bytes, *, is_arrow: bool) -> tuple[Batch, Batch | batches.Checked]:
    """Read a body, what came and what is to be written; values in JSON are checked then, together with others'."""
    if is_arrow:
        batch, tables = decode_arrow(body)
        return batch, batches.check_arrow(batch, tables)
    batch = decode(body, "batch")
    return batch, batch


def _check_sender(batch: Batch | batches.Checked, identity: Identity) -> None:
    """Refuse a batch in which a node's own token speaks for others."""
    reason = None if identity.node is None else node_rights.refusal(batch, identity.node)
    if reason is not None:
        raise HTTPException(403, reason)
