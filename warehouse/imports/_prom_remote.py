"""Prometheus' remote read: the raw samples of a stretch of time as protobuf within a snappy block.

Formats: prometheus/prometheus ``prompb/remote.proto`` and ``types.proto`` (field numbers below are theirs),
google/snappy ``format_description.txt``. Both are a page of code each, and servers that only offer this route are
rare: no library is asked for. What comes is treated as hostile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from warehouse.contract.errors import BadInputError

MOST_PLAIN_BYTES: Final = 512 * 1024**2
"""The largest answer that is unpacked: some 20 million samples. A server's own limit is 50 million."""

STALE: Final = 0x7FF0_0000_0000_0002
"""The bits of the NaN that says a series ended (Prometheus ``model/value``, ``StaleNaN``): no value of anything."""

_REGEX_MATCH: Final = 2
_LITERAL, _COPY_1, _COPY_2 = 0, 1, 2
_LONGEST_SHORT_LITERAL: Final = 60
_LITERAL_PIECE: Final = 1 << 16
_MOST_VARINT_BYTES: Final = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Series = tuple[dict[str, str], list[list[object]]]


def read_request(matchers: Sequence[tuple[str, str]], since_at: float, until_at: float) -> bytes:
    """Give the body that asks for series whose labels match regular expressions."""
    query = b"\x08" + varint(int(since_at * 1000)) + b"\x10" + varint(int(until_at * 1000))
    for name, pattern in matchers:
        matcher = b"\x08" + varint(_REGEX_MATCH) + _field(2, name.encode()) + _field(3, pattern.encode())
        query += _field(3, matcher)
    return literals(_field(1, query))


def read_response(body: bytes, origin: str) -> Iterator[Series]:
    """Give labels and ``[seconds, value]`` of each series of an answer; markers of an end are left out.

    Raises:
        BadInputError: it is no answer to a remote read.

    """
    try:
        for _, result in _fields(unsnappy(body), 1):
            for _, series in _fields(result, 1):
                yield _series(series)
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as cause:
        raise BadInputError(origin, None, f"answered something that is no remote read ({cause})") from cause


def _series(content: bytes) -> Series:
    labels: dict[str, str] = {}
    values: list[list[object]] = []
    for number, part in _fields(content, 1, 2):
        if number == 1:
            texts = {key: text.decode() for key, text in _fields(part, 1, 2)}
            labels[texts.get(1, "")] = texts.get(2, "")
        else:
            values += _sample(part)
    return labels, values


def _sample(content: bytes) -> list[list[object]]:
    bits = at = 0
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        if tag == (1 << 3 | _FIXED64):
            (bits,) = struct.unpack_from("<Q", content, place)
            place += 8
        elif tag == (2 << 3 | _VARINT):
            at, place = _varint(content, place)
        else:
            place = _passed(content, place, tag & 7)
    if bits == STALE:
        return []
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    return [[at / 1000, value]]


def _fields(content: bytes, *wanted: int) -> Iterator[tuple[int, bytes]]:
    """Give the wanted fields of a message that hold bytes, with their numbers."""
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        number, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            length, place = _varint(content, place)
            if place + length > len(content):
                raise ValueError("a field is longer than its message")
            if number in wanted:
                yield number, content[place : place + length]
            place += length
        else:
            place = _passed(content, place, kind)


def _passed(content: bytes, place: int, kind: int) -> int:
    """Give where the next field begins after one of a kind without use here."""
    if kind == _VARINT:
        return _varint(content, place)[1]
    if kind == _FIXED64:
        return place + 8
    if kind == _FIXED32:
        return place + 4
    if kind == _BYTES:
        length, place = _varint(content, place)
        return place + length
    raise ValueError(f"an unknown kind of field, {kind}")


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Give a whole number from 0 on, seven bits a byte."""
    found = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for number in range(_MOST_VARINT_BYTES):
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:  # noqa: PLR2004 - the last one
            return value, place
    raise ValueError("a number of more than ten bytes")


def literals(plain: bytes) -> bytes:
    """Frame bytes as a snappy block of literals, which every reader takes."""
    pieces = [plain[at : at + _LITERAL_PIECE] for at in range(0, len(plain), _LITERAL_PIECE)]
    return varint(len(plain)) + b"".join(b"\xf4" + struct.pack("<H", len(piece) - 1) + piece for piece in pieces)


def unsnappy(block: bytes) -> bytes:
    """Unpack a snappy block.

    Raises:
        ValueError, IndexError, struct.error: it is damaged, or larger than ``MOST_PLAIN_BYTES``.

    """
    length, place = _varint(block, 0)
    if length > MOST_PLAIN_BYTES:
        raise ValueError(f"{length} bytes; at most {MOST_PLAIN_BYTES} are taken")
    plain = bytearray()
    while place < len(block):
        tag = block[place]
        place += 1
        kind = tag & 3
        if kind == _LITERAL:
            size = (tag >> 2) + 1
            if size > _LONGEST_SHORT_LITERAL:
                width = size - _LONGEST_SHORT_LITERAL
                size = int.from_bytes(block[place : place + width], "little") + 1
                place += width
            if place + size > len(block):
                raise ValueError("a literal is longer than its block")
            plain += block[place : place + size]
            place += size
        else:
            size, offset, place = _copy(block, place, tag, kind)
            _repeat(plain, size, offset)
        if len(plain) > length:
            raise ValueError("a block is longer than it says")
    if len(plain) != length:
        raise ValueError(f"a block of {len(plain)} bytes says that it holds {length}")
    return bytes(plain)


def _copy(block: bytes, place: int, tag: int, kind: int) -> tuple[int, int, int]:
    """Give length and offset of a copy, and where the next element begins."""
    if kind == _COPY_1:
        return (tag >> 2 & 7) + 4, tag >> 5 << 8 | block[place], place + 1
    if kind == _COPY_2:
        return (tag >> 2) + 1, int(struct.unpack_from("<H", block, place)[0]), place + 2
    return (tag >> 2) + 1, int(struct.unpack_from("<I", block, place)[0]), place + 4


def _repeat(plain: bytearray, size: int, offset: int) -> None:
    begin = len(plain) - offset
    if offset == 0 or begin < 0:
        raise ValueError("a copy from before the begin")
    piece = plain[begin : begin + size]
    while len(piece) < size:  # it overlaps itself: what was just copied is copied on
        piece += piece[: size - len(piece)]
    plain += piece
