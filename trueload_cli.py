"""The command ``trueload`` itself: a group whose commands are loaded when they are used."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from trueload import COMMANDS, HIDDEN, answers, ask_engine, benchmarks, load_settings, own_version, registry
from warehouse.client import Composition, open_client
from warehouse.contract.errors import TrueloadError


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
        ask_engine=lambda data, engine, question, parameters: ask_engine(
            data, engine, question, parameters, load_settings(config)
        ),
        benchmarks=benchmarks,
    )


def run() -> None:
    """Run it; an error of ours is one line on stderr and an exit code."""
    try:
        cli(prog_name="trueload")
    except TrueloadError as error:
        click.echo(f"trueload: {error}", err=True)
        sys.exit(error.exit_code)
