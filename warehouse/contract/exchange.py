"""What a server tells a sender beyond "I have it": how far it is, what its last backup holds, what it wants to see.

Both sides speak in *runs* of sequence numbers, ``[first, last, part]`` with both ends included, so that a week of
batches is a few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warehouse.contract.errors import BadInputError

Run = tuple[int, int, int]
"""Sequence numbers from the first to the last, both included, of one part number."""

MOST_RUNS = 100_000
MOST_SAMPLES = 100_000
"""Per series: more than a day at one per second."""


@dataclass(frozen=True, slots=True)
class DetailAsk:
    """Somebody looks at a device of this node and would like its last hour as it was read, after ``since_at``."""

    ask_id: str
    device_uuid: str
    since_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A server's answer to a batch that it has now.

    ``server_run`` changes when the server is started anew: then it may have lost what it had acknowledged.
    ``backed_up_until``: its last backup holds everything of this stream up to this number; None where it has no backup
    or does not say. ``taken_at`` and ``answered_at``: its clock when the batch came and when the answer left.
    """

    duplicate: bool = False
    server_run: str | None = None
    backed_up_until: int | None = None
    asks: tuple[DetailAsk, ...] = ()
    taken_at: float | None = None
    answered_at: float | None = None


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a sender still holds of a stream that was acknowledged, and the last number that was."""

    boot_id: str
    acknowledged: int
    held: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """How far the server is with a stream: the last number that it has, and what it lacks of what the sender holds."""

    boot_id: str
    stored_until: int | None
    missing: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """What one source read on one device: instants in seconds since the epoch, and as many values per metric."""

    device_uuid: str
    source: str
    at: list[float]
    columns: Mapping[str, list[float | None]] = field(default_factory=dict)


def runs(numbers: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
    """Turn (sequence, part) pairs into runs, by part and then by sequence."""
    found: list[list[int]] = []
    for part, sequence in sorted({(part, sequence) for sequence, part in numbers}):
        if found and found[-1][2] == part and found[-1][1] == sequence - 1:
            found[-1][1] = sequence
        else:
            found.append([sequence, sequence, part])
    return tuple((first, last, part) for first, last, part in found)


def without(held: Iterable[Run], known: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
    """Give the runs less the (sequence, part) pairs that are known. The cost follows the known pairs, not the runs."""
    by_part: dict[int, list[int]] = {}
    for part, sequence in sorted((part, sequence) for sequence, part in known):
        by_part.setdefault(part, []).append(sequence)
    missing: list[Run] = []
    for first, last, part in held:
        begin = first
        for sequence in by_part.get(part, ()):
            if begin <= sequence <= last:
                if sequence > begin:
                    missing.append((begin, sequence - 1, part))
                begin = sequence + 1
        if begin <= last:
            missing.append((begin, last, part))
    return tuple(missing)


def acknowledgement(document: object) -> Acknowledgement | None:
    """Read an answer to a batch; None when it is no acknowledgement. What it does not say is left out."""
    if not isinstance(document, dict) or document.get("acknowledged") is not True:
        return None
    run, until, asks = (document.get(key) for key in ("server_run", "backed_up_until", "asks"))
    return Acknowledgement(
        duplicate=document.get("duplicate") is True,
        server_run=run if isinstance(run, str) else None,
        backed_up_until=until if isinstance(until, int) and not isinstance(until, bool) else None,
        asks=tuple(
            DetailAsk(str(ask["ask_id"]), str(ask["device_uuid"]), _instant(ask.get("since_at")))
            for ask in (asks if isinstance(asks, list) else [])
            if isinstance(ask, dict) and {"ask_id", "device_uuid"} <= ask.keys()
        ),
        taken_at=_told_at(document.get("taken_at")),
        answered_at=_told_at(document.get("answered_at")),
    )


def holdings_document(agent: str, streams: Iterable[Holdings]) -> dict[str, object]:
    """Give what a sender posts when it meets a server anew."""
    listed = [{"boot_id": s.boot_id, "acknowledged": s.acknowledged, "held": [*map(list, s.held)]} for s in streams]
    return {"agent": agent, "streams": listed}


def read_holdings(document: Mapping[str, object]) -> tuple[str, list[Holdings]]:
    """Read what ``holdings_document`` wrote, treating it as hostile.

    Raises:
        BadInputError: something is not as it should be.

    """
    agent, streams = document.get("agent"), document.get("streams")
    if not isinstance(agent, str) or not isinstance(streams, list):
        raise BadInputError("held", None, "expected an agent and a list of streams")
    found: list[Holdings] = []
    for stream in streams:
        boot_id = stream.get("boot_id") if isinstance(stream, dict) else None
        if not isinstance(boot_id, str) or not _is_whole(stream.get("acknowledged")):
            raise BadInputError("held", "streams", "expected a boot_id and the last number acknowledged")
        found.append(Holdings(boot_id, stream["acknowledged"], _runs(stream.get("held"), "held")))
    return agent, found


def positions_document(server_run: str, positions: Iterable[Position]) -> dict[str, object]:
    """Give the server's answer to ``holdings_document``."""
    listed = [
        {"boot_id": p.boot_id, "stored_until": p.stored_until, "missing": [*map(list, p.missing)]} for p in positions
    ]
    return {"server_run": server_run, "streams": listed}


