"""The memory that a traced process publishes, as Python reads it: the twin of ``layout.h``.

The tracer writes, the agent reads. Everything here is a copy of what another process wrote: whoever reads it checks the
name, the seals and the size of the file first (README.md says how), and :func:`is_ours` checks the rest. Values are
those of ``layout.h``: times are CLOCK_MONOTONIC of the traced process in nanoseconds, names ending in ``_total`` count
since the start. A test compares every offset with the C header.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

NAME: Final = "trueload-tracer"
"""What ``/proc/PID/fd/N`` points to: ``/memfd:trueload-tracer (deleted)``."""

MAGIC: Final = int.from_bytes(b"TLDTRAC1", "little")
VERSION: Final = 1
DEVICES_MAX: Final = 16
SECONDS_MAX: Final = 90
SLOTS_MAX: Final = 1000
KERNELS_MAX: Final = 512
NAMES_BYTES: Final = 128 * 1024
LOST_MAX: Final = 32
BINS_MAX: Final = 40
OVERHEADS_MAX: Final = 10
SLOT_FULL: Final = 65535

STATE_STARTING, STATE_ARMED, STATE_LOST, STATE_PAUSED, STATE_FAILED, STATE_ENDED = range(6)
MODE_NONE, MODE_SHARED_CALLBACKS, MODE_SUBSCRIBER = range(3)
STEP_NONE, STEP_LOAD, STEP_SYMBOLS, STEP_SUBSCRIBE, STEP_CALLBACKS, STEP_ENABLE, STEP_THREAD = range(7)
LOST_REFUSED, LOST_BUFFER_KEPT, LOST_CLOCK_ONLY, LOST_DETACHED, LOST_BUSY = range(1, 6)
SECOND_LOST, SECOND_PAUSED, SECOND_DROPPED, SECOND_ASSUMED, SECOND_EARLY = (1 << bit for bit in range(5))
DEVICE_USED, DEVICE_HAS_UUID = 1, 2


class Lost(NamedTuple):
    """A stretch in which records did not reach the tracer. ``until_nanoseconds`` 0: it lasts."""

    from_nanoseconds: int
    until_nanoseconds: int
    reason: int
    code: int


class Second(NamedTuple):
    """One second of the process, whatever its devices did. ``second`` is ``time // 1e9``."""

    second: int
    armed_nanoseconds: int
    callback_nanoseconds: int
    overhead_nanoseconds: int
    flags: int
    records: int
    dropped: int
    requests: int


class Bucket(NamedTuple):
    """One second of one device, without its slots. ``layout.h`` says what each value means."""

    second: int
    kernel_busy_nanoseconds: int
    copy_busy_nanoseconds: int
    any_busy_nanoseconds: int
    kernel_sum_nanoseconds: int
    copy_sum_nanoseconds: int
    overhead_idle_nanoseconds: int
    late_nanoseconds: int
    kernels: int
    copies: int
    launches: int
    gaps: int
    late_count: int
    unused: int


class DeviceTotals(NamedTuple):
    """What a device did since the start; its buckets follow in memory."""

    ordinal: int
    flags: int
    uuid: bytes
    kernel_busy_nanoseconds_total: int
    copy_busy_nanoseconds_total: int
    any_busy_nanoseconds_total: int
    kernel_sum_nanoseconds_total: int
    copy_sum_nanoseconds_total: int
    overhead_idle_nanoseconds_total: int
    kernels_total: int
    copies_total: int
    launches_total: int
    gaps_total: int
    late_nanoseconds_total: int
    late_count_total: int
    kernel_lengths_total: tuple[int, ...]
    gap_lengths_total: tuple[int, ...]


class Kernel(NamedTuple):
    """A kernel with one launch configuration. ``name`` is mangled, and ``None`` where there was no room for it."""

    name_hash: int
    name: bytes | None
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers_per_thread: int
    shared_memory_bytes: int
    count_total: int
    nanoseconds_total: int
    nanoseconds_max: int


