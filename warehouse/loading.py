"""Loading foreign files: stream through an importer, ask what is new, load that, and count what became of each record.

Every record of a file is kept, unchanged or rejected. A file that cannot be read (or not to its end) costs only itself:
what was good before is kept, and one line says where it broke. Loading anything twice changes nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from warehouse.client import Client, RecordId
from warehouse.contract import wire
from warehouse.contract.errors import BadInputError, BadUseError
from warehouse.contract.metrics import METRIC_COLUMNS
from warehouse.contract.model import SAMPLE_COLUMNS
from warehouse.contract.plugins import scan
from warehouse.importer import Imported, ImportedTables, Importer, ImportOptions, Rejected, Sample
from warehouse.imports._identity import content_hash
from warehouse.settings import IMPORT_CHUNK_CHARACTERS, IMPORT_CHUNK_RECORDS

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told the file, the bytes of it that were read, and its size."""

_COLLECTED_AFTER = 1_000_000
"""Objects that are made before the collector of circles looks at them: more than a chunk's records have."""

DETAIL_CHARACTERS = 200
"""How much of a bad value a message repeats."""


def importers() -> dict[str, Importer]:
    """Find all importers by name."""
    return scan("warehouse.imports", "IMPORTER", Importer)


@dataclass(slots=True)
class Tally:
    """How often one thing happened, and where first."""

    count: int
    file: str
    line: int
    detail: str


