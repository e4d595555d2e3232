"""Commands of the judgement: ``waste``, ``families``, ``recommend``, ``job``, ``analyze``, ``bench``."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analysis import family_edits, tables
from analysis.benchmark import BenchRequest, BenchResult, bench_document
from warehouse.contract.errors import BadUseError
from warehouse.contract.metrics import Rung
from warehouse.options import data_option, json_option, pass_composition

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from warehouse.client import Composition, Document

BY = ("user", "account", "team", "project", "cost_centre", "gpu_model", "partition", "week", "job")
DEFAULT_DATA_ROOT = Path("../shared/data")

_WINDOW_OPTIONS = (
    click.option("--since", help="Begin of the window: a date or an instant, ISO 8601; default: the first known."),
    click.option("--until", help="End of the window, not included; default: the last known."),
    click.option("--week", help="An ISO week such as 2026-W44, instead of --since and --until."),
    click.option("--zone", help="IANA zone of weeks and of instants without an offset; default: setting report.zone."),
    click.option(
        "--rung",
        type=click.Choice([rung.value for rung in Rung]),
        help="Which measure of busy to use; default: the best that covers enough of the time.",
    ),
    click.option(
        "--pseudonyms",
        is_flag=True,
        flag_value="yes",
        default=None,
        help="Show pseudonyms for people, accounts and directories, to pass the answer on (docs/identity.md).",
    ),
)


def _window_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_WINDOW_OPTIONS):
        command = option(command)
    return command


_engine_option = click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="What computes: duckdb asks the server or the store; spark reads the sealed days of the lake (docs/scale.md).",
)


@click.command("waste")
@click.option("--by", type=click.Choice(BY), help="One row for each of these.")
@_window_options
@_engine_option
@data_option
@json_option
@pass_composition
def waste_command(composition: Composition, data: Path, *, as_json: bool, engine: str, **question: str | None) -> None:
    """Where the allocated GPU time went, ranked by idle GPU-hours."""
    _answer(composition, data, engine, ("waste", question), as_json, tables.waste_table)


@click.group("families", invoke_without_command=True)
@_window_options
@_engine_option
@data_option
@json_option
@pass_composition
def families_command(
    composition: Composition, data: Path, *, as_json: bool, engine: str, **question: str | None
) -> None:
    """Jobs that are the same work repeated, with why they belong together and what varies.

    A family that was not found well can be split, merged into another, or renamed: the changes are written to the file
    of the setting families.edits_file, with who made them, when and why.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    _answer(composition, data, engine, ("families", question), as_json, tables.families_table)


_why_option = click.option("--why", default="", help="Why, for those who read the changes later.")


@families_command.command("split")
@click.argument("family", metavar="FAMILY")
@click.option("--by", "value", required=True, help="A column (partition, image, …) or a parameter (lr, batch_size, …).")
@_why_option
@pass_composition
def split_command(composition: Composition, family: str, value: str, why: str) -> None:
    """Part FAMILY by what its jobs have different; each part is a family from then on."""
    _change(composition, family_edits.SPLIT, family, value, why)


@families_command.command("merge")
@click.argument("family", metavar="FAMILY")
@click.argument("value", metavar="INTO")
@_why_option
@pass_composition
def merge_command(composition: Composition, family: str, value: str, why: str) -> None:
    """Make the jobs of FAMILY part of the family INTO."""
    _change(composition, family_edits.MERGE, family, value, why)


@families_command.command("rename")
@click.argument("family", metavar="FAMILY")
@click.argument("value", metavar="NAME")
@_why_option
@pass_composition
def rename_command(composition: Composition, family: str, value: str, why: str) -> None:
    """Call FAMILY by another NAME."""
    _change(composition, family_edits.RENAME, family, value, why)


@families_command.command("undo")
@click.argument("value", metavar="NUMBER")
@_why_option
@pass_composition
def undo_command(composition: Composition, value: str, why: str) -> None:
    """Take a change back, by its number; both stay written down."""
    _change(composition, family_edits.UNDO, "", value, why)


@families_command.command("edits")
@json_option
@pass_composition
def edits_command(composition: Composition, *, as_json: bool) -> None:
    """Every change that was ever made to families: who, when, what, why."""
    found = family_edits.history(composition.settings()[family_edits.EDITS_FILE])
    _print(
        {"edits": [{"number": at, **asdict(one)} for at, one in enumerate(found, 1)]},
        tables.edits_text,
        as_json=as_json,
    )


