"""The command ``sql``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warehouse.client import open_client
from warehouse.options import data_option, json_option, pass_composition
from warehouse.terminal import show

if TYPE_CHECKING:
    from warehouse.client import Composition


@click.command("sql")
@click.argument("statement", metavar="SELECT")
@data_option
@json_option
@pass_composition
def sql_command(composition: Composition, statement: str, data: Path, *, as_json: bool) -> None:
    """Run one SELECT over the tables that `trueload schema` lists, read-only; - reads it from stdin.

    Through a server this needs the setting sql.over_http.
    """
    text = sys.stdin.read() if statement == "-" else statement
    client = open_client(data, composition.answers(), composition.settings())
    try:
        found = client.sql(text)
    finally:
        client.close()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    columns, rows = found["columns"], found["rows"]
    names = columns if isinstance(columns, list) else []
    table = Table(*names)
    for row in rows if isinstance(rows, list) else []:
        table.add_row(*(Text("\N{EM DASH}" if row[name] is None else str(row[name])) for name in names))
    show(table)
    if found["cut"]:
        click.echo("there are more rows (setting sql.most_rows)", err=True)
