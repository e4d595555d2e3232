"""Gathering a timeline event by event, or many at once, in memory that grows with GPU events and not with the file."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from enum import Enum
from typing import Any

import numpy as np

from warehouse.timeline import (
    NO_CORRELATION,
    Activity,
    Calls,
    GpuEvents,
    Ints,
    KernelConfig,
    Refused,
    SmallInts,
    Spans,
    Step,
    Timeline,
    concatenate,
)

NO_STREAM = -1
GPU_NOTE = "gpu_user_annotation"
"""The category of stretches on a device; ``user_annotation`` is that of the host's."""

_STEP_PREFIX = "ProfilerStep"
_LONGEST_NS = 366 * 86_400 * 10**9
"""Longer than a year no event of a profile lasts."""

_EARLIEST_EPOCH_NS = 10**18
"""September 2001: a clock that stands higher counts from the epoch, for no machine is up for 31 years."""

_PENDING_CPU_INTERVALS = 1 << 20
"""So many intervals of the host wait to be merged: 16 MiB. Nested operators merge into their outermost one."""

_DECIMAL = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?\Z")
_CPU_CATEGORIES = {"cpu_op", "operator", "python_function", "python"}
_GPU_ACTIVITIES = {
    "kernel": Activity.KERNEL,
    "gpu_memcpy": Activity.MEMCPY,
    "memcpy": Activity.MEMCPY,
    "gpu_memset": Activity.MEMSET,
    "memset": Activity.MEMSET,
    "cuda_sync": Activity.SYNC,
}


class Role(Enum):
    """What an event of a category is to us."""

    GPU = "gpu"
    CALL = "call"
    CPU = "cpu"
    NOTE = "note"
    OTHER = "other"


def role_of(category: str) -> Role:
    """Sort a category, those of profilers before 2022 (``Kernel``, ``Runtime``) included; unknown ones are OTHER."""
    word = category.lower()
    if word in _GPU_ACTIVITIES:
        return Role.GPU
    if word in _CPU_CATEGORIES:
        return Role.CPU
    if word.endswith(("runtime", "driver")):
        return Role.CALL
    return Role.NOTE if word in {"user_annotation", GPU_NOTE} else Role.OTHER


def activity_of(category: str) -> Activity:
    """Give the activity of a category whose role is GPU."""
    return _GPU_ACTIVITIES[category.lower()]


@dataclass(slots=True)
class _Tally:
    count: int
    place: str
    detail: str


