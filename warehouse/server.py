"""The one process that owns the store, and its HTTP interface. No route reads or writes without a token."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool

from warehouse import access, agent_routes, backup, batches, ingest, token_desk
from warehouse.access import Identity, Role
from warehouse.agent_desk import AgentDesk
from warehouse.client import RecordId
from warehouse.contract import wire
from warehouse.contract.errors import (
    BadInputError,
    BadUseError,
    NotFoundError,
    OverloadedError,
    StoreError,
    TrueloadError,
)
from warehouse.credentials import Credentials
from warehouse.door import Door, bearer
from warehouse.settings import SHARED_AGENT_TOKEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.access import Tokens
    from warehouse.client import Answer
    from warehouse.committer import Committer
    from warehouse.contract.settings import Settings
    from warehouse.store import Store

LOG = logging.getLogger("trueload.server")
GRACE_SECONDS = 5
"""How long open requests may still run after the server was told to stop."""

RETRY_AFTER_SECONDS = 5
"""How long a sender that was turned away should wait; the agent adds jitter of its own."""

_STATUS: tuple[tuple[type[TrueloadError], int], ...] = (
    (BadInputError, 400),
    (BadUseError, 400),
    (NotFoundError, 404),
    (OverloadedError, 429),
    (StoreError, 503),
)


def create_app(
    store: Store, committer: Committer, answers: Mapping[str, Answer], settings: Settings, tokens: Tokens
) -> FastAPI:
    """Build the application over an open store and a running committer."""
    app = FastAPI(title="trueload", docs_url=None, redoc_url=None, openapi_url=None)
    credentials = Credentials(store)
    door = Door(tokens, credentials, shared_agent_token=settings[SHARED_AGENT_TOKEN])
    as_agent = door.for_roles(Role.AGENT, Role.OPERATOR)
    as_reader = door.for_roles(*access.READERS)
    desk = AgentDesk(store)
    answers = {**answers, "detail": desk.answer}
    agent_routes.add(app, door, desk, _body)

    @app.exception_handler(TrueloadError)
    async def _explain(_request: Request, error: TrueloadError) -> Response:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        answer = _json({"error": type(error).__name__, "message": str(error)}, status)
        if status in (429, 503):
            answer.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
        return answer

    @app.get("/healthz")
    async def _health() -> Response:
        return _json({"ok": True})

    @app.post("/v1/batches")
    async def _batches(request: Request, identity: Identity = Depends(as_agent)) -> Response:  # noqa: FAST002 - a local name
        body = await _body(request)
        checked = await run_in_threadpool(lambda: batches.check(_decode(body, "batch")))
        _check_sender(checked, identity)
        result = await asyncio.wrap_future(committer.submit(checked))
        return _json(
            {
                "acknowledged": True,
                "duplicate": result.duplicate,
                "rows": result.rows,
                "rejected_values": result.rejected_values,
                **desk.acknowledgement(checked.agent, checked.boot_id),
            }
        )

    @app.get("/v1/answers/{question}")
    def _answer(question: str, request: Request, identity: Identity = Depends(as_reader)) -> Response:  # noqa: FAST002 - a local name
        if question not in answers:
            raise BadUseError(f"no question {question!r}; there are {', '.join(answers)}")
        return _json(answers[question](store.seen_by(identity.viewer), settings, dict(request.query_params)))

    _add_identity_routes(app, store, door, credentials)
    _add_import_routes(app, store, door)
    _add_upkeep_routes(app, store, door)
    return app


def _add_identity_routes(app: FastAPI, store: Store, door: Door, credentials: Credentials) -> None:
    """Routes by which tokens are had, looked at and taken away."""
    operators = Depends(door.for_roles(Role.OPERATOR))
    anybody = door.for_roles(*Role)

    @app.post("/v1/enrol")
    async def _enrol(request: Request) -> Response:
        identity = await run_in_threadpool(_may_enrol, store.data, door, request)
        return _json(await run_in_threadpool(_enrol_node, credentials, identity, await _body(request)))

    @app.get("/v1/me")
    def _me(identity: Identity = Depends(anybody)) -> Response:  # noqa: FAST002 - a local name
        return _json(
            {
                "name": identity.name,
                "role": identity.role.value,
                "node": identity.node,
                "accounts": list(identity.accounts),
            }
        )

    @app.post("/v1/credentials/{action}", dependencies=[operators])
    async def _credentials(action: str, request: Request) -> Response:
        asked = _object(await _body(request), action)
        return _json(await run_in_threadpool(token_desk.act, credentials, action, asked))


def _add_import_routes(app: FastAPI, store: Store, door: Door) -> None:
    """Routes by which foreign history comes in."""
    operators = Depends(door.for_roles(Role.OPERATOR))

    @app.post("/v1/past_attempts", dependencies=[operators])
    async def _past_attempts(request: Request) -> Response:
        cluster, ids = _cluster_and_ids(await _body(request))
        return _json({"attempts": await run_in_threadpool(ingest.past_attempts, store, cluster, ids)})

    @app.post("/v1/imports/{format_name}/new", dependencies=[operators])
    async def _new(format_name: str, request: Request) -> Response:
        batch = _decode(await _body(request), format_name)
        records = _records(batch)
        return _json({"new": await run_in_threadpool(ingest.which_are_new, store, format_name, records)})

    @app.post("/v1/imports/{format_name}", dependencies=[operators])
    async def _import(format_name: str, request: Request) -> Response:
        batch = _decode(await _body(request), format_name)
        await run_in_threadpool(ingest.load_import, store, format_name, _records(batch), batch.tables)
        return _json({"acknowledged": True})


def _add_upkeep_routes(app: FastAPI, store: Store, door: Door) -> None:
    """Routes of those who keep the store; they name folders of this machine, and so are for callers on it alone."""
    operators = Depends(door.for_roles(Role.OPERATOR))

    @app.post("/v1/backup", dependencies=[operators])
    async def _backup(request: Request) -> Response:
        _require_this_machine(request)
        target = _object(await _body(request), "backup").get("to")
        if not isinstance(target, str) or not Path(target).is_absolute():
            raise BadInputError("backup", "to", "expected the whole path of a new folder")
        return _json(await run_in_threadpool(backup.write_backup, store, Path(target)))

    @app.post("/v1/verify", dependencies=[operators])
    async def _verify(request: Request) -> Response:
        _require_this_machine(request)
        return _json(await run_in_threadpool(backup.verify, store))


def _require_this_machine(request: Request) -> None:
    host = "" if request.client is None else request.client.host
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if not here:
        raise HTTPException(403, "for callers on the server's own machine: run the command there")


def serve(data: Path, app: FastAPI, host: str, port: int, token: str) -> None:
    """Serve until told to stop (SIGINT, SIGTERM), leaving the address in the data directory while running.

    Raises:
        StoreError: the port is taken.

    """
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACE_SECONDS, access_log=False)
    with _listen(host, port) as listener:
        bound = listener.getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        address = access.Address(f"http://{shown}:{bound[1]}", os.getpid(), token)
        server = uvicorn.Server(config)
        access.publish(data, address)
        LOG.info("serving %s on %s", data, address.url)
        # uvicorn raises a signal anew once it has ended its requests; SIGTERM as such would then skip what follows.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            asyncio.run(server.serve(sockets=[listener]))
        except KeyboardInterrupt:
            # uvicorn has ended its requests by then; the interrupt itself is how the person says "enough".
            LOG.info("stopped")
        finally:
            access.withdraw(data)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # from now on callers wait for the application to start, and are not refused
    except OSError as cause:
        listener.close()
        message = f"cannot listen on {host} port {port} ({cause.strerror}); choose another with --port"
        raise StoreError(message) from cause
    return listener


def _may_enrol(data: Path, door: Door, request: Request) -> Identity | None:
    """Let in who has the join secret (None: for any node), or an agent's own token (its identity: for its node)."""
    token = bearer(request)
    if access.is_same(access.ensure_join_secret(data), token):
        return None
    identity = door.identify(token)
    if identity is None or identity.role is not Role.AGENT or identity.node is None:
        raise HTTPException(401, "neither the join secret nor a node's token", {"WWW-Authenticate": "Bearer"})
    return identity