def read_positions(document: object) -> tuple[str, list[Position]]:
    """Read the server's answer.

    Raises:
        BadInputError: it is none.

    """
    if not isinstance(document, dict) or not isinstance(document.get("streams"), list):
        raise BadInputError("held", None, "expected an answer with streams")
    found = []
    for stream in document["streams"]:
        if not isinstance(stream, dict) or not isinstance(stream.get("boot_id"), str):
            raise BadInputError("held", "streams", "expected a boot_id")
        until = stream.get("stored_until")
        stored = until if isinstance(until, int) else None
        found.append(Position(stream["boot_id"], stored, _runs(stream.get("missing"), "missing")))
    return str(document.get("server_run")), found


def detail_document(agent: str, ask_id: str, series: Iterable[Series]) -> dict[str, object]:
    """Give what a sender posts when it was asked for its last hour."""
    listed = [
        {"device_uuid": s.device_uuid, "source": s.source, "at": s.at, "columns": dict(s.columns)} for s in series
    ]
    return {"agent": agent, "ask_id": ask_id, "series": listed}


def read_detail(document: Mapping[str, object], metrics: Mapping[str, object]) -> tuple[str, str, list[Series]]:
    """Read what ``detail_document`` wrote, treating it as hostile; ``metrics`` are the names that may occur.

    Raises:
        BadInputError: something is not as it should be.

    """
    agent, ask_id, listed = (document.get(key) for key in ("agent", "ask_id", "series"))
    if not isinstance(agent, str) or not isinstance(ask_id, str) or not isinstance(listed, list):
        raise BadInputError("detail", None, "expected an agent, an ask_id and a list of series")
    found: list[Series] = []
    for item in listed:
        device, source, at, columns = (
            item.get(key) if isinstance(item, dict) else None for key in ("device_uuid", "source", "at", "columns")
        )
        if not isinstance(device, str) or not isinstance(source, str) or not isinstance(columns, dict):
            raise BadInputError("detail", "series", "expected device_uuid, source, at and columns")
        if not isinstance(at, list) or len(at) > MOST_SAMPLES or not all(map(_is_number, at)):
            raise BadInputError("detail", "at", f"expected at most {MOST_SAMPLES} instants")
        for name, values in columns.items():
            good = name in metrics and isinstance(values, list) and len(values) == len(at)
            if not good or not all(value is None or _is_number(value) for value in values):
                raise BadInputError("detail", str(name)[:200], "expected as many values of a known metric as instants")
        found.append(Series(device, source, at, columns))
    return agent, ask_id, found


def _runs(raw: object, name: str) -> tuple[Run, ...]:
    if not isinstance(raw, list) or len(raw) > MOST_RUNS:
        raise BadInputError("held", name, f"expected at most {MOST_RUNS} runs")
    for run in raw:
        if not isinstance(run, list) or len(run) != 3 or not all(map(_is_whole, run)):  # noqa: PLR2004 - first, last, part
            raise BadInputError("held", name, "expected [first, last, part], whole numbers from 0 on")
    return tuple((first, last, part) for first, last, part in raw)


def _told_at(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and _is_number(value) and math.isfinite(value) else None


def _instant(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - not NaN