class Builder:
    """A timeline in the making."""

    def __init__(self) -> None:
        self.event_counts: Counter[str] = Counter()
        self.has_decimals = False
        self._configs: dict[KernelConfig, int] = {}
        self._apis: dict[str, int] = {}
        self._gpu: list[GpuEvents] = []
        self._calls: list[tuple[Ints, Ints, Ints, SmallInts]] = []
        self._cpu: list[tuple[Ints, Ints]] = []
        self._cpu_count = 0
        self._steps: list[Step] = []
        self._refused: dict[str, _Tally] = {}
        self._gpu_rows: list[tuple[int, ...]] = []
        self._call_rows: list[tuple[int, ...]] = []
        self._cpu_rows: list[tuple[int, int]] = []

    # ------------------------------------------------------------------------------------------------ many at once

    def config(self, config: KernelConfig) -> int:
        """Give the number of a launch configuration."""
        return self._configs.setdefault(config, len(self._configs))

    def api(self, name: str) -> int:
        """Give the number of a function of the runtime or driver."""
        return self._apis.setdefault(name, len(self._apis))

    def add_gpu(self, events: GpuEvents) -> None:
        """Add columns of GPU events."""
        self._gpu.append(events)

    def add_calls(self, start_ns: Ints, duration_ns: Ints, correlation: Ints, api: SmallInts) -> None:
        """Add columns of calls; their time is the host's too, and has to be added by ``add_cpu``."""
        self._calls.append((start_ns, duration_ns, correlation, api))

    def add_cpu(self, start_ns: Ints, end_ns: Ints) -> None:
        """Add intervals of the host, merged as they come."""
        self._cpu.append((start_ns, end_ns))
        self._cpu_count += len(start_ns)
        if self._cpu_count >= _PENDING_CPU_INTERVALS:
            merged = self._merge_cpu()
            self._cpu = [(merged.start_ns, merged.end_ns)]
            self._cpu_count = len(merged.start_ns)

    def refuse(self, reason: str, place: str, detail: str) -> None:
        """Count an event that cannot be used."""
        tally = self._refused.setdefault(reason, _Tally(0, place, detail))
        tally.count += 1

    # ------------------------------------------------------------------------------------------------- one at a time

    def add_event(self, event: Any, place: str) -> None:
        """Add one event as the file has it, its ``ts`` and ``dur`` as whole numbers or as text; others are passed over.

        An event that lacks what its category needs is refused, and costs only itself.
        """
        if not isinstance(event, dict):
            self.refuse("no event", place, f"{str(event)[:80]!r}; expected an object")
            return
        category = event.get("cat")
        if event.get("ph") != "X" or not isinstance(category, str):
            return
        self.event_counts[category] += 1
        role = role_of(category)
        if role is Role.OTHER:
            return
        try:
            start, is_whole = nanoseconds("ts", event.get("ts"))
            duration, _ = nanoseconds("dur", event.get("dur"))
        except ValueError as cause:
            self.refuse("bad time", place, str(cause))
            return
        if not 0 <= duration <= _LONGEST_NS:
            self.refuse("impossible duration", place, f"dur is {event['dur']}; expected microseconds, 0 to a year's")
            return
        self.has_decimals |= not is_whole
        self._add_row(event, role, start, duration)

    def add_step(self, step: Step) -> None:
        """Add an annotation if it announces an iteration."""
        if step.name.startswith(_STEP_PREFIX):
            self._steps.append(step)

    def _add_row(self, event: dict[str, Any], role: Role, start: int, duration: int) -> None:
        given = event.get("args")
        args = given if isinstance(given, dict) else {}
        name = clean(event.get("name", ""))
        if role is Role.GPU:
            activity = activity_of(event["cat"])
            config = self.config(config_of(name, args) if activity is Activity.KERNEL else KernelConfig(name))
            device = _first_whole(args.get("device"), event.get("pid"), -1)
            stream = _first_whole(args.get("stream"), NO_STREAM)
            self._gpu_rows.append((start, duration, activity, config, device, stream, _correlation(args)))
        elif name.startswith(_STEP_PREFIX):
            self.add_step(Step(name, start, start + duration, on_gpu=event["cat"].lower() == GPU_NOTE))
        elif role is not Role.NOTE:
            self._cpu_rows.append((start, start + duration))
            if role is Role.CALL:
                self._call_rows.append((start, duration, _correlation(args), self.api(name)))
        if len(self._cpu_rows) + len(self._gpu_rows) >= _PENDING_CPU_INTERVALS // 8:
            self._pack_rows()

    # --------------------------------------------------------------------------------------------------------- the end

    def finish(self, head: dict[str, Any]) -> Timeline:
        """Give the timeline. ``head`` is the file without its events."""
        self._pack_rows()
        calls = [np.concatenate([part[at] for part in self._calls]) for at in range(4)] if self._calls else []
        empty = np.empty(0, np.int64)
        start, duration, correlation, api = calls or [empty, empty, empty, np.empty(0, np.int32)]
        gpu, cpu = concatenate(self._gpu), self._merge_cpu()
        info = head.get("distributedInfo")
        distributed = info if isinstance(info, dict) else {}
        return Timeline(
            rank=_whole(distributed.get("rank")),
            world_size=_whole(distributed.get("world_size")),
            clock_zero_ns=_clock_zero(head, gpu, cpu),
            device_names=_device_names(head.get("deviceProperties")),
            gpu=gpu,
            configs=tuple(self._configs),
            calls=Calls(start, duration, correlation, api.astype(np.int32), tuple(self._apis)),
            cpu=cpu,
            steps=tuple(sorted(self._steps, key=lambda step: step.start_ns)),
            event_counts=dict(self.event_counts),
            refused=tuple(
                Refused(reason, tally.count, tally.place, tally.detail) for reason, tally in self._refused.items()
            ),
            labels={clean(key): clean(value) for key, value in head.items() if isinstance(value, str | int)},
            has_decimals=self.has_decimals,
        )

    def _merge_cpu(self) -> Spans:
        if not self._cpu:
            return Spans(np.empty(0, np.int64), np.empty(0, np.int64))
        return Spans.union(*(np.concatenate([part[at] for part in self._cpu]) for at in range(2)))

    def _pack_rows(self) -> None:
        if self._gpu_rows:
            start, duration, activity, config, device, stream, correlation = np.array(self._gpu_rows, np.int64).T
            kinds = activity.astype(np.int32), config.astype(np.int32)
            self.add_gpu(GpuEvents(start, duration, *kinds, device, stream, correlation))
        if self._call_rows:
            start, duration, correlation, api = np.array(self._call_rows, np.int64).T
            self.add_calls(start, duration, correlation, api.astype(np.int32))
        if self._cpu_rows:
            self.add_cpu(*np.array(self._cpu_rows, np.int64).T)
        self._gpu_rows, self._call_rows, self._cpu_rows = [], [], []