def _change(composition: Composition, do: str, family: str, value: str, why: str) -> None:
    edit = family_edits.add_edit(composition.settings(), do, family, value, why)
    click.echo(f"{edit.do} {edit.family_id} {edit.value}: written down for {edit.who} at {edit.at}")


@click.command("recommend")
@_window_options
@_engine_option
@data_option
@json_option
@pass_composition
def recommend_command(
    composition: Composition, data: Path, *, as_json: bool, engine: str, **question: str | None
) -> None:
    """Which change would have given GPU time back, with a range; and what is not estimable, and why."""
    _answer(composition, data, engine, ("recommend", question), as_json, tables.recommend_text)


@click.command("job")
@click.argument("id", metavar="ID")
@_window_options
@_engine_option
@data_option
@json_option
@pass_composition
def job_command(composition: Composition, data: Path, *, as_json: bool, engine: str, **question: str | None) -> None:
    """What one job did with its GPUs. ID is a job key (alex/679694#0), or the scheduler's id where it is unique."""
    _answer(composition, data, engine, ("job", question), as_json, tables.job_text)


@click.command("analyze")
@_window_options
@_engine_option
@data_option
@json_option
@pass_composition
def analyze_command(
    composition: Composition, data: Path, *, as_json: bool, engine: str, **question: str | None
) -> None:
    """Bring roll-ups and judgement up to date; the other commands do it by themselves, when asked."""
    _answer(composition, data, engine, ("analyze", question), as_json, tables.facts_text)


def _answer(
    composition: Composition,
    data: Path,
    engine: str,
    asked: tuple[str, dict[str, str | None]],
    as_json: bool,
    draw: Callable[[Document], RenderableType],
) -> None:
    name, parameters = asked[0], {key: value for key, value in asked[1].items() if value is not None}
    if engine == "spark":
        document = composition.ask_engine(data, engine, name, parameters)
    else:
        client = composition.open_client(data, False)  # noqa: FBT003 - a question creates no store
        try:
            document = client.ask(name, parameters)
        finally:
            client.close()
    _print(document, draw, as_json=as_json)


def _print(document: Document, draw: Callable[[Document], RenderableType], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        tables.show(draw(document))


@click.command("bench")
@click.argument("name", metavar="NAME")
@click.option(
    "--data-root",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="TRUELOAD_DATA_ROOT",
    default=DEFAULT_DATA_ROOT,
    show_default=True,
    show_envvar=True,
    help="Folder with one folder for each source.",
)
@click.option("--full", is_flag=True, help="Judge everything, however long it takes.")
@click.option(
    "--seconds",
    type=click.FloatRange(1.0, 86400.0),
    help="How long one lasts that goes on as long as it is told (soak).",
)
@click.option("--predictions", type=click.Path(dir_okay=False, path_type=Path), help="Write each judged item as CSV.")
@json_option
@pass_composition
def bench_command(
    composition: Composition,
    name: str,
    data_root: Path,
    seconds: float | None,
    predictions: Path | None,
    *,
    full: bool,
    as_json: bool,
) -> None:
    """Run a benchmark of docs/benchmarks.md; exit code 1 when one of its bars does not hold."""
    known = composition.benchmarks()
    chosen = known.get(name.replace("-", "_"))
    if chosen is None:
        raise BadUseError(f"no benchmark {name!r}; there are {', '.join(known)}")
    if chosen.needs_sources and not data_root.is_dir():
        raise BadUseError(f"{data_root}: no such folder; name the sources by --data-root or TRUELOAD_DATA_ROOT")
    request = BenchRequest(
        data_root, full, composition.open_client, composition.settings(), composition.answers, seconds
    )
    result = chosen.run(request)
    if predictions is not None:
        _write_predictions(predictions, result)
    _print(bench_document(name, result), tables.bench_text, as_json=as_json)
    sys.exit(0 if all(bar.holds for bar in result.bars) else 1)


def _write_predictions(path: Path, result: BenchResult) -> None:
    try:
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(result.prediction_columns)
            writer.writerows(result.predictions)
    except OSError as cause:
        raise BadUseError(f"{path}: the predictions cannot be written ({cause.strerror})") from cause
