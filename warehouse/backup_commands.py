"""The commands ``backup``, ``restore`` and ``verify``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warehouse.client import open_client
from warehouse.options import data_option, json_option, pass_composition

if TYPE_CHECKING:
    from warehouse.client import Composition, Document

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("backup")
@data_option
@click.option("--to", "target", type=FOLDER, required=True, help="New folder for the backup.")
@json_option
@pass_composition
def backup_command(composition: Composition, data: Path, target: Path, *, as_json: bool) -> None:
    """Copy the store into a folder, open the copy and count it. A server that runs goes on serving.

    Files of the lake that are not there are named; the rest is backed up, and the command ends with 1.
    """
    client = open_client(data, composition.answers(), composition.settings())
    try:
        made = client.back_up(target.resolve())
    finally:
        client.close()
    missing = made["missing_files"]
    if as_json:
        click.echo(json.dumps(made, indent=2))
    else:
        click.echo(f"{target}: {made['bytes']} bytes, {made['lake_files']} files of the lake, opened and counted")
        for name in missing if isinstance(missing, list) else []:
            click.echo(
                f"{name}: is not in the lake and so not in the backup; bring it back from an earlier one", err=True
            )
    sys.exit(1 if missing else 0)


@click.command("restore")
@data_option
@click.option("--from", "backup", type=FOLDER, required=True, help="Folder of the backup.")
@click.option(
    "--tombstones",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="The file tombstones.json of the old store: what was purged since the backup stays out.",
)
@json_option
def restore_command(data: Path, backup: Path, tombstones: Path | None, *, as_json: bool) -> None:
    """Make a store of a backup, in a directory that has none; its tokens are revoked: give out new ones."""
    from warehouse.backup import restore_backup

    _report(restore_backup(backup, data, tombstones_file=tombstones), as_json=as_json)


@click.command("verify")
@data_option
@json_option
@pass_composition
def verify_command(composition: Composition, data: Path, *, as_json: bool) -> None:
    """Read every value of the store and the lake, and hold the counts against each other; exit 1 if any is wrong."""
    client = open_client(data, composition.answers(), composition.settings())
    try:
        found = client.verify()
    finally:
        client.close()
    _report(found, as_json=as_json)


def _report(found: Document, *, as_json: bool) -> None:
    checks = found["checks"]
    listed = checks if isinstance(checks, list) else []
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        wrong = [check for check in listed if not check["ok"]]
        for check in wrong:
            click.echo(f"{check['name']}: expected {check['expected']}, found {check['found']}")
        click.echo(f"{len(listed) - len(wrong)} of {len(listed)} checks hold")
    sys.exit(0 if found["ok"] else 1)