def nanoseconds(key: str, microseconds: object) -> tuple[int, bool]:
    """Give nanoseconds for a whole number or the text of a decimal one, and whether it was whole.

    Three decimals are exact. What is finer (a program that copied the file through doubles) is rounded.

    Raises:
        ValueError: neither, or too large for a clock.

    """
    if isinstance(microseconds, int) and not isinstance(microseconds, bool):
        return _in_range(key, microseconds * 1000), True
    if isinstance(microseconds, str) and _DECIMAL.match(microseconds):
        exact = Decimal(microseconds).scaleb(3)
        return _in_range(key, int(exact.to_integral_value(ROUND_HALF_EVEN))), False
    raise ValueError(f"{key} is {microseconds!r}; expected microseconds, such as 12.345")


def config_of(name: str, args: dict[str, Any]) -> KernelConfig:
    """Give how a kernel was launched, as far as the event says."""
    return KernelConfig(
        name,
        _three(args.get("grid")),
        _three(args.get("block")),
        _whole(args.get("registers per thread")),
        _whole(args.get("shared memory")),
    )


def clean(value: object) -> str:
    """Give text that can be stored: half of a surrogate pair, which JSON can spell, becomes a question mark."""
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _in_range(key: str, value: int) -> int:
    if abs(value) >= 1 << 62:
        raise ValueError(f"{key} is {value} ns; expected an instant of this century or of a clock since boot")
    return value


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def _first_whole(*values: object) -> int:
    return next(value for value in map(_whole, values) if value is not None)


def _correlation(args: dict[str, Any]) -> int:
    return _first_whole(args.get("correlation"), NO_CORRELATION)


def _three(value: object) -> tuple[int, int, int] | None:
    match value:
        case [int(x), int(y), int(z)]:
            return x, y, z
        case _:
            return None


def _clock_zero(head: dict[str, Any], gpu: GpuEvents, cpu: Spans) -> int | None:
    """Say when the clock began: profilers since 2024 tell it, those before counted from the epoch."""
    if (told := _whole(head.get("baseTimeNanoseconds"))) is not None:
        return told
    instants = [column[0] for column in (gpu.start_ns, cpu.start_ns) if len(column)]
    return 0 if instants and min(instants) >= _EARLIEST_EPOCH_NS else None


def _device_names(value: object) -> dict[int, str]:
    devices = value if isinstance(value, list) else []
    known = [device for device in devices if isinstance(device, dict)]
    return {
        device["id"]: clean(device["name"])
        for device in known
        if isinstance(device.get("id"), int) and isinstance(device.get("name"), str)
    }
