"""What is told of the tables: every column that can be stored, its unit as the name says it, what it means."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from warehouse.contract.metrics import METRIC_COLUMNS
from warehouse.contract.wire import LEDGER_ONLY
from warehouse.schema_commands import schema_command, schema_document
from warehouse.stored import STORED_TYPES


def test_every_table_and_column_is_told_with_a_meaning_of_tables_and_metrics() -> None:
    tables: Any = schema_document()["tables"]
    assert {name: list(table["columns"]) for name, table in tables.items()} == {
        name: list(types) for name, types in STORED_TYPES.items() if name != LEDGER_ONLY
    }
    assert all(table["meaning"] for table in tables.values())
    metrics = tables["device_sample"]["columns"]
    assert all(metrics[column]["unit"] and metrics[column]["meaning"] for column in METRIC_COLUMNS)
    assert tables["attempt"]["columns"]["start_at"]["unit"] == "instant, UTC"


def test_people_read_a_line_a_column() -> None:
    told = CliRunner().invoke(schema_command, [])
    assert told.exit_code == 0
    assert sum(line.startswith("    ") for line in told.output.splitlines()) == sum(
        len(types) for name, types in STORED_TYPES.items() if name != LEDGER_ONLY
    )
