"""The front door: one command, and ``connect()`` for notebooks. Each room's commands load only when they are used.

This module is the composition root: it alone knows all rooms, and hands the store its questions and every command
its settings.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warehouse.client import Composition, open_client
from warehouse.contract import settings as contract_settings
from warehouse.contract.errors import TrueloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.client import Answer, Client
    from warehouse.contract.settings import AnySetting, Settings

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("dashboards.commands", "Start everything here: server, pages and, without a GPU, a demo cluster."),
    "import": ("warehouse.commands", "Read foreign history into the store; importing twice changes nothing."),
    "waste": ("analysis.commands", "Where the allocated GPU time went, ranked by idle GPU-hours."),
    "families": ("analysis.commands", "Jobs that are the same work repeated."),
    "recommend": ("analysis.commands", "Which change would give GPU time back, with a range."),
    "job": ("analysis.commands", "What one job did with its GPUs."),
    "report": ("dashboards.commands", "The weekly report."),
    "trace": ("analysis.trace_commands", "What a profiler timeline says."),
    "analyze": ("analysis.commands", "Bring roll-ups and judgement up to date."),
    "serve": ("warehouse.commands", "The server: owns the store, takes batches, answers questions."),
    "backup": ("warehouse.backup_commands", "Copy the store into a folder, opened and counted."),
    "restore": ("warehouse.backup_commands", "Make a store of a backup."),
    "verify": ("warehouse.backup_commands", "Read everything and hold the counts against each other."),
    "token": ("warehouse.token_commands", "Tokens of people and agents: new, list, rotate, revoke."),
    "agent": ("collector.commands", "The node agent."),
    "demo": ("collector.commands", "Parts of the demo cluster, as `trueload up --demo` starts them."),
    "bench": ("analysis.commands", "The benchmarks."),
    "settings": ("warehouse.commands", "Every setting with its value and origin."),
    "schema": ("warehouse.commands", "Tables and columns of the store."),
}
"""Every command with the module that holds it (as ``<name>_command``) and its line in the help."""

HIDDEN = {"demo"}
SETTING_MODULES = (
    "warehouse.settings",
    "collector.settings",
    "analysis.settings",
    "analysis.repetition",
    "analysis.recommend",
    "dashboards.settings",
)
"""Modules with a tuple ``SETTINGS``; each room's own, and those of its plug-ins, gathered by the room."""


class LazyCommands(click.Group):
    """A group that imports a command's module when the command is used, and not before."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Give the names, in the order of a person's first use."""
        return [name for name in COMMANDS if name not in HIDDEN]

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command.

        Raises:
            click.ClickException: the extra that the command needs is not installed.

        """
        if cmd_name not in COMMANDS:
            return None
        module_name, _ = COMMANDS[cmd_name]
        try:
            command = getattr(importlib.import_module(module_name), f"{cmd_name}_command")
        except ModuleNotFoundError as cause:
            message = (
                f"`trueload {cmd_name}` needs {cause.name}, which is not installed: pip install 'trueload[server,web]'"
            )
            raise click.ClickException(message) from cause
        if not isinstance(command, click.Command):
            raise TypeError(f"{module_name}.{cmd_name}_command is no command")
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their lines, without loading any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items() if name not in HIDDEN])


def own_version() -> str:
    """Give the installed version, or ``0+unknown`` when run from a tree that is not installed."""
    try:
        return version("trueload")
    except PackageNotFoundError:
        return "0+unknown"


def registry() -> tuple[AnySetting, ...]:
    """Give every setting of every room, in order of name."""
    found: list[AnySetting] = []
    for name in SETTING_MODULES:
        found += importlib.import_module(name).SETTINGS
    return tuple(sorted(found, key=lambda setting: setting.name))


def load_settings(path: Path | None = None) -> Settings:
    """Read the settings: the file named, or in $TRUELOAD_CONFIG, or ./trueload.toml; then the environment."""
    chosen = path or _default_settings_file()
    return contract_settings.load(registry(), chosen, os.environ)


def _default_settings_file() -> Path | None:
    named = os.environ.get("TRUELOAD_CONFIG")
    if named:
        return Path(named)
    here = Path("trueload.toml")
    return here if here.exists() else None


def answers() -> Mapping[str, Answer]:
    """Give the questions that the data can be asked."""
    from analysis.pipeline import ANSWERS

    return ANSWERS


def connect(data: str | Path = "trueload-data", *, create: bool = False) -> Client:
    """Reach the data of a directory, through its server if one runs: for notebooks and scripts.

    >>> connect("trueload-data").ask("waste", {"by": "user"})  # doctest: +SKIP
    """
    return open_client(Path(data), answers(), load_settings(), create=create)


@click.command(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(own_version(), prog_name="trueload")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file; default: $TRUELOAD_CONFIG, else ./trueload.toml.",
)
@click.pass_context
def cli(ctx: click.Context, config: Path | None) -> None:
    """The true load of your GPUs, and what to do about it."""
    ctx.obj = Composition(
        open_client=lambda data, create: open_client(data, answers(), load_settings(config), create=create),
        settings=lambda: load_settings(config),
        registry=registry,
        answers=answers,
    )


def main() -> None:
    """Run the command line; an error of ours is one line on stderr and an exit code."""
    try:
        cli(prog_name="trueload")
    except TrueloadError as error:
        click.echo(f"trueload: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
