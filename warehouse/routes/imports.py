"""Foreign history comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from warehouse import ingest, web
from warehouse.access import Role
from warehouse.contract.errors import BadInputError
from warehouse.routes.bodies import decode, records

if TYPE_CHECKING:
    from fastapi import FastAPI

BATCH = {"type": "string", "format": "binary"}


@dataclass(frozen=True, slots=True)
class PastAttempts:
    """Attempts that are known of some of a scheduler's job ids."""

    attempts: list[dict[str, object]]


@dataclass(frozen=True, slots=True)
class New:
    """For each record, whether its content was never loaded."""

    new: list[bool]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rows are durable."""

    acknowledged: bool


def add(app: FastAPI, site: web.Site) -> None:
    """Add the routes."""
    operators = Depends(site.door.for_roles(Role.OPERATOR))
    ids = {"type": "array", "items": {"type": "string"}}
    asked_schema = {"type": "object", "properties": {"cluster": {"type": "string"}, "scheduler_job_ids": ids}}

    @app.post(
        "/v1/past_attempts",
        summary="Give the attempts that are known of a scheduler's job ids.",
        dependencies=[operators],
        responses={200: {"model": PastAttempts}, **web.refusals(400, 413)},
        openapi_extra=web.body_of({**asked_schema, "required": ["cluster", "scheduler_job_ids"]}),
    )
    async def past_attempts(request: Request) -> Response:
        cluster, wanted = _cluster_and_ids(await web.read_body(request))
        return web.json_answer({"attempts": await run_in_threadpool(ingest.past_attempts, site.store, cluster, wanted)})

    @app.post(
        "/v1/imports/{format_name}/new",
        summary="Say which records of a foreign file are new.",
        dependencies=[operators],
        responses={200: {"model": New}, **web.refusals(400, 413)},
        openapi_extra=web.body_of(BATCH, "application/gzip"),
    )
    async def which_are_new(format_name: str, request: Request) -> Response:
        batch = await run_in_threadpool(decode, await web.read_body(request), format_name)
        found = await run_in_threadpool(ingest.which_are_new, site.store, format_name, records(batch))
        return web.json_answer({"new": found})

    @app.post(
        "/v1/imports/{format_name}",
        summary="Load the rows of new records, all or nothing.",
        dependencies=[operators],
        responses={200: {"model": Loaded}, **web.refusals(400, 413, 429)},
        openapi_extra=web.body_of(BATCH, "application/gzip"),
    )
    async def load(format_name: str, request: Request) -> Response:
        batch = await run_in_threadpool(decode, await web.read_body(request), format_name)
        site.committer.require_space()
        await run_in_threadpool(ingest.load_import, site.store, format_name, records(batch), batch.tables)
        return web.json_answer({"acknowledged": True})


def _cluster_and_ids(body: bytes) -> tuple[str, list[str]]:
    asked = web.as_object(body, "past_attempts")
    cluster, ids = asked.get("cluster"), asked.get("scheduler_job_ids")
    if not isinstance(cluster, str) or not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        raise BadInputError("past_attempts", None, "expected a cluster and a list of scheduler_job_ids")
    return cluster, ids
