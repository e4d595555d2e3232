"""Tokens: had, looked at and taken away."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Depends, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool

from warehouse import access, token_desk, web
from warehouse.access import Identity, Role
from warehouse.contract.errors import BadInputError
from warehouse.door import bearer

if TYPE_CHECKING:
    from fastapi import FastAPI

LOG = logging.getLogger("trueload.server")


@dataclass(frozen=True, slots=True)
class Me:
    """Who a token belongs to."""

    name: str
    role: str
    node: str | None
    accounts: list[str]


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A node's own token, which cannot be had again."""

    credential_id: str
    role: str
    name: str
    node: str | None
    accounts: list[str]
    created_at: str
    revoked_at: str | None
    last_used_at: str | None
    token: str


def add(app: FastAPI, site: web.Site) -> None:
    """Add the routes."""
    operators = Depends(site.door.for_roles(Role.OPERATOR))
    anybody = site.door.for_roles(*Role)

    @app.post(
        "/v1/enrol",
        summary="Give a node its own token, for the join secret or the node's present token.",
        responses={200: {"model": Enrolled}, **web.refusals(400, 413)},
        openapi_extra={
            **web.body_of({"type": "object", "properties": {"node": {"type": "string"}}, "required": ["node"]}),
            "security": [{"bearer": []}],
        },
    )
    async def enrol(request: Request) -> Response:
        identity = await run_in_threadpool(_may_enrol, site, request)
        return web.json_answer(await run_in_threadpool(_enrol_node, site, identity, await web.read_body(request)))

    @app.get("/v1/me", summary="Say who the token belongs to.", responses={200: {"model": Me}, **web.refusals()})
    def me(identity: Identity = Depends(anybody)) -> Response:  # noqa: FAST002 - a local name
        return web.json_answer(
            {
                "name": identity.name,
                "role": identity.role.value,
                "node": identity.node,
                "accounts": list(identity.accounts),
            }
        )

    @app.post(
        "/v1/credentials/{action}",
        summary="List, make, rotate or revoke tokens.",
        dependencies=[operators],
        responses={200: {"model": dict[str, object]}, **web.refusals(400, 404, 413)},
        openapi_extra=web.body_of({"type": "object"}),
    )
    async def credentials(action: str, request: Request) -> Response:
        asked = web.as_object(await web.read_body(request), action)
        return web.json_answer(await run_in_threadpool(token_desk.act, site.credentials, action, asked))


def _may_enrol(site: web.Site, request: Request) -> Identity | None:
    """Let in who has the join secret (None: for any node), or an agent's own token (its identity: for its node)."""
    token = bearer(request)
    if access.is_same(access.ensure_join_secret(site.store.data), token):
        return None
    identity = site.door.identify(token)
    if identity is None or identity.role is not Role.AGENT or identity.node is None:
        raise HTTPException(401, "neither the join secret nor a node's token", {"WWW-Authenticate": "Bearer"})
    return identity


def _enrol_node(site: web.Site, identity: Identity | None, body: bytes) -> dict[str, object]:
    node = web.as_object(body, "enrol").get("node")
    if not isinstance(node, str):
        raise BadInputError("enrol", "node", "expected the node's name")
    if identity is not None and identity.node != node:
        raise HTTPException(403, f"the token is of node {identity.node!r}")
    made, secret = site.credentials.enrol(node)
    LOG.info("node %r enrolled (%s)", node, made.credential_id)
    return {**made.document(), "token": secret}
