"""What a process's tables have grown by within the hour: its kernels, and the lengths of kernels and gaps.

Kernels that look alike are one row: names are cut, and many that found no room for theirs share one. Those beyond the
table are a row of their own, so that the sum over kernels is whole.

The tables count since the process started. An hour's rows are the difference to how they stood when the hour began,
told again whenever they have grown; the store keeps the last word. The longest run is the longest since the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from collector.tracer.layout import BINS_MAX, DeviceTotals, Kernel
from warehouse.contract.model import KernelProfile, LengthProfile

SOURCE: Final = "kernels"
HOUR: Final = 3600.0
NAME_MAX: Final = 1024
COUNT_MAX: Final = 2**53
"""Nobody has launched as much: whoever says so is not believed, and no reader's number overflows."""

UNNAMED: Final = "(no name)"

_Counted = tuple[int, int]
_Look = tuple[str, str | None, str | None, int | None, int | None]


@dataclass(slots=True)
class Profile:
    """One process's profile. ``began_before`` says that it was there before anybody read it: its past is left out."""

    name: str
    began_before: bool
    _hour_at: float | None = None
    _kernels: dict[_Look, _Counted] = field(default_factory=dict)
    _lengths: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    _now_kernels: dict[_Look, _Counted] = field(default_factory=dict)
    _now_lengths: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    _said: dict[tuple[object, ...], int] = field(default_factory=dict)

    def rows(
        self, at: float, attempt_key: str, kernels: list[Kernel], totals: Mapping[str, DeviceTotals]
    ) -> Iterator[KernelProfile | LengthProfile]:
        """Give the rows that have grown. ``totals`` are by the device's UUID."""
        hour_at = at // HOUR * HOUR
        if self._hour_at is None and self.began_before:
            self._remember(kernels, totals)
        if hour_at != self._hour_at:
            self._hour_at, self._said = hour_at, {}
            self._kernels, self._lengths = self._now_kernels, self._now_lengths
        yield from self._kernel_rows(hour_at, attempt_key, kernels)
        yield from self._length_rows(hour_at, attempt_key, totals)
        self._remember(kernels, totals)

    def _remember(self, kernels: list[Kernel], totals: Mapping[str, DeviceTotals]) -> None:
        self._now_kernels = {
            key: (sum(one.count_total for one in alike), sum(one.nanoseconds_total for one in alike))
            for key, alike in _alike(kernels).items()
        }
        self._now_lengths = {
            (device, kind): counts for device, total in totals.items() for kind, counts in _lengths(total)
        }

    def _kernel_rows(self, hour_at: float, attempt_key: str, kernels: list[Kernel]) -> Iterator[KernelProfile]:
        for key, alike in _alike(kernels).items():
            count, nanoseconds = self._kernels.get(key, (0, 0))
            launches = sum(one.count_total for one in alike) - count
            total = sum(one.nanoseconds_total for one in alike) - nanoseconds
            if not 0 < launches < COUNT_MAX or total < 0 or self._said.get(key) == launches:
                continue
            self._said[key] = launches
            name, grid, block, registers, shared_memory = key
            yield KernelProfile(
                attempt_key=attempt_key,
                profile=self.name,
                source=SOURCE,
                hour_at=hour_at,
                kernel_name=name,
                launch_count=launches,
                total_seconds=total / 1e9,
                longest_seconds=max(one.nanoseconds_max for one in alike) / 1e9,
                grid=grid,
                block=block,
                registers_per_thread=registers,
                shared_memory_bytes=shared_memory,
            )

    def _length_rows(
        self, hour_at: float, attempt_key: str, totals: Mapping[str, DeviceTotals]
    ) -> Iterator[LengthProfile]:
        for device, total in totals.items():
            for kind, counts in _lengths(total):
                before = self._lengths.get((device, kind), (0,) * BINS_MAX)
                for place, (new, old) in enumerate(zip(counts, before, strict=True)):
                    if not 0 < new - old < COUNT_MAX or self._said.get((device, kind, place)) == new - old:
                        continue
                    self._said[device, kind, place] = new - old
                    longest = None if place == BINS_MAX - 1 else 2 ** (place + 1) / 1e9
                    shortest = 0.0 if place == 0 else 2**place / 1e9
                    yield LengthProfile(
                        *(attempt_key, self.name, SOURCE, hour_at, device, kind, shortest, longest, new - old)
                    )


def _lengths(total: DeviceTotals) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return ("kernel", total.kernel_lengths_total), ("gap", total.gap_lengths_total)


def _alike(kernels: list[Kernel]) -> dict[_Look, list[Kernel]]:
    """Give kernels by what tells them apart in a row: the name that is shown and the launch configuration."""
    found: dict[_Look, list[Kernel]] = {}
    for kernel in kernels:
        look: _Look = (_name(kernel.name), None, None, None, None)
        if any(kernel.grid):  # all but those beyond the table
            grid, block = ("x".join(map(str, axes)) for axes in (kernel.grid, kernel.block))
            look = (look[0], grid, block, kernel.registers_per_thread, kernel.shared_memory_bytes)
        found.setdefault(look, []).append(kernel)
    return found


def _name(name: bytes | None) -> str:
    """Give a name as text, whatever bytes stand there: what cannot be shown is replaced."""
    if not name:
        return UNNAMED
    text = name[:NAME_MAX].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
