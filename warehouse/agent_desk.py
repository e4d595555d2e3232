"""What the server says to agents beside "I have it", and the last hour of a device as its agent read it.

* How far a stream is: an agent that meets the server anew tells what was acknowledged and is still in its spool; what
  the ledger lacks (a log that lost its tail, a restored backup) is sent again.
* What the last backup holds: agents keep the rest.
* What somebody would like to see now: nobody connects to agents, so a question waits for the next batch of the node,
  whose acknowledgement carries it; the agent posts what it has in memory. Nothing of it is stored.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import duckdb

from warehouse import lake
from warehouse.contract import exchange
from warehouse.contract.errors import BadUseError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from warehouse.client import Document, Parameters
    from warehouse.contract.settings import Settings
    from warehouse.sight import Sight
    from warehouse.store import Store

LOG = logging.getLogger("trueload.agents")
BACKUP_FILE: Final = "last_backup.json"
LOOKED_AT_SECONDS: Final = 60.0
"""A device that nobody has asked about for so long is not asked for any more, and what is known of it is dropped."""

HISTORY_SECONDS: Final = 3600.0
"""What an agent has in memory, and so what is worth keeping here."""

MOST_DEVICES: Final = 256
"""Devices looked at together; about a megabyte each."""


def note_backup(data: Path, copied_database: Path) -> None:
    """Write down how far each stream is in a backup that has just been made and checked."""
    with duckdb.connect(str(copied_database), read_only=True) as copy:
        rows = copy.execute("SELECT agent, boot_id, max(sequence) FROM batch_ledger GROUP BY ALL").fetchall()
    streams: dict[str, dict[str, int]] = {}
    for agent, boot_id, sequence in rows:
        streams.setdefault(agent, {})[boot_id] = sequence
    lake.replace_durably(data / BACKUP_FILE, json.dumps({"until": streams}))


@dataclass(slots=True)
class _Watched:
    """A device that somebody looks at: its node's agent, and what came so far."""

    agent: str
    ask_id: str
    asked_at: float
    series: dict[str, exchange.Series] = field(default_factory=dict)

    @property
    def since_at(self) -> float:
        """Give the last instant that is known from every source; 0 when nothing is."""
        return min((series.at[-1] for series in self.series.values() if series.at), default=0.0)


