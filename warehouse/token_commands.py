"""The command ``token``: who may do what on a server. Tokens go into files, never into arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warehouse import access
from warehouse.access import Role
from warehouse.client import open_client
from warehouse.options import data_option, json_option, pass_composition
from warehouse.terminal import show as show_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.client import Composition, Document

file_option = click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="New file for the token, of mode 600; default: ROLE-NAME-ID.token here.",
)
show_option = click.option("--show", is_flag=True, help="Print the token to stdout instead of writing a file.")


@click.group("token")
def token_command() -> None:
    """Tokens of people and agents. What is revoked is refused from then on."""


@token_command.command("list")
@data_option
@json_option
@pass_composition
def list_command(composition: Composition, data: Path, *, as_json: bool) -> None:
    """List the tokens that were given out, and which of them still hold."""
    document = _manage(composition, data, "list", {})
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("id", "role", "name", "node", "accounts", "created", "last used", "revoked")
    credentials = document["credentials"]
    for known in credentials if isinstance(credentials, list) else []:
        words = (
            known["credential_id"],
            known["role"],
            known["name"],
            known["node"],
            ", ".join(known["accounts"]),
            known["created_at"],
            known["last_used_at"],
            known["revoked_at"],
        )
        table.add_row(*(Text(str(word or "\N{EM DASH}")) for word in words))
    table.columns[0].no_wrap = True  # rotate and revoke ask for it
    show_table(table)


@token_command.command("new")
@data_option
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True, help="What the token allows.")
@click.option("--name", required=True, help="Whose it is; for a user or lead the user name in the scheduler.")
@click.option("--node", help="For an agent: the one node that it may speak for.")
@click.option("--account", "accounts", multiple=True, help="For a lead: an account whose jobs are seen; repeat it.")
@file_option
@show_option
@pass_composition
def new_command(
    composition: Composition, data: Path, role: str, file: Path | None, *, show: bool, **asked: object
) -> None:
    """Make a token."""
    chosen = {"role": role, **asked, "accounts": list(asked.get("accounts") or ())}  # type: ignore[call-overload]
    _hand_over(composition, data, "new", chosen, file, show=show)


@token_command.command("rotate")
@data_option
@click.argument("credential_id", required=False)
@click.option("--join", is_flag=True, help="Replace the secret that agents enrol with; enrolled ones stay.")
@file_option
@show_option
@pass_composition
def rotate_command(
    composition: Composition, data: Path, credential_id: str | None, file: Path | None, *, join: bool, show: bool
) -> None:
    """Replace a token by a new one of the same rights; the old one is refused from then on."""
    if join == bool(credential_id):
        raise click.UsageError("name the token's id (`trueload token list`), or give --join")
    if join:
        click.echo(f"agents enrol with the secret in {access.rotate_join_secret(data)} from now on")
        return
    _hand_over(composition, data, "rotate", {"credential_id": credential_id}, file, show=show)


@token_command.command("revoke")
@data_option
@click.argument("credential_id")
@pass_composition
def revoke_command(composition: Composition, data: Path, credential_id: str) -> None:
    """Refuse a token from now on."""
    known = _manage(composition, data, "revoke", {"credential_id": credential_id})
    click.echo(f"{known['credential_id']} ({known['role']} {known['name']}) is revoked")


def _manage(composition: Composition, data: Path, action: str, asked: Mapping[str, object]) -> Document:
    client = open_client(data, composition.answers(), composition.settings())
    try:
        return client.manage_tokens(action, asked)
    finally:
        client.close()


def _hand_over(
    composition: Composition, data: Path, action: str, asked: Mapping[str, object], file: Path | None, *, show: bool
) -> None:
    """Make a token and give it to the person: as a file, or shown. A file that is in the way is found out before."""
    if file is not None and file.exists() and not show:
        raise click.UsageError(f"{file}: exists; a token is never written over another file")
    made = _manage(composition, data, action, asked)
    token = str(made["token"])
    if show:
        click.echo(token)
        return
    name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{made['role']}-{made['name']}-{made['credential_id']}")
    path = file or Path(f"{name}.token")
    access.write_token(path, token)
    click.echo(f"{made['credential_id']}: token of {made['role']} {made['name']} is in {path}")
