"""What a change would have saved, in GPU-seconds: the arithmetic that remedies share. Pure functions of evidence."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warehouse.contract.intervals import intersect, length, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from analysis.evidence import AttemptEvidence, IdleStretch
    from warehouse.contract.model import Subject

Span = tuple[float, float]


def recommendation_id(remedy: str, subject: Subject) -> str:
    """Give the stable id of an advice: the same remedy on the same subject is the same advice next week."""
    text = json.dumps([remedy, subject.kind, subject.id])
    return f"r-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True, slots=True)
class WholeIdle:
    """Stretches in which every device of an attempt was held and idle, and the devices' summed share."""

    spans: tuple[Span, ...]
    gpu_share: float

    def beyond(self, grace_seconds: float) -> float:
        """Give the GPU-seconds of the stretches after their first ``grace_seconds``."""
        return sum(max(0.0, end - start - grace_seconds) for start, end in self.spans) * self.gpu_share

    @property
    def gpu_seconds(self) -> float:
        """Give the GPU-seconds of the stretches, whole."""
        return length(self.spans) * self.gpu_share


def whole_idle(attempt: AttemptEvidence) -> WholeIdle:
    """Find when all devices of an attempt were idle at once.

    A job gives its devices back together: one that leaves a single device idle has nothing to release. Stretches of
    both kinds that follow each other on a device are one stretch.
    """
    by_device: dict[str, list[IdleStretch]] = defaultdict(list)
    for stretch in attempt.idle_stretches:
        by_device[stretch.device_uuid].append(stretch)
    held = set(attempt.device_uuids)
    if not by_device or held - by_device.keys() or (not held and len(by_device) < attempt.gpu_count):
        return WholeIdle((), 0.0)
    common: list[Span] | None = None
    for stretches in by_device.values():
        spans = union((stretch.start_at, stretch.end_at) for stretch in stretches)
        common = spans if common is None else intersect(common, spans)
    share = sum(min(stretch.gpu_share for stretch in stretches) for stretches in by_device.values())
    return WholeIdle(tuple(common or ()), share)


@dataclass(frozen=True, slots=True)
class Stack:
    """Members that each hold a card, laid on as few cards as fit: card-seconds held, needed; most at one time."""

    held_seconds: float
    needed_seconds: float
    most_at_once: int

    @property
    def freed_seconds(self) -> float:
        """Give the card-seconds that stacking would have freed."""
        return self.held_seconds - self.needed_seconds


def stack(spans: Iterable[Span], fit_count: int | None) -> Stack:
    """Lay members that run at the same time on common cards, ``fit_count`` on each (None: any number).

    The members keep their times; at each instant n running members need ceil(n / fit_count) cards.
    """
    return stack_running(running_seconds([spans]), fit_count)


def running_seconds(groups: Iterable[Iterable[Span]]) -> dict[int, float]:
    """Give for how long so many members ran at once; those of different groups never share a card."""
    found: dict[int, float] = defaultdict(float)
    for spans in groups:
        edges: dict[float, int] = defaultdict(int)
        for start, end in spans:
            if end > start:
                edges[start] += 1
                edges[end] -= 1
        running, last_at = 0, 0.0
        for at in sorted(edges):
            if running:
                found[running] += at - last_at
            running += edges[at]
            last_at = at
    return dict(found)


def stack_running(running: Mapping[int, float], fit_count: int | None) -> Stack:
    """Lay members on common cards, of whom so many ran at once for so long."""
    return Stack(
        sum(count * seconds for count, seconds in running.items()),
        sum(_cards(count, fit_count) * seconds for count, seconds in running.items()),
        max(running, default=0),
    )


def _cards(running: int, fit_count: int | None) -> int:
    if fit_count is None:
        return min(running, 1)
    return -(-running // fit_count)


def running_by_model(attempts: Sequence[AttemptEvidence], since_at: float, until_at: float) -> dict[int, float]:
    """Give for how long so many attempts of one GPU ran at once within a window, on the same GPU model."""
    spans: dict[str | None, list[Span]] = defaultdict(list)
    for attempt in attempts:
        end = until_at if attempt.end_at is None else min(attempt.end_at, until_at)
        spans[attempt.gpu_model].append((max(attempt.start_at, since_at), end))
    return running_seconds(spans.values())


def together_seconds(one: Sequence[AttemptEvidence], other: Sequence[AttemptEvidence], window: Span) -> float:
    """Give the card-seconds in which a member of one group could sit beside one of another, on one GPU model.

    At each instant as many pairs as the smaller group has members running.
    """
    edges: dict[str | None, dict[float, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for side, group in enumerate((one, other)):
        for attempt in group:
            start = max(attempt.start_at, window[0])
            end = window[1] if attempt.end_at is None else min(attempt.end_at, window[1])
            if end > start:
                edges[attempt.gpu_model][start][side] += 1
                edges[attempt.gpu_model][end][side] -= 1
    paired = 0.0
    for own in edges.values():
        running, last_at = [0, 0], 0.0
        for at in sorted(own):
            paired += min(running) * (at - last_at)
            running = [running[side] + own[at][side] for side in (0, 1)]
            last_at = at
    return paired


def fit_count(attempts: Iterable[AttemptEvidence], shared_bytes: float) -> int | None:
    """Say how many members fit into one device's memory: the largest peak into the smallest device.

    ``shared_bytes`` is what members in one process would need only once (HFTA: B members need M_base + B * m where
    each alone needs M_base + m). None when the memory of a member or a device is unknown, or is no limit.
    """
    peaks: list[float] = []
    devices: list[float] = []
    for attempt in attempts:
        if attempt.memory_peak_bytes is None or attempt.device_memory_bytes is None:
            return None
        peaks.append(attempt.memory_peak_bytes)
        devices.append(attempt.device_memory_bytes)
    if not peaks or max(peaks) <= shared_bytes:
        return None
    return max(1, int((min(devices) - shared_bytes) // (max(peaks) - shared_bytes)))
