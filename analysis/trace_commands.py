"""The command ``trace``: what a profiler timeline says, without a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analysis.tables import plain, show
from analysis.traces.document import Convention, Document, file_document, rank_document, trace_document
from analysis.traces.text import rank_text
from warehouse.contract.errors import BadInputError, BadUseError
from warehouse.imports.kineto import NoTimelineError, read_timeline, trace_files
from warehouse.options import json_option

if TYPE_CHECKING:
    from rich.progress import TaskID

LARGE_FILE_BYTES = 8 << 20
"""A file larger than this shows how far it has been read: it takes more than a blink."""

DEFAULT_KERNELS = 10


@click.command("trace")
@click.argument("paths", metavar="FILE...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--convention",
    type=click.Choice([convention.value for convention in Convention]),
    default=Convention.OWN.value,
    show_default=True,
    help="own: all work in the file, exact; hta: the figures of HolisticTraceAnalysis 0.5.0.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=DEFAULT_KERNELS,
    show_default=True,
    help="Kernels to show in the table.",
)
@json_option
def trace_command(paths: tuple[Path, ...], convention: str, top: int, *, as_json: bool) -> None:
    """What a profiler timeline says: GPU-bound time, overlap with the host, classes of work, kernels.

    FILE is a timeline of the PyTorch profiler (JSON, .gz too), or a folder with one file for each rank.
    """
    if not paths:
        raise BadUseError("name at least one file or folder with profiler timelines")
    chosen, named = Convention(convention), {str(path) for path in paths}
    files, errors = [], []
    for path in paths:
        ranks, broken = _ranks(path, chosen, show_progress=not as_json)
        errors += broken
        if ranks:
            files.append(file_document(str(path), ranks))
            if not as_json:
                for rank in ranks:
                    show(rank_text(rank, top))
    if as_json:
        click.echo(json.dumps(trace_document(files, errors, chosen), indent=2, allow_nan=False))
    for error in errors:
        click.echo(f"trueload: {plain(error, None)}", err=True)
    # Notes that lie among the profiles of a folder are told, and are no failure.
    is_failure = not files or any(not isinstance(error, NoTimelineError) or error.file in named for error in errors)
    sys.exit(1 if is_failure else 0)


def _ranks(path: Path, convention: Convention, *, show_progress: bool) -> tuple[list[Document], list[BadInputError]]:
    """Read every rank of a path; a broken file costs only itself."""
    ranks: list[Document] = []
    errors: list[BadInputError] = []
    try:
        files = trace_files(path)
    except BadInputError as error:
        return [], [error]
    for file in files:
        try:
            with _progress(file, show_progress=show_progress) as consumed:
                timeline = read_timeline(file, consumed)
        except BadInputError as error:
            errors.append(error)
        else:
            ranks.append(rank_document(timeline, str(file), convention))
    return sorted(ranks, key=_rank_order), errors


def _rank_order(rank: Document) -> Any:
    number = rank["rank"]
    return (number is None, number or 0, rank["file"])


@contextmanager
def _progress(file: Path, *, show_progress: bool) -> Iterator[Callable[[int], None]]:
    """Draw a bar on stderr over the bytes of a large file; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    size = file.stat().st_size if file.is_file() else 0
    wanted = show_progress and console.is_terminal and size >= LARGE_FILE_BYTES
    with Progress(console=console, transient=True, disable=not wanted) as progress:
        task: TaskID = progress.add_task(plain(file.name).plain, total=size)
        yield lambda done: progress.update(task, completed=done)
