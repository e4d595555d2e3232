"""The profiler's own layout, read line by line, many events at once.

libkineto writes one event over several lines: `  {`, a header with category and name, a line with ``ts`` and ``dur``,
its arguments, and `  },`. A line break cannot stand inside a JSON string, so lines are sure landmarks. What does not
look as expected is handed over event by event to the reader of any JSON; a text not laid out so is not read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warehouse.imports._kineto_builder import GPU_NOTE, Builder, Role, activity_of, role_of
from warehouse.imports._kineto_json import add_events, config_of_event
from warehouse.imports._kineto_words import Words
from warehouse.timeline import Activity, Flags, GpuEvents, Ints, KernelConfig, SmallInts, Step

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN = b"  {\n"
END = b"  }"
SEPARATOR = b",\n"
_PHASE = b'    "ph": "'
_COMPLETE = b'    "ph": "X", '
_CATEGORY = b'"cat": "'
_NAME = b'", "name": "'
_AFTER_NAME = b'", "pid": '
_TIMES = b'    "ts": '
_DURATION = b', "dur": '
_STEP = b"ProfilerStep"
_CORRELATION = b'"correlation": '
_STREAM = b'"stream": '
_DEVICE = b'"device": '
_GUESSES = 16
"""After so many different distances rows are not alike, and searching them one by one costs less."""

_KNOWN_KERNELS = 1 << 16
"""Texts of launch configurations that are remembered; many of them vary in details that we do not keep."""


class NotLaidOutError(Exception):
    """The text is not laid out as the profiler does it; it may be good JSON for all that."""


class LineReader:
    """Reads blocks of whole events."""

    def __init__(self, builder: Builder, place: Callable[[int], str]) -> None:
        self._builder = builder
        self._place = place
        self._kernels: dict[tuple[bytes, bytes], int] = {}

    def read(self, text: bytes, begin: int, end: int, at: int) -> None:
        """Read events from the first ``  {`` to the last ``  }``, and add them.

        They fill ``text[begin:end]``; ``at`` is where the text stands in the file.

        Raises:
            NotLaidOutError: something else stands between two events, or within one.

        """
        words = Words(text, end)
        breaks = begin + np.flatnonzero(words.octets[begin:end] == ord("\n"))
        opens, after = _events(words, np.concatenate(([begin], breaks + 1)), end)
        header = opens + len(BEGIN)
        complete = words.is_literal(header, _COMPLETE)
        others = np.flatnonzero(~complete)
        phase = header[others]
        is_known = words.is_literal(phase, _PHASE) & (words.octets[phase + len(_PHASE)] != ord("X"))
        self._one_by_one(text, at, opens, after, others[~is_known])
        breaks = np.concatenate((breaks, [end, end]))
        header_ends = np.searchsorted(breaks, header[complete])
        times, anchors = breaks[header_ends] + 1, breaks[header_ends + 1]
        self._complete_events(_Rows(text, words, opens[complete], after[complete], times, anchors), at)

    def _one_by_one(self, text: bytes, at: int, opens: Ints, after: Ints, rows: Ints) -> None:
        for row in rows.tolist():
            try:
                add_events(text[opens[row] : after[row]], self._builder, self._place(at + int(opens[row])))
            except ValueError as cause:
                raise NotLaidOutError from cause

    def _complete_events(self, rows: _Rows, at: int) -> None:
        words, header = rows.words, rows.opens + len(BEGIN)
        code, categories, quote = words.names(header + len(_COMPLETE) + len(_CATEGORY))
        start, behind, start_fine, is_whole = words.microseconds(rows.times + len(_TIMES), is_short=False)
        duration, end, duration_fine, _ = words.microseconds(behind + len(_DURATION), is_short=True)
        fine = words.is_literal(header + len(_COMPLETE), _CATEGORY) & (code >= 0) & words.is_literal(quote, _NAME)
        fine &= words.is_literal(rows.times, _TIMES) & words.is_literal(behind, _DURATION) & start_fine & duration_fine
        fine &= words.is_literal(end, SEPARATOR)
        self._builder.has_decimals |= bool((fine & ~is_whole).any())
        for number, category in enumerate(categories):
            chosen = np.flatnonzero(fine & (code == number))
            if not len(chosen):
                continue
            events = _Events(rows.where(chosen), (quote + len(_NAME))[chosen], start[chosen], duration[chosen])
            role = role_of(category)
            if role is Role.GPU:
                fine[chosen] = self._gpu(events, activity_of(category))
            elif role is Role.CALL:
                fine[chosen] = self._calls(events)
            elif role is not Role.OTHER:
                self._host(events, is_work=role is Role.CPU, on_gpu=category.lower() == GPU_NOTE)
            self._builder.event_counts[category] += int(fine[chosen].sum())
        self._one_by_one(rows.text, at, rows.opens, rows.after, np.flatnonzero(~fine))

    def _gpu(self, events: _Events, activity: Activity) -> Flags:
        """Add GPU events; say which could be read."""
        rows = events.rows
        device, _, has_device = rows.number(_DEVICE)
        stream, _, has_stream = rows.number(_STREAM)
        correlation, behind, has_correlation = rows.number(_CORRELATION)
        fine = has_device & has_stream & has_correlation
        config = self._configs(events, behind, fine, is_kernel=activity is Activity.KERNEL)
        self._builder.add_gpu(
            GpuEvents(
                events.start_ns[fine],
                events.duration_ns[fine],
                np.full(int(fine.sum()), activity, np.int32),
                config[fine],
                device[fine],
                stream[fine],
                correlation[fine],
            )
        )
        return fine

    def _configs(self, events: _Events, behind: Ints, fine: Flags, *, is_kernel: bool) -> SmallInts:
        """Give the launch configurations; ``fine`` is cleared where a row has none."""
        rows, text, known = events.rows, events.rows.text, self._kernels
        ends = rows.find(_AFTER_NAME, events.names, rows.times)
        fine &= ends >= 0
        found = np.full(len(fine), -1, np.int32)
        chosen = np.flatnonzero(fine)
        columns = (chosen, events.names[chosen], ends[chosen], behind[chosen], rows.after[chosen])
        for row, name, end, tail, after in zip(*(column.tolist() for column in columns), strict=True):
            key = text[name:end], text[tail:after] if is_kernel else b""
            config = known.get(key)
            found[row] = self._learn(key, rows, row, is_kernel=is_kernel) if config is None else config
        fine &= found >= 0
        return found

    def _learn(self, key: tuple[bytes, bytes], rows: _Rows, row: int, *, is_kernel: bool) -> int:
        try:
            config = config_of_event(rows.text[rows.opens[row] : rows.after[row]])
        except ValueError as cause:
            raise NotLaidOutError from cause
        number = self._builder.config(config if is_kernel else KernelConfig(config.name))
        if len(self._kernels) >= _KNOWN_KERNELS:
            self._kernels.clear()
        self._kernels[key] = number
        return number

    def _calls(self, events: _Events) -> Flags:
        """Add calls of the host; say which could be read."""
        code, names, _ = events.rows.words.names(events.names)
        correlation, _, fine = events.rows.number(_CORRELATION)
        fine &= code >= 0
        # Code -1, a name that could not be read, takes the last place; its row is not fine.
        api = np.array([*map(self._builder.api, names), -1], np.int32)[code]
        start, duration = events.start_ns[fine], events.duration_ns[fine]
        self._builder.add_calls(start, duration, correlation[fine], api[fine])
        self._builder.add_cpu(start, start + duration)
        return fine

    def _host(self, events: _Events, *, is_work: bool, on_gpu: bool) -> None:
        """Add steps and, of what is work, its time."""
        rows = events.rows
        is_step = rows.words.is_literal(events.names, _STEP)
        end_ns = events.start_ns + events.duration_ns
        for row in np.flatnonzero(is_step).tolist():
            name = rows.text[events.names[row] : rows.text.find(b'"', events.names[row])].decode("utf-8", "replace")
            self._builder.add_step(Step(name, int(events.start_ns[row]), int(end_ns[row]), on_gpu))
        if is_work:
            self._builder.add_cpu(events.start_ns[~is_step], end_ns[~is_step])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Events of a text: where each begins and ends, and where its line with the times begins and ends (the anchor)."""

    text: bytes
    words: Words
    opens: Ints
    after: Ints
    times: Ints
    anchors: Ints

    def where(self, rows: Ints) -> _Rows:
        columns = (self.opens, self.after, self.times, self.anchors)
        return _Rows(self.text, self.words, *(column[rows] for column in columns))

    def number(self, key: bytes) -> tuple[Ints, Ints, Flags]:
        """Read the whole number of a key; a key cannot stand inside a string, for its quotes would be escaped there."""
        at = self.find(key, self.times, self.after)
        value, behind, readable = self.words.whole(np.maximum(at, 0) + len(key))
        return value, behind, readable & (at >= 0)

    def find(self, key: bytes, since: Ints, until: Ints) -> Ints:
        """Find a key in every row, -1 where it is not there.

        Rows are alike: where one has the key, most have it at the same distance from the end of their line of times.
        So one row is searched, all others are looked at there, and only what is left is searched on.
        """
        places = np.full(len(since), -1, np.int64)
        left = np.arange(len(since))
        for _ in range(_GUESSES):
            if not len(left):
                return places
            place = self.text.find(key, int(since[left[0]]), int(until[left[0]]))
            guess = self.anchors[left] + (place - int(self.anchors[left[0]]))
            hit = (guess >= since[left]) & (guess < until[left])
            hit &= self.words.is_literal(np.where(hit, guess, 0), key)
            hit[0] = True
            places[left[hit]] = guess[hit] if place >= 0 else -1
            left = left[~hit]
        spans = zip(left.tolist(), since[left].tolist(), until[left].tolist(), strict=True)
        for row, first, last in spans:
            places[row] = self.text.find(key, first, last)
        return places


@dataclass(frozen=True, slots=True)
class _Events:
    """Events of one category, with what their headers and times say; ``names`` are places."""

    rows: _Rows
    names: Ints
    start_ns: Ints
    duration_ns: Ints


def _events(words: Words, lines: Ints, end: int) -> tuple[Ints, Ints]:
    """Give where events begin and end. They follow each other with nothing but a comma and a line break between."""
    sizes = np.diff(lines, append=end)
    opens = lines[sizes == len(BEGIN)]
    opens = opens[words.is_literal(opens, BEGIN)]
    closes = lines[sizes == len(END + SEPARATOR)]
    after = np.append(closes[words.is_literal(closes, END + SEPARATOR)] + len(END), end)
    if len(opens) != len(after) or opens[0] != lines[0] or not words.is_literal(after[-1:] - len(END), END)[0]:
        raise NotLaidOutError
    if np.any(opens[1:] != after[:-1] + len(SEPARATOR)):
        raise NotLaidOutError
    return opens, after
