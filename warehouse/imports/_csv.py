"""Rows of a CSV file with a header. Quoted fields may hold delimiters and line breaks.

A quote that is never closed costs its own line, not the rest of the file.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from warehouse.contract.errors import BadInputError
from warehouse.imports._text import numbered_lines
from warehouse.imports._values import BadRowError

_DELIMITERS = ",;\t"
_MOST_LINES_OF_A_ROW = 100
"""Where a quote is not closed within so many lines, it was not meant to be one."""

_Line = tuple[int, str]


@dataclass(frozen=True, slots=True)
class CsvFile:
    """An open CSV file: the line of its header, its column names, and its rows by column name."""

    header_line: int
    names: tuple[str, ...]
    rows: Iterator[tuple[int, Mapping[str, str] | BadRowError]]


def open_csv(path: Path, required: Collection[str], consumed: Callable[[int], None]) -> CsvFile:
    """Read the header; rows follow as they are asked for, each with the number of its first line.

    Raises:
        BadInputError: a required column is missing, or the file cannot be read (later also while rows are taken).

    """
    lines = numbered_lines(path, consumed)
    for line, text in lines:
        if not text.strip():
            continue
        delimiter = max(_DELIMITERS, key=text.count)
        try:
            names = tuple(name.strip() for name in _fields(text, delimiter))
        except csv.Error as cause:
            raise BadInputError(str(path), f"line {line}", f"expected a header; not CSV ({cause})") from cause
        missing = [name for name in required if name not in names]
        if missing:
            detail = f"expected a header with {', '.join(required)}; found no {', '.join(missing)}"
            raise BadInputError(str(path), f"line {line}", detail)
        return CsvFile(line, names, _rows(lines, names, delimiter))
    raise BadInputError(str(path), None, f"holds no text; expected a header with {', '.join(required)}")


def _rows(
    lines: Iterator[_Line], names: tuple[str, ...], delimiter: str
) -> Iterator[tuple[int, Mapping[str, str] | BadRowError]]:
    ahead: deque[_Line] = deque()
    while (first := _next(ahead, lines)) is not None:
        line, text = first
        if not text.strip():
            continue
        whole = _closed(text, ahead, lines) if '"' in text else text
        if whole is None:
            yield (
                line,
                BadRowError("open quote", f"a quote is not closed within {_MOST_LINES_OF_A_ROW} lines or at the end"),
            )
        else:
            yield line, _by_name(whole, names, delimiter)


def _closed(text: str, ahead: deque[_Line], lines: Iterator[_Line]) -> str | None:
    """Add lines until all quotes are closed; None, and the lines put back, where they never are."""
    taken: list[_Line] = []
    parts = [text]
    is_open = text.count('"') % 2 == 1
    while is_open:
        following = _next(ahead, lines) if len(taken) < _MOST_LINES_OF_A_ROW else None
        if following is None:
            ahead.extendleft(reversed(taken))
            return None
        taken.append(following)
        parts.append(following[1])
        is_open ^= following[1].count('"') % 2 == 1
    return "\n".join(parts)


def _next(ahead: deque[_Line], lines: Iterator[_Line]) -> _Line | None:
    return ahead.popleft() if ahead else next(lines, None)


def _by_name(text: str, names: tuple[str, ...], delimiter: str) -> Mapping[str, str] | BadRowError:
    try:
        fields = _fields(text, delimiter)
    except csv.Error as cause:
        return BadRowError("not CSV", str(cause))
    if len(fields) != len(names):
        reason = "too few fields" if len(fields) < len(names) else "too many fields"
        return BadRowError(reason, f"{len(fields)} fields, the header has {len(names)}")
    return dict(zip(names, fields, strict=True))


def _fields(text: str, delimiter: str) -> list[str]:
    return next(csv.reader([text], delimiter=delimiter), []) if '"' in text else text.split(delimiter)