@dataclass(slots=True)
class ImportReport:
    """What became of the records of some files. ``read = kept + unchanged + Σ rejected``."""

    format_name: str
    files: list[str] = field(default_factory=list)
    read: int = 0
    kept: int = 0
    unchanged: int = 0
    rejected: dict[str, Tally] = field(default_factory=dict)
    altered: dict[tuple[str, str], Tally] = field(default_factory=dict)
    errors: list[BadInputError] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Give 1 when nothing was kept and nothing was there already, else 0."""
        return 0 if self.kept + self.unchanged else 1

    def document(self) -> dict[str, object]:
        """Give the document of ``import --json``."""
        return {
            "format": self.format_name,
            "files": list(self.files),
            "read": self.read,
            "kept": self.kept,
            "unchanged": self.unchanged,
            "rejected": [{"reason": reason, **_counted(tally)} for reason, tally in self.rejected.items()],
            "altered": [
                {"column": column, "reason": reason, **_counted(tally)}
                for (column, reason), tally in self.altered.items()
            ],
            "errors": [
                {"file": error.file, "place": error.place, "detail": _short(error.detail)} for error in self.errors
            ],
        }

    def text(self) -> str:
        """Give the same for people: one line of counts, then one line per kind of trouble and per broken file."""
        refused = sum(tally.count for tally in self.rejected.values())
        lines = [
            f"{self.format_name}: {self.read} read, {self.kept} kept, {self.unchanged} unchanged, {refused} rejected"
        ]
        lines += [f"rejected {_told(tally, reason)}" for reason, tally in self.rejected.items()]
        lines += [f"altered {_told(tally, f'{column}: {reason}')}" for (column, reason), tally in self.altered.items()]
        lines += [f"error: {error}" for error in self.errors]
        return "\n".join(_printable(line) for line in lines)


def load_files(
    client: Client,
    importer: Importer,
    paths: Sequence[Path | str],
    options: ImportOptions,
    progress: Progress | None = None,
    *,
    chunk_records: int = IMPORT_CHUNK_RECORDS.default,
    chunk_characters: int = IMPORT_CHUNK_CHARACTERS.default,
) -> ImportReport:
    """Load some files, or servers by their address, one after the other; what is good in one does not depend on others.

    Raises:
        BadUseError: the zone is unknown, or the format has no servers.
        StoreError, UnreachableError: the store refused; whole chunks before that are kept.

    """
    report = ImportReport(importer.name)
    for path in paths:
        report.files.append(shown(path))
        before = report.read
        watched = replace(
            options,
            past_attempts=client.past_attempts,
            consumed=_watch(path, progress),
            is_known=_known(client, importer.name),
        )
        try:
            records = _read(importer, path, watched)
            with _rarely_collected():
                for chunk in _chunks(records, path, report, (chunk_records, chunk_characters)):
                    if isinstance(chunk, ImportedTables):
                        _load_tables(client, chunk, report)
                    else:
                        _load_chunk(client, path, chunk, report)
        except BadInputError as error:
            report.errors.append(error)
        else:
            if report.read == before:
                report.errors.append(BadInputError(shown(path), None, f"holds no records of {importer.name}"))
    return report


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Look for circles of objects less often meanwhile.

    Records of a chunk are many, live together and hold no circles: looking through them all, again and again, took a
    fifth of an import's CPU time.
    """
    before = gc.get_threshold()
    gc.set_threshold(_COLLECTED_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def is_address(text: str) -> bool:
    """Say whether a source is a server's address rather than a file."""
    return text.startswith(("http://", "https://"))


def shown(source: Path | str) -> str:
    """Give a source as it may be printed: an address without its password."""
    if isinstance(source, Path):
        return str(source)
    scheme, _, rest = source.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _read(
    importer: Importer, source: Path | str, options: ImportOptions
) -> Iterator[Imported | ImportedTables | Rejected]:
    if isinstance(source, Path):
        return importer.read(source, options)
    if importer.read_url is None:
        raise BadUseError(f"{importer.name} reads files, and {shown(source)} is the address of a server")
    return importer.read_url(source, options)


def _known(client: Client, format_name: str) -> Callable[[str, str], bool]:
    def is_known(record_key: str, content: str) -> bool:
        return not client.which_are_new(format_name, [RecordId(record_key, content_hash(content))])[0]

    return is_known


def _watch(path: Path | str, progress: Progress | None) -> Callable[[int], None]:
    if progress is None or isinstance(path, str) or not path.is_file():
        return lambda _done: None
    size = path.stat().st_size
    return lambda done: progress(str(path), done, size)


def _chunks(
    items: Iterator[Imported | ImportedTables | Rejected],
    path: Path | str,
    report: ImportReport,
    limits: tuple[int, int],
) -> Iterator[list[Imported] | ImportedTables]:
    """Gather readable records; count the others. A file that breaks off still gives what was read before."""
    chunk: list[Imported] = []
    characters = samples = 0
    broken: BadInputError | None = None
    try:
        for item in items:
            if isinstance(item, ImportedTables):
                if chunk:  # in the order of the file
                    yield chunk
                    chunk, characters, samples = [], 0, 0
                report.read += item.records.num_rows
                yield item
                continue
            if isinstance(item, Rejected):
                report.read += 1
                _tally(report.rejected, item.reason, path, item.line, item.detail)
                continue
            report.read += item.count
            chunk.append(item)
            characters += len(item.content)
            samples += len(item.samples)
            if max(len(chunk), samples) >= limits[0] or characters >= limits[1]:
                yield chunk
                chunk, characters, samples = [], 0, 0
    except BadInputError as cause:
        broken = cause
    if chunk:
        yield chunk
    if broken is not None:
        raise broken


def _load_chunk(client: Client, path: Path | str, chunk: list[Imported], report: ImportReport) -> None:
    """Load those records whose content is new; of several states of one record the last one's rows remain."""
    ids = [RecordId(item.record_key, content_hash(item.content)) for item in chunk]
    first_seen: dict[RecordId, Imported] = {}
    kept = 0
    for record, item, is_new in zip(ids, chunk, client.which_are_new(report.format_name, ids), strict=True):
        if is_new and record not in first_seen:
            first_seen[record] = item
            kept += item.count
            for altered in item.altered:
                _tally(report.altered, (altered.column, altered.reason), path, item.line, altered.detail)
    if first_seen:
        tables = wire.from_records(row for item in first_seen.values() for row in item.rows)
        samples = [sample for item in first_seen.values() for sample in item.samples]
        if samples:
            tables["device_sample"] = _sample_table(samples)
        client.load(report.format_name, list(first_seen), tables)
    report.kept += kept
    report.unchanged += sum(item.count for item in chunk) - kept


def _sample_table(samples: Sequence[Sample]) -> wire.Table:
    columns: dict[str, wire.Column] = {name: [getattr(sample, name) for sample in samples] for name in SAMPLE_COLUMNS}
    for name in METRIC_COLUMNS:
        values = [sample.metrics.get(name) for sample in samples]
        if any(value is not None for value in values):
            columns[name] = values
    return wire.Table(len(samples), columns)


def _load_tables(client: Client, given: ImportedTables, report: ImportReport) -> None:
    kept = client.load_tables(report.format_name, given)
    report.kept += kept
    report.unchanged += given.records.num_rows - kept


Name = TypeVar("Name")


def _tally(tallies: dict[Name, Tally], name: Name, path: Path | str, line: int, detail: str) -> None:
    known = tallies.get(name)
    if known is None:
        tallies[name] = Tally(1, shown(path), line, _short(detail))
    else:
        known.count += 1


def _counted(tally: Tally) -> dict[str, object]:
    return {"count": tally.count, "first": {"file": tally.file, "line": tally.line, "detail": tally.detail}}


def _told(tally: Tally, reason: str) -> str:
    others = f" (and {tally.count - 1} more)" if tally.count > 1 else ""
    return f"{tally.file}, line {tally.line}: {reason}: {tally.detail}{others}"


def _short(text: str) -> str:
    return text if len(text) <= DETAIL_CHARACTERS else text[: DETAIL_CHARACTERS - 1] + "…"


def _printable(line: str) -> str:
    """Keep a message on one line and a terminal in peace, whatever a file or its name holds."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)
