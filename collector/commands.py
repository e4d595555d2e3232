"""Commands of the collector: ``agent``, and ``demo``, whose parts ``trueload up --demo`` starts."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from collector import settings as names
from collector.tracer.commands import calibrate_command, wrap_command
from warehouse.contract import wire
from warehouse.contract.settings import Settings

if TYPE_CHECKING:
    from types import FrameType

    from warehouse.contract.model import Record


HISTORY_AT_A_TIME: Final = 6
"""Batches of the past under way together: the server stores what arrives together in one transaction."""

HISTORY_GZIP_LEVEL: Final = 1
"""The fastest: the past goes over the loopback address, once."""


class Root(Protocol):
    """What the front door hands to every command; of it, this room needs the settings."""

    def settings(self) -> Settings:
        """Read file and environment."""
        ...


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Turn SIGTERM and SIGINT into an event, so that what was collected is kept and the exit code is 0."""
    stop = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")


def _override(settings: Settings, option: str, **changes: object) -> Settings:
    """Give the settings with what an option of the command line says instead."""
    changed = {f"agent.{key}": value for key, value in changes.items() if value is not None}
    origins = dict.fromkeys(changed, option)
    return Settings({**settings.values, **changed}, {**settings.origins, **origins})


# ------------------------------------------------------------------------------------------------------- agent

node_option = click.option("--node", help="Name of the node; default: setting agent.node, else the host's own.")


@click.group("agent")
def agent_command() -> None:
    """The node agent: measures every GPU of this node and sends what it saw."""


@agent_command.command("run")
@node_option
@click.pass_obj
def run_command(root: Root, node: str | None) -> None:
    """Measure until stopped (SIGTERM, Ctrl-C). What was seen is spooled first and sent then."""
    from collector.running import run_agent

    _log_to_stderr()
    with _stop_on_signals() as stop:
        run_agent(_override(root.settings(), "--node", node=node), stop)


@agent_command.command("once")
@node_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.pass_obj
def once_command(root: Root, node: str | None, *, as_json: bool) -> None:
    """Read every source over one interval and print what it says. Nothing is kept or sent."""
    from collector.running import read_once

    document: dict[str, Any] = read_once(_override(root.settings(), "--node", node=node))
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    for device in document["devices"]:
        click.echo(f"{document['node']}  {device['device_uuid']}  {device['gpu_model'] or 'unknown model'}")
        for source, values in device["readings"].items():
            told = "  ".join(f"{name}={value:g}" for name, value in values.items()) or "nothing"
            click.echo(click.wrap_text(told, shutil.get_terminal_size().columns, f"    {source:8}  ", " " * 14))


agent_command.add_command(wrap_command)
agent_command.add_command(calibrate_command)


# ------------------------------------------------------------------------------------------------------ doctor


@click.command("doctor")
@node_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.pass_obj
def doctor_command(root: Root, node: str | None, *, as_json: bool) -> None:
    """Say what can be read, mapped and traced on this node, and why not; exit code 1 when the agent would not work.

    Run it as the agent runs: as the same user, in the same container, with the same settings. Nothing is changed.
    """
    from collector.doctor.check import Site
    from collector.doctor.examine import examine
    from collector.doctor.text import show

    logging.basicConfig(level=logging.ERROR)
    answer = examine(Site(_override(root.settings(), "--node", node=node), os.environ))
    if as_json:
        click.echo(json.dumps(answer.document(), indent=2))
    else:
        show(answer)
    sys.stdout.flush()
    os._exit(0 if answer.ok else 1)  # a call that never returned must not keep the process from ending


# -------------------------------------------------------------------------------------------------------- demo


def _where(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--token-file", type=click.Path(path_type=Path), required=True, help="File with a token for agents."
        ),
        click.option("--server", required=True, help="Address of the server that takes the batches."),
        click.option("--data", type=click.Path(path_type=Path), required=True, help="Data directory of the demo."),
    ):
        command = option(command)
    return command


@click.group("demo")
def demo_command() -> None:
    """Parts of the demo cluster, as `trueload up --demo` starts them."""


@demo_command.command("history")
@_where
@click.pass_obj
def history_command(root: Root, data: Path, server: str, token_file: Path) -> None:
    """Tell the past of the demo cluster to the server: two weeks, or what was missed since. Then end."""
    from collector.running import endpoint
    from collector.ship import ParallelSender
    from collector.simulate.demo import DemoFolder, tell_history
    from collector.simulate.scenario import load_scenario

    _log_to_stderr()
    settings = _override(root.settings(), "--server", server_url=server, token_file=str(token_file))
    begin = time.monotonic()
    with _stop_on_signals() as stop:
        sender = ParallelSender(endpoint(settings), stop, HISTORY_AT_A_TIME)

        def send(batch: wire.Batch) -> None:
            sender.send(wire.encode(batch, HISTORY_GZIP_LEVEL))
            if batch.sequence == 0:
                sender.settle()  # the jobs are there before the first sample of them

        try:
            samples = tell_history(DemoFolder(data), load_scenario(), time.time(), send, sender.settle)
        finally:
            stop.set()
            sender.close()
    click.echo(f"{samples} samples of the past sent in {time.monotonic() - begin:.1f} s")


@demo_command.command("play")
@_where
@click.pass_obj
def play_command(root: Root, data: Path, server: str, token_file: Path) -> None:
    """Play the demo cluster live until stopped: what its cards do, and what its scheduler says."""
    from collector.running import endpoint, open_spool
    from collector.ship import Shipper
    from collector.simulate.demo import DemoFolder, PlayedTime
    from collector.simulate.player import Player
    from collector.simulate.scenario import MINUTE_SECONDS, load_scenario

    _log_to_stderr()
    settings = _override(root.settings(), "--server", server_url=server, token_file=str(token_file))
    folder, scenario = DemoFolder(data), load_scenario()
    start_at = folder.epoch_at() - scenario.history_minutes * MINUTE_SECONDS
    with _stop_on_signals() as stop, open_spool(settings, folder.spool("scheduler"), "demo-scheduler") as spool:
        shipper = Shipper(spool, endpoint(settings))
        shipper.start()

        def tell(records: list[Record]) -> None:
            spool.put(wire.from_records(records))
            shipper.wake()

        try:
            with Player(scenario, start_at, folder.path, tell) as player:
                player.run(stop, PlayedTime(folder).extend)
        finally:
            shipper.stop(settings[names.STOP_SECONDS])