class Header(NamedTuple):
    """What the process says of itself. ``layout.h`` says what each value means; ``lost`` is oldest first."""

    magic: int
    version: int
    header_bytes: int
    total_bytes: int
    sequence: int
    devices_max: int
    seconds_max: int
    slots_max: int
    kernels_max: int
    names_bytes: int
    lost_max: int
    bins_max: int
    overheads_max: int
    seconds_offset: int
    devices_offset: int
    kernels_offset: int
    names_offset: int
    second_bytes: int
    device_bytes: int
    bucket_bytes: int
    kernel_bytes: int
    pid: int
    cupti_version: int
    mode: int
    state: int
    failure_step: int
    failure_code: int
    graph_level: int
    cuda_driver_version: int
    process_start_ticks: int
    clock_offset_nanoseconds: int
    started_at_nanoseconds: int
    lateness_nanoseconds: int
    hold_nanoseconds: int
    duty_on_nanoseconds: int
    duty_off_nanoseconds: int
    boot_id: bytes
    updated_at_nanoseconds: int
    closed_until_nanoseconds: int
    steps_total: int
    records_total: int
    incomplete_total: int
    implausible_total: int
    unknown_total: int
    dropped_total: int
    buffers_requested_total: int
    buffers_refused_total: int
    buffers_completed_total: int
    buffers_outstanding: int
    callback_nanoseconds_total: int
    flushes_total: int
    flush_nanoseconds_total: int
    out_of_reach_total: int
    out_of_reach_nanoseconds_total: int
    kernels_used: int
    names_used: int
    other_count_total: int
    other_nanoseconds_total: int
    other_nanoseconds_max: int
    overhead_count_total: tuple[int, ...]
    overhead_nanoseconds_total: tuple[int, ...]
    lost_total: int
    lost: tuple[Lost, ...]


_LOST: Final = struct.Struct("<QQIi")
_SECOND: Final = struct.Struct("<QQQQIIII")
_BUCKET: Final = struct.Struct("<8Q6I")
_SLOTS: Final = struct.Struct(f"<{SLOTS_MAX}H")
_DEVICE: Final = struct.Struct(f"<II16s12Q{2 * BINS_MAX}Q")
_KERNEL: Final = struct.Struct("<QII3I3IIIQQQ")
_HEADER: Final = struct.Struct(f"<QIIQQ16IiIIIIiIIQqQQQQQ40s22Q{2 * OVERHEADS_MAX}QQ")

HEADER_BYTES: Final = _HEADER.size + LOST_MAX * _LOST.size
SECOND_BYTES: Final = _SECOND.size
BUCKET_BYTES: Final = _BUCKET.size + _SLOTS.size
DEVICE_BYTES: Final = _DEVICE.size + SECONDS_MAX * BUCKET_BYTES
KERNEL_BYTES: Final = _KERNEL.size
SECONDS_OFFSET: Final = HEADER_BYTES
DEVICES_OFFSET: Final = SECONDS_OFFSET + SECONDS_MAX * SECOND_BYTES
KERNELS_OFFSET: Final = DEVICES_OFFSET + DEVICES_MAX * DEVICE_BYTES
NAMES_OFFSET: Final = KERNELS_OFFSET + KERNELS_MAX * KERNEL_BYTES
TOTAL_BYTES: Final = NAMES_OFFSET + NAMES_BYTES
"""The size of the memory. It never changes; a file of any other size is none of ours."""

_SIZES: Final = slice(Header._fields.index("devices_max"), Header._fields.index("pid"))
_EXPECTED: Final = (
    *(DEVICES_MAX, SECONDS_MAX, SLOTS_MAX, KERNELS_MAX, NAMES_BYTES, LOST_MAX, BINS_MAX, OVERHEADS_MAX),
    *(SECONDS_OFFSET, DEVICES_OFFSET, KERNELS_OFFSET, NAMES_OFFSET),
    *(SECOND_BYTES, DEVICE_BYTES, BUCKET_BYTES, KERNEL_BYTES),
)
_BOOT_ID: Final = Header._fields.index("boot_id")
_SEQUENCE: Final = struct.Struct("<Q")
_SEQUENCE_OFFSET: Final = 24
_FLAGS: Final = struct.Struct("<I")
"""Of a device, behind its ordinal of the same size."""

Buffer = bytes | bytearray | memoryview


class Memory(Protocol):
    """What pieces can be copied from: a mapping, or a file that is read piece by piece."""

    def __getitem__(self, part: slice, /) -> Buffer:
        """Give the bytes of a slice with a start and a stop."""
        ...


class Span(NamedTuple):
    """A piece of the memory."""

    offset: int
    length: int


HEADER_SPAN: Final = Span(0, HEADER_BYTES)
SECONDS_SPAN: Final = Span(SECONDS_OFFSET, SECONDS_MAX * SECOND_BYTES)
KERNELS_SPAN: Final = Span(KERNELS_OFFSET, NAMES_OFFSET + NAMES_BYTES - KERNELS_OFFSET)
"""The table of kernels with its names."""


def device_span(ordinal: int) -> Span:
    """Where the totals of a device stand."""
    return Span(DEVICES_OFFSET + ordinal * DEVICE_BYTES, _DEVICE.size)


def bucket_span(ordinal: int, second: int) -> Span:
    """Where the bucket of this second stands, if the ring still holds it: compare ``Bucket.second``."""
    place = DEVICES_OFFSET + ordinal * DEVICE_BYTES + _DEVICE.size + second % SECONDS_MAX * BUCKET_BYTES
    return Span(place, BUCKET_BYTES)


