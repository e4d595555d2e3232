"""A profiler's file, plain or packed, of any size, read into a timeline: in blocks, unpacked one block ahead."""

from __future__ import annotations

import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from warehouse.contract.errors import BadInputError
from warehouse.imports._kineto_builder import Builder
from warehouse.imports._kineto_json import EVENTS_KEY, add_events, parse, whole_events
from warehouse.imports._kineto_lines import BEGIN, END, SEPARATOR, LineReader, NotLaidOutError
from warehouse.imports._text import unpacked_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from warehouse.timeline import Timeline

BLOCK_BYTES = 4 << 20
"""How much is read at once: small enough for caches, large enough that vectors pay."""

MAX_PART_BYTES = 64 << 20
"""The longest event, and the longest text before and behind the events. Call stacks and notes stay far below."""

_GAP = b" \t\r\n,"
_MIDDLE_EVENT = b"\n" + END + SEPARATOR
_LAST_EVENT = re.compile(rb"\n  \}\s*\]")


class NoTimelineError(BadInputError):
    """The file is something else, such as notes beside the profiles of a folder."""


def read_file(path: Path, consumed: Callable[[int], None]) -> Timeline:
    """Read a timeline. ``consumed`` is told how many bytes of the file have been read.

    Raises:
        BadInputError: the file cannot be read, is cut short, or is no profiler's timeline; it says at which byte.

    """
    try:
        return _Reading(path, consumed).run(by_lines=True)
    except NotLaidOutError:
        return _Reading(path, consumed).run(by_lines=False)


class _Reading:
    """One pass over a file. ``at`` is where ``text``, the part in hand, begins in the unpacked file."""

    def __init__(self, path: Path, consumed: Callable[[int], None]) -> None:
        self._path = path
        self._blocks = _one_ahead(_gathered(unpacked_blocks(path, consumed)))
        self._builder = Builder()
        self._text = b""
        self._at = 0

    def run(self, *, by_lines: bool) -> Timeline:
        try:
            head = self._seek_events()
            lines = LineReader(self._builder, _place) if by_lines and _is_laid_out(self._text) else None
            if by_lines and lines is None:
                raise NotLaidOutError
            tail = self._events(lines)
            return self._builder.finish(self._head(head + tail))
        finally:
            self._blocks.close()

    def _more(self) -> bool:
        """Take another block; False at the end of the file."""
        try:
            block = next(self._blocks, b"")
        except (EOFError, zlib.error) as cause:
            detail = f"gzip is damaged or cut short ({cause})"
            raise self._broken(len(self._text), detail) from cause
        except OSError as cause:
            raise self._broken(len(self._text), f"cannot be read ({cause.strerror})") from cause
        self._text += block
        return bool(block)

    def _drop(self, size: int) -> None:
        self._text = self._text[size:]
        self._at += size

    def _seek_events(self) -> bytes:
        """Give what stands before the first event."""
        while True:
            begin = self._text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
            found = EVENTS_KEY.search(self._text) if begin == b"{" else None
            if begin == b"[" or found:
                size = found.end() if found else self._text.index(b"[") + 1
                head = self._text[:size]
                self._drop(size)
                return head
            if begin not in {b"", b"{"} or len(self._text) > MAX_PART_BYTES or not self._more():
                break
        if not self._text:
            raise BadInputError(str(self._path), None, "is empty")
        expected = 'expected JSON with "traceEvents", as the PyTorch profiler writes it'
        raise NoTimelineError(str(self._path), None, f"holds no profiler timeline; {expected}")

    def _events(self, lines: LineReader | None) -> bytes:
        """Read all events; give what stands behind them."""
        while True:
            end = self._whole_lines(lines) if lines else self._whole_objects()
            if end is not None:
                return self._rest(end)
            if len(self._text) > MAX_PART_BYTES:
                raise self._broken(0, f"an event is longer than {MAX_PART_BYTES} bytes; expected a profiler's event")
            if not self._more():
                raise self._broken(len(self._text), "the list of events does not end: the file is cut short")

    def _whole_lines(self, lines: LineReader) -> int | None:
        if (cut := self._text.rfind(_MIDDLE_EVENT)) >= 0:
            self._take_lines(lines, cut)
        if (last := _LAST_EVENT.search(self._text)) is None:
            return None
        self._take_lines(lines, last.start())
        return self._text.index(b"]")

    def _take_lines(self, lines: LineReader, cut: int) -> None:
        begin, after = self._text.find(BEGIN), cut + 1 + len(END)
        if not 0 <= begin < after or self._text[:begin].strip(_GAP):
            raise NotLaidOutError
        lines.read(self._text, begin, after, self._at)
        self._drop(after)

    def _whole_objects(self) -> int | None:
        size, end = whole_events(self._text)
        events = self._text[:size].strip(_GAP)
        if events:
            try:
                add_events(events, self._builder, _place(self._at))
            except ValueError as cause:
                raise self._broken(getattr(cause, "pos", 0), f"is no JSON ({cause})") from cause
        self._drop(size)
        return None if end is None else end - size

    def _rest(self, end: int) -> bytes:
        self._drop(end)
        while self._more():
            if len(self._text) > MAX_PART_BYTES:
                raise self._broken(0, f"more than {MAX_PART_BYTES} bytes stand behind the events")
        return self._text

    def _head(self, text: bytes) -> dict[str, Any]:
        try:
            head = parse(text.removeprefix(b"\xef\xbb\xbf").strip())
        except ValueError as cause:
            raise self._broken(0, f"what stands before or behind the events is no JSON ({cause})") from cause
        return head if isinstance(head, dict) else {}

    def _broken(self, offset: int, detail: str) -> BadInputError:
        return BadInputError(str(self._path), _place(self._at + offset), detail)


def _place(at: int) -> str:
    return f"byte {at}"


def _is_laid_out(text: bytes) -> bool:
    return text.startswith((b"\n" + BEGIN, b"\r\n" + BEGIN))


def _gathered(small: Iterator[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    size = 0
    for part in small:
        parts.append(part)
        size += len(part)
        if size >= BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join(parts)


def _one_ahead(slow: Iterator[bytes]) -> Generator[bytes, None, None]:
    """Give the same blocks, the next one being unpacked in a thread of its own meanwhile."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = pool.submit(next, slow, b"")
        while block := waiting.result():
            waiting = pool.submit(next, slow, b"")
            yield block
