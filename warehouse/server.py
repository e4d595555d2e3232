"""The one process that owns the store, and its HTTP interface. No route reads or writes without a token."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import uvicorn
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from warehouse import access, tls
from warehouse.agent_desk import AgentDesk
from warehouse.clocks import Clocks
from warehouse.contract.clocks import CLOCK_OFF_SECONDS
from warehouse.contract.errors import StoreError
from warehouse.credentials import Credentials
from warehouse.door import Door
from warehouse.figures import Figures
from warehouse.observe import Observations
from warehouse.pulse import LEAVE_SECONDS, Pulse, leave_within
from warehouse.routes import (
    advices,
    agents,
    delivery,
    freehand,
    identity,
    imports,
    mails,
    numbers,
    questions,
    texts,
    upkeep,
)
from warehouse.server_settings import ANSWER_AGE_SECONDS
from warehouse.settings import SHARED_AGENT_TOKEN
from warehouse.web import Site, end_questions_at, explain_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.access import Tokens
    from warehouse.client import Answer
    from warehouse.committer import Committer
    from warehouse.contract.settings import Settings
    from warehouse.store import Store

LOG = logging.getLogger("trueload.server")
GRACE_SECONDS = 5
"""How long open requests may still run after the server was told to stop; then they are cut off."""

LAST_QUESTION_SECONDS = 3.0
"""How long questions may: early enough that who asked is still told."""

ROUTES = (numbers, identity, delivery, agents, questions, freehand, imports, texts, mails, advices, upkeep)


def create_app(
    store: Store, committer: Committer, answers: Mapping[str, Answer], settings: Settings, tokens: Tokens
) -> FastAPI:
    """Build the application over an open store and a running committer."""
    store.freshness.most_seconds = settings[ANSWER_AGE_SECONDS]
    app = FastAPI(title="trueload", docs_url=None, redoc_url=None, openapi_url=None)
    credentials = Credentials(store)
    door = Door(tokens, credentials, shared_agent_token=settings[SHARED_AGENT_TOKEN])
    desk = AgentDesk(store)
    clocks = Clocks(settings[CLOCK_OFF_SECONDS])
    answers = {**answers, "detail": desk.answer, "clocks": clocks.answer}
    observations = Observations(store, committer, clocks)
    observations.add(Figures(store, answers, settings))
    site = Site(store, committer, answers, settings, door, credentials, observations, desk, clocks)
    explain_errors(app)
    for routes in ROUTES:
        routes.add(app, site)
    return app


def openapi(app: FastAPI) -> dict[str, Any]:
    """Give the OpenAPI document of the interface."""
    document = get_openapi(
        title="trueload",
        version="1",
        summary="Batches in, answers out. Every route but /healthz needs a token.",
        routes=app.routes,
    )
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token; docs/server.md says which there are."}
    }
    document["security"] = [{"bearer": []}]
    for item in document["paths"].values():
        for operation in item.values():
            # FastAPI foresees 422 for everything; here what is wrong with a request is 400.
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    return document


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens, and how it speaks."""

    host: str
    port: int
    tls: tls.Files | None = None


def serve(store: Store, app: FastAPI, where: Listening, token: str) -> None:
    """Serve until told to stop (SIGINT, SIGTERM), leaving the address in the data directory while running.

    Raises:
        StoreError: the port is taken, the certificate cannot be used, or the database gave up.

    """
    data = store.data
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_SECONDS,
        access_log=False,
        **tls.options(where.tls),
    )
    pa.array([0.0])  # Arrow imports pandas at its first array: half a second, before anybody waits
    with _listen(where.host, where.port) as listener:
        bound = listener.getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        scheme, fingerprint = ("http", None) if where.tls is None else ("https", tls.fingerprint(where.tls))
        address = access.Address(f"{scheme}://{shown}:{bound[1]}", os.getpid(), token, fingerprint)
        server = _Server(config, app)
        try:
            access.publish(data, address)
        except OSError as error:  # on a full disk it still has to answer those who know where
            LOG.error("%s: the address cannot be left there (%s); commands need it to find the server", data, error)  # noqa: TRY400 - one line
        LOG.info("serving %s on %s", data, address.url)
        # uvicorn raises a signal anew once it has ended its requests; SIGTERM as such would then skip what follows.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with Pulse(store, lambda: setattr(server, "should_exit", True)) as pulse:
            try:
                server.run(sockets=[listener])
            except KeyboardInterrupt:
                # uvicorn has ended its requests by then; the interrupt itself is how the person says "enough".
                LOG.info("stopped")
            finally:
                access.withdraw(data)
    if pulse.cause is not None:
        raise StoreError(f"{data}: the database gave up and must be opened anew; start again ({pulse.cause})")


class _Server(uvicorn.Server):
    """Tells questions when they have to come to an end, and leaves in any case."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        leave_within(LEAVE_SECONDS)
        end_questions_at(self._app, time.monotonic() + LAST_QUESTION_SECONDS)
        await super().shutdown(sockets)


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
