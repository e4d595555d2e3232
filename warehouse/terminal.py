"""Tables for people: as wide as the terminal, and as wide as they need where there is none, so that nothing is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def show(table: Table) -> None:
    """Print a table to stdout. Words that do not fit are broken over lines, never cut: somebody may copy them."""
    from rich.console import Console
    from rich.measure import Measurement

    for column in table.columns:
        column.overflow = "fold"
    console = Console(highlight=False)
    if not console.is_terminal:
        without_bound = console.options.update(width=1_000_000)
        console.width = max(1, Measurement.get(console, without_bound, table).maximum)
    console.print(table)
