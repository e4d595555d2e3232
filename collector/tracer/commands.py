"""Commands about traced jobs: ``trueload agent wrap`` and ``trueload agent calibrate``."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Protocol

import click

from warehouse.contract.errors import SettingsError
from warehouse.contract.settings import Settings


class Root(Protocol):
    """What the front door hands to every command; of it, the settings are needed."""

    def settings(self) -> Settings:
        """Read file and environment."""
        ...


@click.command(
    "wrap",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[-h]",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND [ARGUMENTS]...")
@click.pass_obj
def wrap_command(root: Root, command: tuple[str, ...]) -> None:
    """Run a program with the tracer in it. Its exit code, signals and output are its own.

    A tool that has CUDA_INJECTION64_PATH keeps it; the program then runs untraced, and one line says so.
    """
    from collector.tracer.wrap import become, traced_environment

    settings, unreadable = _settings_or_defaults(root)
    environment, notes = traced_environment(os.environ, settings)
    for note in [*unreadable, *notes]:
        click.echo(f"trueload: {note}", err=True)
    become(command, environment)


def _settings_or_defaults(root: Root) -> tuple[Settings, list[str]]:
    """Read the settings; a job must not fail for a mistake in them."""
    try:
        return root.settings(), []
    except SettingsError as error:
        return Settings(), [f"{error}; the tracer runs with its defaults"]


@click.command("calibrate")
@click.option("--device", type=click.IntRange(min=0), default=0, show_default=True, help="CUDA ordinal of the GPU.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Processes with and without the tracer."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.pass_obj
def calibrate_command(root: Root, device: int, rounds: int, *, as_json: bool) -> None:
    """Measure what being traced adds to a kernel launch on this GPU, and keep it for the agent's correction.

    Takes a few seconds; the GPU should be idle. Once for each GPU model, driver and CUPTI is enough.
    """
    from collector.tracer import launch_costs
    from collector.tracer.calibrate import measure_launch_cost
    from collector.tracer.settings import LAUNCH_COSTS_FILE

    path = Path(root.settings()[LAUNCH_COSTS_FILE])
    launch_costs.read(path)  # a damaged file is told before anything is measured
    cost = measure_launch_cost(device, rounds)
    launch_costs.store(path, launch_costs.Measured(cost, time.time()))
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(cost), "launch_costs_file": str(path)}, indent=2))
        return
    click.echo(f"{cost.gpu_model}, CUPTI {cost.cupti_version}, CUDA driver {cost.cuda_driver_version}")
    click.echo(f"a launch takes {cost.untraced_nanoseconds:,.0f} ns untraced, {cost.traced_nanoseconds:,.0f} ns traced")
    click.echo(f"added per launch: {cost.added_nanoseconds:,.0f} ns, give or take {cost.spread_nanoseconds:,.0f} ns")
    click.echo(f"kept in {path}")