class AgentDesk:
    """One server's word to its agents. Safe to use from several threads."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the store whose ledger counts."""
        self.server_run: Final = secrets.token_hex(8)
        self._store = store
        self._clock = clock
        self._guard = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._backup_seen: tuple[float, int] | None = None
        self._backed_up: Mapping[str, Mapping[str, int]] = {}

    def acknowledgement(self, agent: str, boot_id: str) -> dict[str, object]:
        """Give what goes with an acknowledgement of a batch of this stream."""
        return {
            "server_run": self.server_run,
            "backed_up_until": self._backups().get(agent, {}).get(boot_id),
            "asks": [
                {"ask_id": watched.ask_id, "device_uuid": device, "since_at": watched.since_at}
                for device, watched in self._looked_at().items()
                if watched.agent == agent
            ],
        }

    def compare(self, agent: str, holdings: Iterable[exchange.Holdings]) -> dict[str, object]:
        """Say what the ledger lacks of what an agent holds as acknowledged."""
        return exchange.positions_document(self.server_run, [self._position(agent, held) for held in holdings])

    def take_detail(self, agent: str, ask_id: str, series: Sequence[exchange.Series]) -> bool:
        """Take what an agent was asked for; False when nobody asked it for this, or not any more."""
        with self._guard:
            device = next((device for device, known in self._watched.items() if known.ask_id == ask_id), None)
            if device is None or self._watched[device].agent != agent:
                return False
            for fresh in series:
                if fresh.device_uuid == device:
                    known = self._watched[device].series
                    known[fresh.source] = _joined(known.get(fresh.source), fresh)
        return True

    def answer(self, seen: Sight, _settings: Settings, parameters: Parameters) -> Document:
        """Answer the question ``detail``: the last hour of an attempt's devices, as far as it is theirs.

        The first time there is nothing yet and the agents are asked; what comes shows when it is asked again.

        Raises:
            BadUseError: no ``attempt`` is named.
            NotFoundError: no such attempt with known devices, or none that the viewer may see.

        """
        attempt_key = parameters.get("attempt")
        if not attempt_key:
            raise BadUseError("detail: name the attempt")
        held = _held_devices(seen, attempt_key)
        if not held:
            raise NotFoundError(f"no attempt {attempt_key!r} with known devices")
        found: list[dict[str, object]] = []
        waiting: list[str] = []
        for device, (node, start_at, end_at) in held.items():
            watched = self._ask(device, node)
            if not watched:
                waiting.append(device)
            found += [_clipped(series, start_at, end_at) for series in watched]
        return {"attempt": attempt_key, "series": found, "waiting_for": waiting}

    def _position(self, agent: str, held: exchange.Holdings) -> exchange.Position:
        lowest = min((first for first, _, _ in held.held), default=0)
        known = self._store.read(
            "SELECT sequence, part FROM batch_ledger WHERE agent = ? AND boot_id = ? AND sequence >= ?",
            [agent, held.boot_id, lowest],
        ).to_pydict()
        pairs = list(zip(known["sequence"], known["part"], strict=True))
        until = max(known["sequence"], default=None)
        missing = exchange.without(held.held, pairs)
        if missing:
            LOG.error(
                "agent %r, stream %s: %d batches that were acknowledged (up to %d) are not in the store (up to %s); "
                "the agent sends again what it still has",
                *(agent, held.boot_id, sum(last - first + 1 for first, last, _ in missing), held.acknowledged, until),
            )
        return exchange.Position(held.boot_id, until, missing)

    def _backups(self) -> Mapping[str, Mapping[str, int]]:
        """Give how far each stream is in the last backup, read again when there is a new one."""
        path = self._store.data / BACKUP_FILE
        try:
            status = path.stat()
            if (status.st_mtime, status.st_ino) != self._backup_seen:
                self._backed_up = json.loads(path.read_text(encoding="utf-8"))["until"]
                self._backup_seen = (status.st_mtime, status.st_ino)
        except FileNotFoundError:
            self._backed_up = {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            LOG.warning("%s: %s; agents are told of no backup", path, error)
            self._backed_up = {}
        return self._backed_up

    def _ask(self, device: str, node: str) -> list[exchange.Series]:
        """Have a device asked for, and give what is known of it."""
        self._looked_at()
        with self._guard:
            watched = self._watched.get(device)
            if watched is None or watched.agent != node:
                if len(self._watched) >= MOST_DEVICES:
                    self._watched.pop(min(self._watched, key=lambda name: self._watched[name].asked_at))
                watched = self._watched[device] = _Watched(node, secrets.token_hex(8), 0.0)
            watched.asked_at = self._clock()
            return list(watched.series.values())

    def _looked_at(self) -> dict[str, _Watched]:
        with self._guard:
            oldest = self._clock() - LOOKED_AT_SECONDS
            self._watched = {name: known for name, known in self._watched.items() if known.asked_at >= oldest}
            return dict(self._watched)


def _held_devices(seen: Sight, attempt_key: str) -> dict[str, tuple[str, float, float]]:
    """Give node and interval of each device of an attempt, as the viewer may know them."""
    with seen.snapshot() as tables:
        rows = tables.allocation.filter(tables.allocation.attempt_key == attempt_key).to_pyarrow().to_pylist()
    held: dict[str, tuple[str, float, float]] = {}
    for row in rows:
        if row["device_uuid"] is not None and row["node"] is not None:
            start_at, end_at = _epoch(row["start_at"]), _epoch(row["end_at"])
            held[row["device_uuid"]] = (row["node"], start_at or 0.0, float("inf") if end_at is None else end_at)
    return held


def _epoch(instant: datetime | None) -> float | None:
    return None if instant is None else instant.replace(tzinfo=UTC).timestamp()


def _joined(known: exchange.Series | None, fresh: exchange.Series) -> exchange.Series:
    """Put a newer piece behind what is known, and keep the last hour of it."""
    if known is None or not known.at or not fresh.at:
        return fresh if fresh.at or known is None else known
    keep = bisect_left(known.at, fresh.at[0])
    begin = min(bisect_left(known.at, fresh.at[-1] - HISTORY_SECONDS), keep)
    absent: list[float | None] = [None] * (keep - begin)
    columns: dict[str, list[float | None]] = {}
    for name in dict.fromkeys((*known.columns, *fresh.columns)):
        before = known.columns[name][begin:keep] if name in known.columns else absent
        columns[name] = [*before, *fresh.columns.get(name, [None] * len(fresh.at))]
    return exchange.Series(fresh.device_uuid, fresh.source, [*known.at[begin:keep], *fresh.at], columns)


def _clipped(series: exchange.Series, start_at: float, end_at: float) -> dict[str, object]:
    begin, end = bisect_left(series.at, start_at), bisect_right(series.at, end_at)
    return {
        "device_uuid": series.device_uuid,
        "source": series.source,
        "at": series.at[begin:end],
        "columns": {name: values[begin:end] for name, values in series.columns.items()},
    }
