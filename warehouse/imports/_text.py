"""Lines of a foreign text file, plain or gzip'd, as they should have been written.

UTF-8 with or without a byte order mark, any line ends. Bytes that are not UTF-8 and NUL become U+FFFD, so that a name
in an old encoding costs a letter and not the job; a number or time with such a letter is then rejected by its reader.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from warehouse.contract.errors import BadInputError

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20
"""The longest line that is still taken for text. Slurm's longest field, a script in SubmitLine, stays far below."""

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = zlib.MAX_WBITS | 16


def numbered_lines(path: Path, consumed: Callable[[int], None]) -> Iterator[tuple[int, str]]:
    """Give the lines of a file with their numbers, from 1, without line ends.

    ``consumed`` is told how many bytes of the file (packed ones where it is packed) have been read.

    Raises:
        BadInputError: no such file, not a plain file, empty, cut short, or a line too long to be text. All lines
            before the trouble have been given.

    """
    blocks = unpacked_blocks(path, consumed)
    number = 0
    rest = b""
    while True:
        try:
            block = next(blocks, b"")
        except (EOFError, zlib.error) as cause:
            raise BadInputError(str(path), f"after line {number}", f"gzip is damaged or cut short ({cause})") from cause
        except OSError as cause:
            raise BadInputError(str(path), f"after line {number}", f"cannot be read ({cause.strerror})") from cause
        data = rest + block
        end = data.rfind(b"\n") + 1 if block else len(data)
        lines = _decode(data[:end], is_first=number == 0)
        for number, line in enumerate(lines, number + 1):  # noqa: B020 - numbering goes on from block to block
            yield number, line
        rest = data[end:]
        if not block:
            break
        if len(rest) > MAX_LINE_BYTES:
            detail = f"longer than {MAX_LINE_BYTES} bytes; expected lines of text"
            raise BadInputError(str(path), f"line {number + 1}", detail)
    if number == 0:
        raise BadInputError(str(path), None, "is empty")


def _decode(data: bytes, *, is_first: bool) -> list[str]:
    if not data:
        return []
    text = data.decode("utf-8", "replace")
    if is_first:
        text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.removesuffix("\n").split("\n")


def unpacked_blocks(path: Path, consumed: Callable[[int], None]) -> Iterator[bytes]:
    """Give the bytes of a file, plain or gzip'd, in blocks of about a mebibyte.

    Raises:
        BadInputError: no such file, not a plain file, or it cannot be opened.
        EOFError, zlib.error: gzip is cut short or damaged; what came before has been given.

    """
    with _open(path) as file:
        raw = _raw_blocks(file, consumed)
        first = next(raw, b"")
        if first.startswith(_GZIP_MAGIC):
            yield from _unpacked(first, raw)
        else:
            yield first
            yield from raw


def whole_file(path: Path, consumed: Callable[[int], None], most_bytes: int) -> bytes:
    """Give a file, plain or gzip'd, at once.

    Raises:
        BadInputError: it cannot be read, is empty, damaged, cut short, or larger than ``most_bytes``.

    """
    content = bytearray()
    try:
        for block in unpacked_blocks(path, consumed):
            content += block
            if len(content) > most_bytes:
                raise BadInputError(str(path), None, f"holds more than {most_bytes} bytes; expected a smaller document")
    except (EOFError, zlib.error) as cause:
        raise BadInputError(str(path), None, f"gzip is damaged or cut short ({cause})") from cause
    except OSError as cause:
        raise BadInputError(str(path), None, f"cannot be read ({cause.strerror})") from cause
    if not content:
        raise BadInputError(str(path), None, "is empty")
    return bytes(content)


def _open(path: Path) -> BinaryIO:
    try:
        if path.is_dir():
            raise BadInputError(str(path), None, "is a folder; name the files in it")
        if not path.exists():
            raise BadInputError(str(path), None, "no such file")
        if not path.is_file():
            raise BadInputError(str(path), None, "is not a plain file (a pipe or device); write it to a file first")
        return path.open("rb")
    except OSError as cause:
        raise BadInputError(str(path), None, f"cannot be opened ({cause.strerror})") from cause


def _raw_blocks(file: BinaryIO, consumed: Callable[[int], None]) -> Iterator[bytes]:
    done = 0
    while block := file.read(BLOCK_BYTES):
        done += len(block)
        consumed(done)
        yield block


def _unpacked(first: bytes, following: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack gzip of one or more members, giving everything that came before damage or a cut."""
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    block: bytes | None = first
    while block is not None:
        while block:
            if plain := unpacker.decompress(block, BLOCK_BYTES):
                yield plain
            block = unpacker.unconsumed_tail
            if unpacker.eof and (block := unpacker.unused_data.lstrip(b"\0")):
                unpacker = zlib.decompressobj(_GZIP_WINDOW)
        block = next(following, None)
    if plain := unpacker.flush():
        yield plain
    if not unpacker.eof:
        raise EOFError("the end is missing")
