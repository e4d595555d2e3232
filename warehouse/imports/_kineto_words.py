"""Reading many places of a text at once: literals, decimal numbers and short names, vector by vector.

A place is an offset in bytes. Everything works on eight bytes at a time, loaded as one little-endian word, so that the
first byte of the text is the lowest of the word.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from warehouse.timeline import Flags, Ints, SmallInts

Words_: TypeAlias = npt.NDArray[np.uint64]

PAD_BYTES = 128
"""Zeros behind the text, so that a word can be loaded at its very end."""

_WORD_BYTES = 8
_NUMBER_BYTES = 24
_NAME_WINDOWS = (24, 64)
"""First for categories and most functions of the runtime, then for the rest of those; the longest has 54 letters."""

_ROUNDS = 32
"""So many different values are told apart by comparing, for mostly there are few; the rest by sorting."""

_MAX_MICROSECONDS = (1 << 62) // 1000
"""What is larger does not fit as nanoseconds; no clock stands there before the year 2116."""

_QUOTE, _BACKSLASH, _DOT, _ZERO = b'"\\.0'
_LARGEST_DIGIT = 9
_DECIMALS = 3
_POWERS = 10 ** np.arange(9, dtype=np.uint64)
_KEEP = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd number without pattern (the golden ratio in 64 bits): names become numbers by multiplying with it."""


