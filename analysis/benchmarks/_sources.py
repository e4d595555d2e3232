"""Reading the sources of benchmarks: folders with files of a known name, in subfolders too."""

from __future__ import annotations

import csv
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from warehouse import loading
from warehouse.contract.errors import BadInputError
from warehouse.importer import Importer, ImportOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.benchmark import BenchRequest
    from warehouse.client import Client

Row = dict[str, str]


def files(data_root: Path, source: str, name: str) -> list[Path]:
    """Give every file of this name below the source's folder, in order of path; none when the source is absent."""
    return sorted((data_root / source).rglob(name))


def rows(paths: Sequence[Path], needed: Sequence[str]) -> list[Row]:
    """Read CSV files one after the other.

    Raises:
        BadInputError: a file cannot be read, or lacks a column.

    """
    found: list[Row] = []
    for path in paths:
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                reader = csv.DictReader(stream)
                missing = [column for column in needed if column not in (reader.fieldnames or ())]
                if missing:
                    raise BadInputError(str(path), "line 1", f"lacks the column {', '.join(missing)}")
                found += reader
        except (OSError, UnicodeDecodeError, csv.Error) as cause:
            raise BadInputError(str(path), None, f"cannot be read as CSV ({cause})") from cause
    return found


@contextmanager
def imported(request: BenchRequest, format_name: str, paths: Sequence[Path]) -> Iterator[Client]:
    """Load files into a store of their own, as ``trueload import`` would, and let go of it afterwards.

    Raises:
        BadInputError: nothing of the files could be kept.

    """
    with imported_by(request, loading.importers()[format_name], paths) as client:
        yield client


@contextmanager
def imported_by(request: BenchRequest, importer: Importer, paths: Sequence[Path]) -> Iterator[Client]:
    """Do the same with an importer that is not one of the product's: for research traces.

    Raises:
        BadInputError: nothing of the files could be kept.

    """
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as folder:
        client = request.open_client(Path(folder), True)  # noqa: FBT003 - create the store
        try:
            options = ImportOptions(cluster="bench", zone="UTC", past_attempts=client.past_attempts)
            report = loading.load_files(client, importer, list(dict.fromkeys(paths)), options)
            if report.exit_code:
                raise BadInputError(str(paths[0]), None, f"nothing could be imported: {report.text()}")
            yield client
        finally:
            client.close()
