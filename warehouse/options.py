"""Command-line options that several rooms share, so that they are spelt and explained once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from warehouse.client import Composition

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEFAULT_DATA = Path("trueload-data")

data_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA,
    envvar="TRUELOAD_DATA",
    show_default=True,
    show_envvar=True,
    help="Directory of the store.",
)
json_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
)
pass_composition: Callable[[Callable[..., Any]], Callable[..., Any]] = click.make_pass_decorator(Composition)
