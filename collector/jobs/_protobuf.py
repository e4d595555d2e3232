"""The little of protobuf's wire format that an answer of the kubelet needs: fields by number, nothing generated.

The format: https://protobuf.dev/programming-guides/encoding/. Generated code would tie the agent to one version of the
library, and the answer has five messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT: Final = 10


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Give number and value of each field: an int, or the bytes of a text or of a message within.

    Raises:
        ValueError: it is cut short, or no such message.

    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire_type == BYTES:
            length, at = _varint(message, at)
        elif wire_type in {FIXED64, FIXED32}:
            length = 8 if wire_type == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type} of field {number} is unknown")
        if at + length > len(message):
            raise ValueError(f"field {number} is cut short")
        yield number, message[at : at + length]
        at += length


def messages(message: bytes, number: int) -> list[bytes]:
    """Give all values of a repeated field that holds texts or messages."""
    return [value for found, value in fields(message) if found == number and isinstance(value, bytes)]


def text(message: bytes, number: int) -> str:
    """Give a text; empty when it is absent."""
    found = messages(message, number)
    return found[-1].decode("utf-8", "replace") if found else ""


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= len(message):
            break
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value, at + place + 1
    raise ValueError(f"the number at byte {at} has no end")
