r"""Rows of ``sacct`` text: the header says which columns there are and what stands between them.

A field may hold line breaks (scripts in SubmitLine, comments): a row goes on until it has as many fields as the header,
and a break inside a field becomes the two characters ``\n``, so that a row is one line again. A line that is a whole
row by itself always starts anew, so a row that was cut short costs only itself. A header that comes again (files put
together) is passed over, and read anew where its columns differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from warehouse.contract.errors import BadInputError
from warehouse.imports._text import MAX_LINE_BYTES, numbered_lines
from warehouse.imports._values import BadRowError

EXPECTED = "JobID (or JobIDRaw), State, Start, End and AllocTRES (or AllocGRES)"
_MOST_SURPLUS_FIELDS = 3
"""Delimiters inside fields are sought out up to this number: beyond it guessing costs more than the row is worth."""


class SacctRow(NamedTuple):
    """The columns that are used, by their meaning; empty where the file has no such column."""

    job_id: str
    job_id_raw: str
    name: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    exit_code: str
    submit: str
    start: str
    end: str
    time_limit: str
    node_count: str
    cpu_count: str
    node_list: str
    requested: str
    requested_memory: str
    allocated: str
    allocated_gres: str
    memory_peak: str
    cpu_time: str
    comment: str
    command: str
    work_dir: str
    container: str
    cluster: str
    db_index: str
    admin_comment: str
    elapsed: str
    sluid: str


_COLUMNS: dict[str, tuple[str, ...]] = {
    "job_id": ("JobID", "JobIDRaw"),
    "job_id_raw": ("JobIDRaw",),
    "name": ("JobName",),
    "user": ("User",),
    "account": ("Account",),
    "partition": ("Partition",),
    "qos": ("QOS",),
    "state": ("State",),
    "exit_code": ("ExitCode",),
    "submit": ("Submit",),
    "start": ("Start",),
    "end": ("End",),
    "time_limit": ("TimelimitRaw", "Timelimit"),
    "node_count": ("NNodes", "AllocNodes"),
    "cpu_count": ("NCPUS", "AllocCPUS"),
    "node_list": ("NodeList",),
    "requested": ("ReqTRES",),
    "requested_memory": ("ReqMem",),
    "allocated": ("AllocTRES",),
    "allocated_gres": ("AllocGRES",),
    "memory_peak": ("MaxRSS",),
    "cpu_time": ("TotalCPU",),
    "comment": ("Comment",),
    "command": ("SubmitLine",),
    "work_dir": ("WorkDir",),
    "container": ("Container",),
    "cluster": ("Cluster",),
    "db_index": ("DBIndex",),
    "admin_comment": ("AdminComment",),
    "elapsed": ("ElapsedRaw", "Elapsed"),
    "sluid": ("SLUID",),
}
"""What each meaning is called in sacct; the first that the file has is taken."""

_FREE_TEXT = frozenset({"AdminComment", "Comment", "Constraints", "JobName", "SubmitLine", "SystemComment", "WorkDir"})
"""Columns in which people write what they like, delimiters too."""

_TIME = re.compile(
    r"(?:Unknown|None|N/A|[0-9]{1,10}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,15}(?:Z|[+-][0-9:]{4,6})?)?\Z"
)
_COUNT = re.compile(r"[0-9]*\Z")
_TRES = re.compile(r"(?:[A-Za-z0-9_/:.-]+=[^,= ]*)?(?:,[A-Za-z0-9_/:.-]+=[^,= ]*)*\Z")
_LOGIN = re.compile(r"[^\s,=]*\Z")
_LOOKS_RIGHT: dict[str, re.Pattern[str]] = {
    "Account": _LOGIN,
    "AllocTRES": _TRES,
    "Cluster": _LOGIN,
    "CPUTimeRAW": _COUNT,
    "DBIndex": _COUNT,
    "ElapsedRaw": _COUNT,
    "Eligible": _TIME,
    "End": _TIME,
    "ExitCode": re.compile(r"(?:[0-9]+:[0-9]+)?\Z"),
    "Group": _LOGIN,
    "JobID": re.compile(r"[0-9][0-9_+.\[\],%A-Za-z-]*\Z"),
    "JobIDRaw": re.compile(r"[0-9]+(?:\.\w+)?\Z"),
    "NCPUS": _COUNT,
    "NNodes": _COUNT,
    "QOS": _LOGIN,
    "ReqTRES": _TRES,
    "Start": _TIME,
    "State": re.compile(r"[A-Z][A-Z_]+(?: by [0-9]+)?\Z"),
    "Submit": _TIME,
    "SubmitLine": re.compile(r"(?:\S*\b(?:sbatch|srun|salloc|scrontab)\b.*)?\Z"),
    "TimelimitRaw": re.compile(r"(?:[0-9]+|UNLIMITED|Partition_Limit)?\Z"),
    "UID": _COUNT,
    "User": _LOGIN,
    "WorkDir": re.compile(r"(?:/.*)?\Z"),
}
"""What a field must look like for the row to be taken as rightly put together."""

_HEADER = re.compile(r"[A-Za-z]+([^A-Za-z0-9]+)[A-Za-z]")
_NAME = re.compile(r"[A-Za-z]+\Z")
_DATA_LINE = re.compile(r"[0-9]+(?:[_+.][\w\[\]%.-]+)?[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class _Header:
    line: str
    delimiter: str
    names: tuple[str, ...]
    pick: Callable[[list[str]], tuple[str, ...]]

    def row(self, text: str) -> SacctRow:
        return self.row_of(text.split(self.delimiter))

    def row_of(self, fields: list[str]) -> SacctRow:
        fields.append("")  # what columns that the file lacks point to
        return SacctRow._make(self.pick(fields))


@dataclass(frozen=True, slots=True)
class _Cut:
    """The begin of a row whose rest may stand on the next lines."""

    line: int
    text: str
    width: int

    def going_on(self, text: str, header: _Header) -> _Cut | None:
        """Add the next line; None where it does not belong here: it is a row by itself, or would be too much."""
        more = text.count(header.delimiter)
        width = self.width + more
        if more + 1 >= len(header.names) or width > len(header.names) or len(self.text) + len(text) > MAX_LINE_BYTES:
            return None
        return _Cut(self.line, f"{self.text}\\n{text}", width)

    def problem(self, header: _Header) -> BadRowError:
        return BadRowError("too few fields", f"{self.width} fields, the header has {len(header.names)}")


def sacct_rows(path: Path, consumed: Callable[[int], None]) -> Iterator[tuple[int, SacctRow | BadRowError]]:
    """Give each row with the number of its first line, or why it is none.

    Raises:
        BadInputError: no header of sacct, or the file cannot be read (to its end).

    """
    lines = numbered_lines(path, consumed)
    header = _first_header(path, lines)
    cut: _Cut | None = None
    for number, text in lines:
        if cut is not None:
            longer = cut.going_on(text, header)
            if longer is None:
                yield cut.line, cut.problem(header)
                cut = None
            elif longer.width < len(header.names):
                cut = longer
                continue
            else:
                yield longer.line, header.row(longer.text)
                cut = None
                continue
        if "State" in text and (other := _header(text)) is not None:
            header = other
        elif (found := _row(text, header)) is not None:
            yield number, found
        elif text.strip():
            cut = _Cut(number, text, text.count(header.delimiter) + 1)
    if cut is not None:
        yield cut.line, cut.problem(header)


def _row(text: str, header: _Header) -> SacctRow | BadRowError | None:
    """Read a line that is a row by itself; None where it is only the begin or the rest of one."""
    fields = text.split(header.delimiter)
    if len(fields) == len(header.names):
        return header.row_of(fields)
    return _put_together(fields, header) if len(fields) > len(header.names) else None


def _first_header(path: Path, lines: Iterator[tuple[int, str]]) -> _Header:
    for number, text in lines:
        if not text.strip():
            continue
        header = _header(text)
        if header is not None:
            return header
        raise BadInputError(str(path), f"line {number}", _no_header(text))
    raise BadInputError(str(path), None, f"holds no text; expected sacct's header with {EXPECTED}")


def _no_header(text: str) -> str:
    shown = text if len(text) <= 60 else text[:60] + "…"  # noqa: PLR2004 - enough to recognise the line
    if text.startswith(" ") and "JobID" in text:
        return "is sacct's padded form; run sacct with -P (--parsable2)"
    if _DATA_LINE.match(text):
        return f"expected sacct's header line, found {shown!r}; run sacct without -n (--noheader)"
    return f"expected sacct's header line with {EXPECTED}, found {shown!r}"


def _header(text: str) -> _Header | None:
    """Read a header; None where the line is none, or lacks a column that is needed."""
    match = _HEADER.match(text)
    if match is None or not match[1].strip(" "):
        return None
    delimiter = match[1]
    names = tuple(text.split(delimiter))
    given = set(names)
    if not all(_NAME.match(name) for name in (names if names[-1] else names[:-1])):
        return None
    if not given >= {"State", "Start", "End"} or not given & {"JobID", "JobIDRaw"}:
        return None
    if not given & {"AllocTRES", "AllocGRES"}:
        return None
    positions = []
    for meaning in SacctRow._fields:
        present = [names.index(name) for name in _COLUMNS[meaning] if name in given]
        positions.append(present[0] if present else len(names))
    return _Header(text, delimiter, names, itemgetter(*positions))


def _put_together(fields: list[str], header: _Header) -> SacctRow | BadRowError:
    """Find the one way in which surplus delimiters can belong to free texts, if there is exactly one."""
    surplus = len(fields) - len(header.names)
    ways: list[list[str]] = []
    if surplus <= _MOST_SURPLUS_FIELDS:
        free = [position for position, name in enumerate(header.names) if name in _FREE_TEXT]
        for places in combinations_with_replacement(free, surplus):
            candidate = _merged(fields, header, places)
            if _looks_right(candidate, header):
                ways.append(candidate)
    if len(ways) == 1:
        return header.row_of(ways[0])
    detail = (
        f"{len(fields)} fields, the header has {len(header.names)}: a text holds the delimiter {header.delimiter!r}; "
        "write the file with --delimiter=$'\\x1f'"
    )
    return BadRowError("too many fields", detail)


def _merged(fields: list[str], header: _Header, places: tuple[int, ...]) -> list[str]:
    merged: list[str] = []
    taken = 0
    for position in range(len(header.names)):
        width = 1 + places.count(position)
        merged.append(header.delimiter.join(fields[taken : taken + width]))
        taken += width
    return merged


def _looks_right(fields: list[str], header: _Header) -> bool:
    for name, value in zip(header.names, fields, strict=True):
        pattern = _LOOKS_RIGHT.get(name)
        if pattern is not None and not pattern.match(value):
            return False
    return True
