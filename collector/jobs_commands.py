"""The command ``jobs``: the collector beside a scheduler."""

from __future__ import annotations

import json
import logging
import signal
import threading
from typing import TYPE_CHECKING

import click

from warehouse.contract.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from collector.commands import Root

OPTIONS = {"source": "jobs.source", "server": "agent.server_url", "token_file": "agent.token_file"}
"""The settings that options of the command line say instead."""


def _chosen(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--token-file", help="File with the token; default: setting agent.token_file."),
        click.option("--server", help="Address of the server; default: setting agent.server_url."),
        click.option("--source", help="Whose accounting; default: setting jobs.source."),
    ):
        command = option(command)
    return command


def _override(settings: Settings, chosen: dict[str, str | None]) -> Settings:
    """Give the settings with what the command line says instead."""
    given = {OPTIONS[name]: value for name, value in chosen.items() if value is not None}
    origins = {OPTIONS[name]: f"--{name.replace('_', '-')}" for name, value in chosen.items() if value is not None}
    return Settings({**settings.values, **given}, {**settings.origins, **origins})


@click.group("jobs")
def jobs_command() -> None:
    """What a scheduler's accounting knows of jobs goes to the server: one collector a cluster."""


@jobs_command.command("run")
@_chosen
@click.pass_obj
def run_command(root: Root, /, **chosen: str | None) -> None:
    """Go on until stopped (SIGTERM, Ctrl-C): Slurm's accounting by the interval, Kubernetes as it changes."""
    from collector.accounting import open_accounting
    from collector.following import open_follower, run_follower

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    settings = _override(root.settings(), chosen)
    follower = open_follower(settings)
    accounting = open_accounting(settings) if follower is None else None
    stop = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if accounting is not None:
            accounting.run(stop)
        elif follower is not None:
            run_follower(settings, follower, stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@jobs_command.command("once")
@_chosen
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.pass_obj
def once_command(root: Root, /, *, as_json: bool, **chosen: str | None) -> None:
    """Bring in what happened since the last time, up to now, and say what became of it."""
    from collector.accounting import open_accounting
    from collector.following import look_once, open_follower

    settings = _override(root.settings(), chosen)
    follower = open_follower(settings)
    if follower is not None:
        count = look_once(settings, follower)
        click.echo(json.dumps({"records": count}, indent=2) if as_json else f"{count} records sent")
        return
    tally = open_accounting(settings).catch_up()
    if as_json:
        click.echo(json.dumps(tally.document(), indent=2))
        return
    click.echo(
        f"{tally.rows} rows read in {tally.windows} windows: {tally.kept} kept, {tally.unchanged} unchanged, "
        f"{tally.rejected} rejected"
    )
    for reason, count in tally.reasons.items():
        click.echo(f"rejected {count}: {reason}")
