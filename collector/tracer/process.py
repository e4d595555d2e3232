"""One traced process as the agent reads it: the seconds that have become final since it was last looked at."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from collector.tracer import layout
from collector.tracer.find import Refused

SECOND: Final = 10**9
ATTEMPTS: Final = 6
"""Tries to copy a piece while the writer writes: 3 ms in all, a hundred times what a write takes."""

UNKNOWN: Final = layout.SECOND_LOST | layout.SECOND_DROPPED
"""Where CUPTI dropped records, busy times are only what remained: as unknown as where it gave none."""

OTHER_NAME: Final = b"(other kernels)"
"""What kernels beyond the table are called together."""

AHEAD_SECONDS: Final = 2
"""How far ahead of our own clock a time may be; what is closed lies behind it."""


def read_header(memory: layout.Memory, own_pid: int | None, start_ticks: int) -> layout.Header:
    """Read the header of memory that a process of this number (in its own namespace) and start is to have made.

    Raises:
        Refused: it is laid out otherwise, of another process, or being written without end.

    """
    header = layout.parse_header(_copy(memory, layout.HEADER_SPAN))
    if not layout.is_ours(header):
        raise Refused("has another layout version" if header.magic == layout.MAGIC else "is not ours")
    if header.pid != own_pid or header.process_start_ticks not in (0, start_ticks):
        raise Refused("is of another process")  # one that was just forked shows its parent's
    return header


def _copy(memory: layout.Memory, span: layout.Span) -> bytes:
    pieces = layout.read_together(memory, [span], ATTEMPTS)
    if pieces is None:
        raise Refused("is being written without end")
    return pieces[0]


@dataclass(frozen=True, slots=True)
class Busy:
    """What a process did on one device within one second. ``slots`` are absent where it did nothing."""

    bound_seconds: float = 0.0
    copy_seconds: float = 0.0
    busy_seconds: float = 0.0
    kernel_seconds: float = 0.0
    overhead_idle_seconds: float = 0.0
    late_seconds: float = 0.0
    kernels: int = 0
    launches: int = 0
    gaps: int = 0
    slots: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class TracedSecond:
    """One final second of a process, on the host's monotonic clock; ``devices`` by UUID without its prefix.

    ``covered_seconds`` of it are known; 0 with ``lost``. Before it was traced and after its end a process ran nothing:
    its first and its last second are covered whole. ``complete`` says that it did nothing on any other device: each
    that it used is among these.
    """

    second: int
    covered_seconds: float
    lost: bool
    devices: dict[str, Busy]
    complete: bool = True

    def on(self, uuids: Mapping[str, str]) -> TracedSecond:
        """Give the same with the driver's spelling of UUIDs; a device that the driver does not know is left out."""
        known = {uuids[name]: busy for name, busy in self.devices.items() if name in uuids}
        return replace(self, devices=known, complete=self.complete and len(known) == len(self.devices))