class Words:
    """A text that can be read at many places at once."""

    def __init__(self, text: bytes, end: int) -> None:
        """Read ``text``, of which nothing behind ``end`` is asked for; it may go on there."""
        self._text = text if len(text) >= end + PAD_BYTES else text + bytes(PAD_BYTES)
        self.octets = np.frombuffer(self._text, np.uint8)
        self._words: Words_ = np.ndarray(
            (len(self._text) - _WORD_BYTES + 1,), dtype="<u8", buffer=self._text, strides=(1,)
        )

    def is_literal(self, at: Ints, literal: bytes) -> Flags:
        """Say where the text goes on with ``literal``."""
        if len(literal) < _WORD_BYTES:
            short: Flags = (self._words[at] & _KEEP[len(literal)]) == _word(literal)
            return short
        same: Flags = self._words[at] == _word(literal[:_WORD_BYTES])
        for offset in range(_WORD_BYTES, len(literal), _WORD_BYTES):
            first = min(offset, len(literal) - _WORD_BYTES)
            same &= self._words[at + first] == _word(literal[first : first + _WORD_BYTES])
        return same

    def whole(self, at: Ints, *, is_short: bool = True) -> tuple[Ints, Ints, Flags]:
        """Read whole numbers without a sign: values, the places behind them, and where there was one.

        ``is_short``: most have less than eight digits, so that loading one word is enough for them.
        """
        if not is_short:
            return self._long_whole(at)
        octets = self._window(at, _WORD_BYTES)
        count = _count_digits(octets)
        value = _digits(octets.view("<u8")[:, 0], count).astype(np.int64)
        behind, readable = at + count, count > 0
        # No end within the word looks like no digit at all: look again, with a wider window.
        if len(rows := np.flatnonzero(~readable)):
            value[rows], behind[rows], readable[rows] = self._long_whole(at[rows])
        return value, behind, readable

    def _long_whole(self, at: Ints) -> tuple[Ints, Ints, Flags]:
        octets = self._window(at, _NUMBER_BYTES)
        count = _count_digits(octets)
        readable = (count > 0) & (count <= 2 * _WORD_BYTES)
        words = octets.view("<u8")
        first = np.minimum(count, _WORD_BYTES)
        second = np.clip(count - _WORD_BYTES, 0, _WORD_BYTES)
        value = _digits(words[:, 0], first) * _POWERS[second] + _digits(words[:, 1], second)
        return value.astype(np.int64), at + count, readable

    def microseconds(self, at: Ints, *, is_short: bool) -> tuple[Ints, Ints, Flags, Flags]:
        """Read microseconds with up to three decimals: exact nanoseconds, the places behind, where, and which whole."""
        value, behind, readable = self.whole(at, is_short=is_short)
        readable &= value < _MAX_MICROSECONDS
        is_whole = self.octets[behind] != _DOT
        nanoseconds = value * 1000
        rows = np.flatnonzero(~is_whole & readable)
        if len(rows):
            octets = self._window(behind[rows] + 1, _WORD_BYTES)
            count = _count_digits(octets)
            good = (count > 0) & (count <= _DECIMALS)
            count = np.where(good, count, 0)
            nanoseconds[rows] += (_digits(octets.view("<u8")[:, 0], count) * _POWERS[_DECIMALS - count]).astype(
                np.int64
            )
            behind[rows] += 1 + count
            readable[rows] &= good
        return nanoseconds, behind, readable, is_whole

    def names(self, at: Ints) -> tuple[SmallInts, list[str], Ints]:
        """Read short texts up to their closing quote: a number for each, the texts, and the places of the quotes.

        The number is -1 where the text has more than 63 bytes or holds an escape.
        """
        codes, quotes = np.full(len(at), -1, np.int32), at.copy()
        texts: list[str] = []
        left = np.arange(len(at))
        for size in _NAME_WINDOWS:
            octets = self._window(at[left], size)
            ends = (octets == _QUOTE) | (octets == _BACKSLASH)
            count = ends.argmax(axis=1)
            quotes[left] = at[left] + count
            has_end = octets[np.arange(len(left)), count] == _QUOTE
            number, first = _grouped(_mixed(octets.view("<u8")[has_end], count[has_end]))
            rows = left[has_end]
            codes[rows] = number + len(texts)
            texts += [self._text[at[row] : quotes[row]].decode("utf-8", "replace") for row in rows[first]]
            left = left[~ends.any(axis=1)]
            if not len(left):
                break
        return codes, texts, quotes

    def _window(self, at: Ints, size: int) -> npt.NDArray[np.uint8]:
        words = np.empty((len(at), size // _WORD_BYTES), "<u8")
        for place in range(size // _WORD_BYTES):
            words[:, place] = self._words[at + place * _WORD_BYTES]
        return words.view(np.uint8)


def _mixed(words: Words_, count: Ints) -> Words_:
    """Give one number for the first ``count`` bytes of each row of words."""
    mixed = np.zeros(len(words), np.uint64)
    for place in range(words.shape[1]):
        kept = words[:, place] & _KEEP[np.clip(count - place * _WORD_BYTES, 0, _WORD_BYTES)]
        mixed = (mixed ^ kept) * _MIX
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _grouped(values: Words_) -> tuple[SmallInts, list[int]]:
    """Number equal values alike: a number for each row, and for each number a row that has it."""
    numbers, first = np.zeros(len(values), np.int32), list[int]()
    left = np.arange(len(values))
    while len(left) and len(first) < _ROUNDS:
        same = values[left] == values[left[0]]
        numbers[left[same]] = len(first)
        first.append(int(left[0]))
        left = left[~same]
    if len(left):
        _, rows, inverse = np.unique(values[left], return_index=True, return_inverse=True)
        numbers[left] = inverse + len(first)
        first += left[rows].tolist()
    return numbers, first


def _count_digits(octets: npt.NDArray[np.uint8]) -> Ints:
    """Count the digits at the begin of each row; 0 also where nothing else stands there."""
    count: Ints = (octets - np.uint8(_ZERO) > _LARGEST_DIGIT).argmax(axis=1)
    return count


def _word(eight: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(eight, "little"))


def _digits(words: Words_, count: Ints) -> Words_:
    """Give the value of the first ``count`` (0 to 8) bytes of words, which are digits.

    Moved to the top of the word they are the last digits of a number of eight; pairs, fours and all eight are then
    added up by multiplication.
    """
    kept = words & _KEEP[count]
    moved = np.where(count > 0, kept << (8 * (8 - np.maximum(count, 1))).astype(np.uint64), 0).astype(np.uint64)
    value = moved & np.uint64(0x0F0F0F0F0F0F0F0F)
    value = (value * np.uint64(10) + (value >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    value = (value * np.uint64(100) + (value >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return (value * np.uint64(10000) + (value >> np.uint64(32))) & np.uint64(0x00000000FFFFFFFF)