def _enrol_node(credentials: Credentials, identity: Identity | None, body: bytes) -> dict[str, object]:
    node = _object(body, "enrol").get("node")
    if not isinstance(node, str):
        raise BadInputError("enrol", "node", "expected the node's name")
    if identity is not None and identity.node != node:
        raise HTTPException(403, f"the token is of node {identity.node!r}")
    made, secret = credentials.enrol(node)
    LOG.info("node %r enrolled (%s)", node, made.credential_id)
    return {**made.document(), "token": secret}


def _check_sender(batch: batches.Checked, identity: Identity) -> None:
    """Refuse a batch in which a node's own token speaks for another node."""
    if identity.node is None:
        return
    others = ({batch.agent} | batch.nodes) - {identity.node}
    if others:
        raise HTTPException(403, f"the token is of node {identity.node!r}; the batch also speaks of {min(others)!r}")


async def _body(request: Request) -> bytes:
    """Read a body, giving up as soon as it is larger than any batch may be."""
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > wire.MAX_COMPRESSED_BYTES:
            raise HTTPException(413, f"at most {wire.MAX_COMPRESSED_BYTES} bytes are taken: send parts")
    return bytes(chunks)


def _decode(body: bytes, origin: str) -> wire.Batch:
    return wire.decode(body, orjson.loads, origin)


def _object(body: bytes, origin: str) -> dict[str, object]:
    try:
        content = orjson.loads(body)
    except ValueError as cause:
        raise BadInputError(origin, None, f"not JSON ({cause})") from cause
    if not isinstance(content, dict):
        raise BadInputError(origin, None, "expected an object")
    return content


def _cluster_and_ids(body: bytes) -> tuple[str, list[str]]:
    asked = _object(body, "past_attempts")
    cluster, ids = asked.get("cluster"), asked.get("scheduler_job_ids")
    if not isinstance(cluster, str) or not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        raise BadInputError("past_attempts", None, "expected a cluster and a list of scheduler_job_ids")
    return cluster, ids


def _records(batch: wire.Batch) -> list[RecordId]:
    table = batch.tables.get(wire.LEDGER_ONLY, wire.Table(0, {}))
    keys, hashes = table.columns.get("record_key", []), table.columns.get("content_hash", [])
    if not isinstance(keys, list) or not isinstance(hashes, list) or len(keys) != len(hashes):
        raise BadInputError(batch.agent, wire.LEDGER_ONLY, "expected as many keys as hashes")
    if not all(isinstance(key, str) for key in keys) or not all(isinstance(value, int) for value in hashes):
        raise BadInputError(batch.agent, wire.LEDGER_ONLY, "keys are texts and hashes whole numbers")
    return [RecordId(key, value) for key, value in zip(keys, hashes, strict=True)]


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