@dataclass(slots=True)
class TracedProcess:
    """A process whose memory is open. ``clock_shift_seconds`` leads from its monotonic clock to the host's."""

    pid: int
    key: str
    memory: layout.Memory
    clock_shift_seconds: int = 0
    header: layout.Header | None = None
    next_second: int = 0
    """The first second, by its own clock, that was not told yet."""

    is_writing: bool = False
    """Whether it had written something between the last two looks: then it lived in the meantime."""

    uuids: dict[int, str] = field(default_factory=dict)
    """Its devices: by ordinal, UUIDs without prefix."""

    def look(self, *, own_pid: int, start_ticks: int, since_second: int, now_second: int) -> list[TracedSecond]:
        """Read what has become final. ``since_second`` and ``now_second`` are on the host's monotonic clock.

        Raises:
            Refused: the memory is not what it should be, or is being written without end.

        """
        self.is_writing = False
        header = read_header(self.memory, own_pid, start_ticks)
        closed = header.closed_until_nanoseconds // SECOND
        if closed + self.clock_shift_seconds > now_second + AHEAD_SECONDS:
            raise Refused("tells of a time to come")
        if self.header is None:
            self.next_second = max(since_second - self.clock_shift_seconds, header.started_at_nanoseconds // SECOND)
        before, self.header = self.header, header
        has_written = before is None or header.updated_at_nanoseconds != before.updated_at_nanoseconds
        self.is_writing = has_written and header.state != layout.STATE_ENDED
        if header.state == layout.STATE_ENDED:  # it closes all; what lies behind its end is no time of its own
            closed = min(closed, header.updated_at_nanoseconds // SECOND + 1)
        if closed <= self.next_second:
            return []
        first = max(self.next_second, closed - layout.SECONDS_MAX + 1)
        seconds = layout.parse_seconds(self._piece(layout.SECONDS_SPAN), range(first, closed))
        complete = self._find_devices()
        found = list(self._seconds(range(first, closed), seconds, header, complete=complete))
        self.next_second = closed
        return found

    def totals(self) -> dict[str, layout.DeviceTotals]:
        """Read the totals of its devices since the start.

        Raises:
            Refused: it is being written without end.

        """
        return {name: layout.parse_device(self._piece(layout.device_span(place))) for place, name in self.uuids.items()}

    def kernels(self) -> list[layout.Kernel]:
        """Read the table of kernels since the start; those that found no place in it are one, without configuration.

        Raises:
            Refused: it is being written without end.

        """
        header = self.header
        if header is None or not header.kernels_used:
            return []
        found = layout.parse_kernels(self._piece(layout.KERNELS_SPAN), header.kernels_used)
        others = (header.other_count_total, header.other_nanoseconds_total, header.other_nanoseconds_max)
        return [*found, layout.Kernel(0, OTHER_NAME, (0, 0, 0), (0, 0, 0), 0, 0, *others)] if others[0] else found

    def _piece(self, span: layout.Span) -> bytes:
        return _copy(self.memory, span)

    def _find_devices(self) -> bool:
        """Look for devices that have got a name; say whether all that are used have one."""
        is_complete = True
        for ordinal in range(layout.DEVICES_MAX):
            if ordinal in self.uuids:
                continue
            flags = layout.device_flags(self.memory, ordinal)
            if not flags & layout.DEVICE_USED:
                continue
            if not flags & layout.DEVICE_HAS_UUID:
                is_complete = False
                continue
            device = layout.parse_device(self._piece(layout.device_span(ordinal)))
            self.uuids[ordinal] = str(uuid.UUID(bytes=device.uuid))
        return is_complete

    def _seconds(
        self, wanted: range, seconds: dict[int, layout.Second], header: layout.Header, *, complete: bool
    ) -> Iterator[TracedSecond]:
        edges = {header.started_at_nanoseconds // SECOND}
        if header.state == layout.STATE_ENDED:
            edges.add(header.updated_at_nanoseconds // SECOND)
        for second in wanted:
            told = seconds.get(second)
            lost = told is None or bool(told.flags & UNKNOWN)
            covered = 0.0 if told is None or lost else min(1.0, told.armed_nanoseconds / SECOND)
            if second in edges and not lost and told is not None and not told.flags & layout.SECOND_PAUSED:
                covered = 1.0
            # Of a lost second nothing is known, but which devices it would have been told of: they say so.
            devices = {name: Busy() if lost else self._busy(place, second) for place, name in self.uuids.items()}
            yield TracedSecond(second + self.clock_shift_seconds, covered, lost, devices, complete)

    def _busy(self, ordinal: int, second: int) -> Busy:
        bucket, slots = layout.parse_bucket(self._piece(layout.bucket_span(ordinal, second)))
        if bucket.second != second:
            return Busy()
        times = (
            bucket.kernel_busy_nanoseconds,
            bucket.copy_busy_nanoseconds,
            bucket.any_busy_nanoseconds,
            bucket.overhead_idle_nanoseconds,
        )
        if max(times) > SECOND or bucket.any_busy_nanoseconds < max(times[:2]):
            raise Refused("tells what cannot be true")
        return Busy(
            bound_seconds=bucket.kernel_busy_nanoseconds / SECOND,
            copy_seconds=bucket.copy_busy_nanoseconds / SECOND,
            busy_seconds=bucket.any_busy_nanoseconds / SECOND,
            kernel_seconds=bucket.kernel_sum_nanoseconds / SECOND,
            overhead_idle_seconds=bucket.overhead_idle_nanoseconds / SECOND,
            late_seconds=min(bucket.late_nanoseconds / SECOND, 1.0),
            kernels=bucket.kernels,
            launches=bucket.launches,
            gaps=bucket.gaps,
            slots=slots if bucket.kernel_busy_nanoseconds else (),
        )