def read_together(memory: Memory, spans: Sequence[Span], attempts: int = 20) -> list[bytes] | None:
    """Copy pieces that belong to one state of the memory, or ``None`` when every attempt met a write under way.

    A write takes some 30 microseconds per buffer of CUPTI's, but the writer may lose its processor in the middle: after
    a failed attempt the reader waits 0.1 ms, then twice as long each time up to 5 ms (72 ms in all). Read little at
    once: pieces that need not agree with each other are better read one by one.
    """
    for attempt in range(attempts):
        if attempt:
            time.sleep(min(0.005, 0.0001 * 2 ** (attempt - 1)))
        before = _sequence(memory)
        if before % 2 == 0:
            copies = [bytes(memory[span.offset : span.offset + span.length]) for span in spans]
            if _sequence(memory) == before:
                return copies
    return None


def _sequence(memory: Memory) -> int:
    return int(_SEQUENCE.unpack(memory[_SEQUENCE_OFFSET : _SEQUENCE_OFFSET + _SEQUENCE.size])[0])


def is_ours(header: Header) -> bool:
    """Whether the memory is laid out as this module reads it; then its sizes are no longer just the writer's word."""
    sizes = (header.magic, header.version, header.header_bytes, header.total_bytes)
    return sizes == (MAGIC, VERSION, HEADER_BYTES, TOTAL_BYTES) and header[_SIZES] == _EXPECTED


def parse_header(content: Buffer) -> Header:
    """Read a header from the bytes of ``HEADER_SPAN``; what it says of sizes is believed only after :func:`is_ours`."""
    values = list(_HEADER.unpack_from(content))
    values[_BOOT_ID] = values[_BOOT_ID].rstrip(b"\0")
    scalars, overheads, lost_total = values[: -2 * OVERHEADS_MAX - 1], values[-2 * OVERHEADS_MAX - 1 : -1], values[-1]
    lost = tuple(
        Lost(*_LOST.unpack_from(content, _HEADER.size + n % LOST_MAX * _LOST.size)) for n in _newest(lost_total)
    )
    rest = (tuple(overheads[:OVERHEADS_MAX]), tuple(overheads[OVERHEADS_MAX:]), lost_total, lost)
    return Header._make((*scalars, *rest))


def _newest(lost_total: int) -> range:
    return range(max(0, lost_total - LOST_MAX), lost_total)


def parse_seconds(content: Buffer, wanted: range | None = None) -> dict[int, Second]:
    """Read the ring of seconds (``SECONDS_SPAN``), by second; of all that were told, or of those that are wanted."""
    if wanted is None:
        found = map(Second._make, _SECOND.iter_unpack(content))
        return {one.second: one for one in found if one.second}
    places = ((second, second % SECONDS_MAX * _SECOND.size) for second in wanted)
    there = ((second, Second._make(_SECOND.unpack_from(content, place))) for second, place in places)
    return {second: one for second, one in there if one.second == second}


def parse_device(content: Buffer) -> DeviceTotals:
    """Read the totals of one device (:func:`device_span`)."""
    values = _DEVICE.unpack_from(content)
    split = len(values) - 2 * BINS_MAX
    return DeviceTotals._make((*values[:split], values[split : split + BINS_MAX], values[split + BINS_MAX :]))


def device_flags(memory: Memory, ordinal: int) -> int:
    """Whether a device is used and named (``DEVICE_…``): set once, for good, so that a glance is enough."""
    place = DEVICES_OFFSET + ordinal * DEVICE_BYTES + _FLAGS.size
    (flags,) = _FLAGS.unpack(memory[place : place + _FLAGS.size])
    return int(flags)


def parse_bucket(content: Buffer) -> tuple[Bucket, Sequence[int]]:
    """Read one bucket (:func:`bucket_span`) and its slots, each the share of a millisecond out of ``SLOT_FULL``.

    Slots stay the bytes that they are, for some seconds of each process are kept: as numbers they would take twenty
    times as much. They are in the order of this machine, as the tracer's are: both are little-endian.
    """
    slots = memoryview(content)[_BUCKET.size : BUCKET_BYTES].cast("H")
    return Bucket._make(_BUCKET.unpack_from(content)), slots


def parse_kernels(content: Buffer, used: int) -> list[Kernel]:
    """Read the table of kernels (``KERNELS_SPAN``), of which the header says how many are used.

    A name that points outside the names is taken as absent.
    """
    names = memoryview(content)[NAMES_OFFSET - KERNELS_OFFSET :]
    kernels = []
    for i in range(min(used, KERNELS_MAX)):
        name_hash, offset, length, *rest = _KERNEL.unpack_from(content, i * KERNEL_BYTES)
        name = bytes(names[offset : offset + length]) if 0 < length <= NAMES_BYTES - offset else None
        grid, block = tuple(rest[0:3]), tuple(rest[3:6])
        kernels.append(Kernel(name_hash, name, grid, block, *rest[6:]))
    return kernels
