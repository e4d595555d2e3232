"""The command ``schema``: tables and columns that travel and are stored, with type, unit and meaning."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING

import click

from warehouse.contract import model
from warehouse.contract.metrics import CATALOGUE
from warehouse.options import json_option

if TYPE_CHECKING:
    from warehouse.client import Document

UNITS = {
    "_at": "instant, UTC",
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_watts": "watts",
    "_joules": "joules",
    "_celsius": "degrees Celsius",
    "_hertz": "hertz",
    "_ratio": "share, 0 to 1",
    "_count": "count",
    "_total": "count",
}
"""What the end of a column's name says of its unit."""

MEANINGS = {
    "device_sample": "One reading of a device by one source; metrics are means unless their name says so.",
    "rollup_1m": "Samples of one device and owner within a minute, as long as nothing changed that an account asks.",
    "rollup_1h": "The same within an hour.",
    "rollup_source": "How many samples of a source held each reading of a device, by owner and hour.",
}
"""What tables hold that no record of the contract stands for."""


def schema_document() -> Document:
    """Give the document of ``trueload schema --json``."""
    from warehouse.contract.wire import LEDGER_ONLY
    from warehouse.stored import STORED_TYPES

    known = {column: metric for metric in CATALOGUE for column in metric.columns}
    tables: dict[str, object] = {}
    for name, types in STORED_TYPES.items():
        if name == LEDGER_ONLY:
            continue
        columns = {
            column: {
                "type": str(kind),
                "required": required,
                "unit": known[column].unit.value if column in known else _unit(column),
                "meaning": known[column].help if column in known else None,
            }
            for column, (kind, required) in types.items()
        }
        tables[name] = {"meaning": _meaning(name), "columns": columns}
    return {"tables": tables}


def _unit(column: str) -> str | None:
    return next((unit for end, unit in UNITS.items() if column.endswith(end)), None)


def _meaning(table: str) -> str:
    kind = {**model.RECORDS, **model.SAMPLES}.get(table)
    text = MEANINGS.get(table) if kind is None else inspect.getdoc(kind)
    return (text or "").split("\n\n")[0].replace("\n", " ").replace("``", "")


@click.command("schema")
@json_option
def schema_command(*, as_json: bool) -> None:
    """Print the tables and columns that travel and are stored, with type, unit and meaning."""
    document = schema_document()
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    tables = document["tables"]
    for name, table in tables.items() if isinstance(tables, dict) else ():
        click.echo(f"{name}: {table['meaning']}")
        for column, told in table["columns"].items():
            needed = "required" if told["required"] else ""
            words = f"    {column:36} {told['type']:14} {needed:9} {told['unit'] or '':16} {told['meaning'] or ''}"
            click.echo(words.rstrip())
