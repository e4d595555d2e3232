"""What all routes share: what they work on, how bodies are read, how answers and errors look."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread
import duckdb
import orjson
import pyarrow as pa
from anyio.lowlevel import RunVar
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from warehouse.contract import wire
from warehouse.contract.errors import (
    BadInputError,
    BadUseError,
    NotFoundError,
    OverloadedError,
    StoreError,
    TrueloadError,
)
from warehouse.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warehouse.agent_desk import AgentDesk
    from warehouse.client import Answer
    from warehouse.clocks import Clocks
    from warehouse.committer import Committer
    from warehouse.contract.settings import Settings
    from warehouse.credentials import Credentials
    from warehouse.door import Door
    from warehouse.observe import Observations
    from warehouse.store import Store

Result = TypeVar("Result")
ARROW = "application/vnd.apache.arrow.stream"
RETRY_AFTER_SECONDS = 5
"""How long a sender that was turned away should wait; the agent adds jitter of its own."""

QUESTIONS_AT_ONCE = 2
"""Questions worked out at the same time. They take turns on the interpreter with the thread that reads batches: beside
20 readers an acknowledgement took 1.3 s with two (95th percentile), 10 to 13 s with as many as there are, and readers
waited about as long (`trueload bench readers`)."""

LOOK_SECONDS = 0.1
"""How often it is looked whether somebody still waits for an answer."""

_STATUS: tuple[tuple[type[TrueloadError], int], ...] = (
    (BadInputError, 400),
    (BadUseError, 400),
    (NotFoundError, 404),
    (OverloadedError, 429),
    (StoreError, 503),
)


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """What every refusal is: the kind of error, and what failed, on what, and what to do."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Site:
    """What routes work on."""

    store: Store
    committer: Committer
    answers: Mapping[str, Answer]
    settings: Settings
    door: Door
    credentials: Credentials
    observations: Observations
    desk: AgentDesk
    clocks: Clocks


_REFUSALS = {
    400: "The request is wrong; nothing was done.",
    401: "No valid token.",
    403: "The token's role, node or machine may not do this.",
    404: "Not there, or not to be seen with this token.",
    413: "Larger than is taken; send parts.",
    429: "Too much waits; send again after `Retry-After` seconds.",
    503: "The store cannot do it just now, or it took too long; try again after `Retry-After` seconds.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe a route's refusals for the OpenAPI document; 401, 403 and 503 can come from every route."""
    return {
        status: {"model": ErrorDocument, "description": _REFUSALS[status]}
        for status in sorted({401, 403, 503, *statuses})
    }


def body_of(schema: Mapping[str, object], *media_types: str) -> dict[str, object]:
    """Describe, for the OpenAPI document, a body that the route reads by itself."""
    kinds = media_types or ("application/json",)
    return {"requestBody": {"required": True, "content": {kind: {"schema": dict(schema)} for kind in kinds}}}


def json_answer(content: object, status: int = 200) -> Response:
    """Answer with a document."""
    return Response(orjson.dumps(content), status, media_type="application/json")


def arrow_answer(table: pa.Table) -> Response:
    """Answer with an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


def wants_arrow(request: Request) -> bool:
    """Say whether the caller asked for Arrow rather than JSON."""
    return ARROW in request.headers.get("accept", "")


def error_answer(status: int, error: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a refusal."""
    answer = json_answer({"error": error, "message": message}, status)
    answer.headers.update(headers or {})
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        answer.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return answer


def explain_errors(app: FastAPI) -> None:
    """Have every refusal look alike."""

    @app.exception_handler(TrueloadError)
    async def _explain(_request: Request, error: TrueloadError) -> Response:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        return error_answer(status, type(error).__name__, str(error))

    @app.exception_handler(StarletteHTTPException)
    async def _refuse(_request: Request, error: StarletteHTTPException) -> Response:
        return error_answer(error.status_code, HTTPStatus(error.status_code).phrase, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_request: Request, error: RequestValidationError) -> Response:
        return error_answer(400, BadUseError.__name__, "; ".join(str(item.get("msg")) for item in error.errors()))


async def read_body(request: Request) -> bytes:
    """Read a body, giving up as soon as it is larger than any batch may be."""
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > wire.MAX_COMPRESSED_BYTES:
            raise HTTPException(413, f"at most {wire.MAX_COMPRESSED_BYTES} bytes are taken: send parts")
    return bytes(chunks)


def as_object(body: bytes, origin: str) -> dict[str, object]:
    """Read a JSON object.

    Raises:
        BadInputError: it is none.

    """
    try:
        content = orjson.loads(body)
    except ValueError as cause:
        raise BadInputError(origin, None, f"not JSON ({cause})") from cause
    if b"\\u0000" in body:
        raise BadInputError(origin, None, "a text with a NUL cannot be stored")
    if not isinstance(content, dict):
        raise BadInputError(origin, None, "expected an object")
    return content


def end_questions_at(app: FastAPI, at: float) -> None:
    """Have questions that are still under way at an instant (``time.monotonic``) refused: the server will end."""
    app.state.questions_end_at = at


_AT_ONCE: RunVar[anyio.CapacityLimiter] = RunVar("questions at once")


def _questions_at_once() -> anyio.CapacityLimiter:
    """Give the limit of this event loop."""
    limiter = _AT_ONCE.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(QUESTIONS_AT_ONCE)
        _AT_ONCE.set(limiter)
    return limiter


async def while_awaited(request: Request, seconds: float, work: Callable[[], Result]) -> Result:
    """Do work in a thread for as long as the caller waits, and no longer than a time; then its queries are stopped.

    Work that is shared with another caller who left is begun again for this one.

    Raises:
        StoreError: it took longer, or the server ends.

    """
    patience, ends_at = Patience(), time.monotonic() + seconds

    def patiently() -> Result:
        with patience.applies():
            while True:
                try:
                    return work()
                except duckdb.InterruptException:
                    if patience.is_over:
                        raise

    running = asyncio.ensure_future(anyio.to_thread.run_sync(patiently, limiter=_questions_at_once()))
    try:
        while not (await asyncio.wait({running}, timeout=LOOK_SECONDS))[0]:
            now = time.monotonic()
            if patience.is_over or now > min(ends_at, _closes_at(request)) or await request.is_disconnected():
                patience.end()
        return running.result()
    except duckdb.InterruptException as cause:
        if time.monotonic() > _closes_at(request):
            raise StoreError("stopped: the server is about to end; ask again") from cause
        raise StoreError(f"stopped: it took longer than {seconds:g} s; ask about less") from cause


def _closes_at(request: Request) -> float:
    return float(getattr(request.app.state, "questions_end_at", math.inf))
