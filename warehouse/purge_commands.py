"""The command ``purge``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warehouse.client import open_client
from warehouse.options import data_option, json_option, pass_composition

if TYPE_CHECKING:
    from warehouse.client import Composition


@click.command("purge")
@data_option
@click.option("--user", help="The user name in the scheduler.")
@click.option("--project", help="An account (Slurm) or namespace (Kubernetes).")
@click.option("--cluster", help="On this cluster alone; default: on all.")
@click.option("--dry-run", is_flag=True, help="Count what would go, and change nothing.")
@click.option(
    "--backup",
    "backups",
    multiple=True,
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="A backup made before: a restore of it will leave the data out; repeat it.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_composition
def purge_command(  # noqa: PLR0913 - a command's parameters are its options
    composition: Composition,
    data: Path,
    user: str | None,
    project: str | None,
    cluster: str | None,
    backups: tuple[Path, ...],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete what is known of a person or project up to now, for good: hot file, lake, roll-ups and snapshots.

    Neither batches that are sent again nor a restored backup bring it back. What cannot be reached from here is said.
    """
    if not dry_run and not yes:
        click.confirm(f"delete the data of {user or project!r} for good?", abort=True, err=True)
    asked = {"user": user, "project": project, "cluster": cluster, "dry_run": dry_run}
    client = open_client(data, composition.answers(), composition.settings())
    try:
        done = client.purge(asked)
    finally:
        client.close()
    if backups and not dry_run:
        from warehouse.purge import add_to_backup

        for backup in backups:
            add_to_backup(backup, data)
    if as_json:
        click.echo(json.dumps(done, indent=2))
        return
    rows = done["rows"]
    for table, count in rows.items() if isinstance(rows, dict) else ():
        click.echo(f"{table:24} {count:12,}")
    click.echo("rows that would go" if dry_run else "rows that are gone")
    click.echo("Out of reach from here:")
    reach = done["out_of_reach"]
    for line in reach if isinstance(reach, list) else []:
        click.echo(f"  {line}")
