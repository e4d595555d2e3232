"""Commands of the warehouse: ``import``, ``serve``, ``settings``."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from warehouse import access, loading, logs, machine
from warehouse.contract.errors import BadUseError
from warehouse.importer import ImportOptions
from warehouse.options import data_option, json_option, pass_composition
from warehouse.server_settings import LOG_FORMAT
from warehouse.settings import (
    CLUSTER_NAME,
    CLUSTER_ZONE,
    IMPORT_CHUNK_CHARACTERS,
    IMPORT_CHUNK_RECORDS,
    IMPORT_MAX_FIELD_CHARACTERS,
    IMPORT_REQUEUE_WINDOW_SECONDS,
    MEMORY_LIMIT_RATIO,
    SERVER_HOST,
    SERVER_PORT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import TaskID

    from warehouse.client import Composition
    from warehouse.contract.settings import AnySetting, Settings


@click.command("serve")
@data_option
@click.option("--host", help="Address to listen on; default: setting server.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; default: setting server.port; 0: any free one.")
@pass_composition
def serve_command(composition: Composition, data: Path, host: str | None, port: int | None) -> None:
    """Own the store of a data directory: take batches, answer questions, until stopped."""
    from warehouse import comeback, purge, tls
    from warehouse.committer import Committer
    from warehouse.keeper import Keeper
    from warehouse.server import Listening, create_app, serve
    from warehouse.store import open_store

    settings = composition.settings()
    logs.configure(settings[LOG_FORMAT])
    files = tls.chosen(settings)
    store = open_store(data, create=True, memory_limit_bytes=_memory_limit_bytes(settings), recover=True)
    try:
        comeback.restore(store, data)
        purge.catch_up(store)
        tokens = access.ensure_tokens(data)
        access.ensure_join_secret(data)
        chosen = settings[SERVER_PORT] if port is None else port
        with Committer(store, data, settings) as committer, Keeper(store, data, settings):
            app = create_app(store, committer, composition.answers(), settings, tokens)
            where = Listening(host or settings[SERVER_HOST], chosen, files)
            serve(store, app, where, tokens.by_role[access.Role.OPERATOR])
    finally:
        store.close()


def _memory_limit_bytes(settings: Settings) -> int:
    return int(machine.memory_bytes() * settings[MEMORY_LIMIT_RATIO])


@click.command("import")
@click.argument("format_name", metavar="FORMAT")
@click.argument("sources", metavar="PATH...", nargs=-1)
@data_option
@click.option("--cluster", help="Name of the cluster, where the file has none; default: setting cluster.name.")
@click.option("--tz", "zone", help="IANA zone of times without an offset; default: setting cluster.zone.")
@click.option("--node", help="Node of measurements that do not name one.")
@click.option("--job", help="Scheduler's id of the job that measurements of a device belong to.")
@click.option("--since", help="First instant to ask a server for, ISO 8601; default: a day before --until.")
@click.option("--until", help="Instant up to which to ask a server, ISO 8601; default: now.")
@click.option("--template", is_flag=True, help="Print an example of the format and stop.")
@json_option
@pass_composition
def import_command(
    composition: Composition,
    format_name: str,
    sources: tuple[str, ...],
    data: Path,
    *,
    cluster: str | None,
    zone: str | None,
    node: str | None,
    job: str | None,
    since: str | None,
    until: str | None,
    template: bool,
    as_json: bool,
) -> None:
    """Read foreign history into the store. Importing the same thing twice changes nothing.

    FORMAT is one of the importers listed in docs/import.md; several PATHs may be given, .gz too.
    prometheus-server takes the address of a Prometheus server instead.
    """
    importers = loading.importers()
    format_name = format_name.replace("-", "_")
    if format_name not in importers:
        raise BadUseError(f"no format {format_name!r}; there are {', '.join(importers)}")
    importer = importers[format_name]
    if template:
        click.echo(importer.example, nl=False)
        return
    if not sources:
        raise BadUseError("name at least one file to import")
    settings = composition.settings()
    options = ImportOptions(
        cluster=cluster or settings[CLUSTER_NAME],
        zone=zone or settings[CLUSTER_ZONE],
        max_field_characters=settings[IMPORT_MAX_FIELD_CHARACTERS],
        requeue_window_seconds=settings[IMPORT_REQUEUE_WINDOW_SECONDS],
        node=node,
        job=job,
        since_at=_instant("--since", since, zone or settings[CLUSTER_ZONE]),
        until_at=_instant("--until", until, zone or settings[CLUSTER_ZONE]),
        settings=settings,
    )
    client = composition.open_client(data, True)  # noqa: FBT003 - create the store if there is none
    try:
        with _progress_bar(show=not as_json) as advance:
            report = loading.load_files(
                client,
                importer,
                [source if loading.is_address(source) else Path(source) for source in sources],
                options,
                advance,
                chunk_records=settings[IMPORT_CHUNK_RECORDS],
                chunk_characters=settings[IMPORT_CHUNK_CHARACTERS],
            )
    finally:
        client.close()
    click.echo(json.dumps(report.document(), indent=2) if as_json else report.text())
    sys.exit(report.exit_code)


def _instant(option: str, text: str | None, zone: str) -> float | None:
    """Read an instant of an option; one without an offset is in the zone.

    Raises:
        BadUseError: it is none.

    """
    from warehouse.imports._values import BadRowError, Clock

    if text is None:
        return None
    try:
        return Clock(zone).at(option, text)
    except BadRowError as bad:
        raise BadUseError(bad.detail) from None


@contextmanager
def _progress_bar(*, show: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Draw a bar on stderr over the bytes of each file; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (show and console.is_terminal)) as progress:
        tasks: dict[str, TaskID] = {}

        def advance(file: str, done_bytes: int, total_bytes: int) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(escape(file), total=total_bytes)
            progress.update(tasks[file], completed=done_bytes)

        yield advance


MOST_READABLE_COLUMNS = 120
"""Longer lines of prose are hard to follow, however wide the terminal is."""


@click.command("settings")
@click.option("--show", is_flag=True, help="Print every setting with its value, unit and origin.")
@json_option
@pass_composition
def settings_command(composition: Composition, *, show: bool, as_json: bool) -> None:
    """Check the settings; with --show print every one with its value and origin."""
    settings = composition.settings()
    known = composition.registry()
    if as_json:
        click.echo(json.dumps({"settings": [_as_document(settings, setting) for setting in known]}, indent=2))
    elif show:
        width = min(shutil.get_terminal_size().columns, MOST_READABLE_COLUMNS)
        for setting in known:
            value = _shown(settings[setting])  # type: ignore[misc]
            click.echo(f"{setting.name} = {value}  ({setting.unit}; {settings.origin(setting)})")
            click.echo(click.wrap_text(setting.reason, width, "    ", "    "))
    else:
        click.echo(f"{len(known)} settings, {len(settings.values)} set; all is well. --show prints them.")


def _as_document(settings: Settings, setting: AnySetting) -> dict[str, object]:
    return {
        "name": setting.name,
        "value": settings[setting],  # type: ignore[misc]
        "default": setting.default,
        "unit": setting.unit,
        "origin": settings.origin(setting),
        "reason": setting.reason,
        "variable": setting.variable,
    }


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
