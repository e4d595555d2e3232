"""Agents for tests of durability: threads that send batches in order, each again until it is acknowledged."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import urllib3

from warehouse.contract import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.store import Store

ROWS = 10
AGAIN_SECONDS = 0.02
TIMEOUT_SECONDS = 10.0
OK = 200


@dataclass(slots=True)
class Target:
    """Where agents send, and with what token; agents look at it before each request."""

    url: str
    token: str


def body(agent: str, sequence: int, rows: int = ROWS) -> bytes:
    """Give a batch of samples, one a second, whose instants tell the batch's number."""
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": agent,
        "device_uuid": f"GPU-{agent}",
        "cadence_seconds": 1.0,
        "source": "nvml",
        "sampled_at": [float(sequence * rows + row) for row in range(rows)],
        "power_watts": float(sequence % 1000),
    }
    batch = wire.Batch(agent, "boot", sequence, 0.0, {"device_sample": wire.Table(rows, columns)})
    return wire.encode(batch, level=1)


class Agent(threading.Thread):
    """One agent. What was acknowledged to it is in ``acknowledged``; refusals are counted by status.

    ``recognised`` counts batches whose first answer was lost: sent again, the server said that it had them.
    """

    def __init__(self, name: str, target: Target, rows: int = ROWS) -> None:
        """Prepare; it sends from ``start`` to ``stop``, so many rows a batch."""
        super().__init__(name=name, daemon=True)
        self.acknowledged: set[int] = set()
        self.recognised = 0
        self.refused: Counter[int] = Counter()
        self.last = "nothing sent"
        self.rows = rows
        self._target = target
        self._enough = threading.Event()

    def run(self) -> None:
        """Send until told to stop."""
        sequence = 0
        with urllib3.PoolManager(retries=False, timeout=TIMEOUT_SECONDS) as pool:
            while not self._enough.is_set():
                if self._send(pool, body(self.name, sequence, self.rows)):
                    self.acknowledged.add(sequence)
                    sequence += 1
                else:
                    self._enough.wait(AGAIN_SECONDS)

    def stop(self) -> None:
        """Have it end with the request that is under way, and wait for that."""
        self._enough.set()
        self.join()

    def _send(self, pool: urllib3.PoolManager, content: bytes) -> bool:
        headers = {"Authorization": f"Bearer {self._target.token}"}
        try:
            answer = pool.request("POST", f"{self._target.url}/v1/batches", body=content, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            self.last = str(error)
            return False
        if answer.status != OK:
            self.last = f"{answer.status} {answer.data[:200]!r}"
            self.refused[answer.status] += 1
            return False
        self.recognised += bool(json.loads(answer.data)["duplicate"])
        return True


def acknowledged(agents: Sequence[Agent]) -> int:
    """Give how many batches were acknowledged so far."""
    return sum(len(agent.acknowledged) for agent in agents)


def wait_for_more(agents: Sequence[Agent], before: int, seconds: float) -> float:
    """Wait until more batches are acknowledged than ``before``; gives the instant (``time.monotonic``).

    Raises:
        TimeoutError: none was within ``seconds``; says what the agents heard last.

    """
    ends_at = time.monotonic() + seconds
    while acknowledged(agents) <= before:
        if time.monotonic() > ends_at:
            raise TimeoutError(
                f"nothing was acknowledged for {seconds:g} s: {sorted({agent.last for agent in agents})}"
            )
        time.sleep(AGAIN_SECONDS / 4)
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Compared:
    """What was acknowledged, held against what is there."""

    acknowledged: int
    lost: int
    """Acknowledged, and not there."""
    torn_or_doubled: int
    """There, with fewer or more rows than the batch has."""
    recognised: int
    """Acknowledged at the second try: they were there, and their first answer was lost."""


def compare(store: Store, agents: Sequence[Agent]) -> Compared:
    """Hold what agents were told against what the store has, hot and sealed; all send as many rows a batch."""
    rows_each = agents[0].rows
    with store.snapshot() as tables:
        samples = tables.device_sample
        batch = (samples.sampled_at.epoch_seconds() // rows_each).name("sequence")
        rows = samples.group_by(samples.node, batch).aggregate(row_count=samples.count()).to_pyarrow().to_pylist()
    found = {(row["node"], row["sequence"]): row["row_count"] for row in rows}
    told = {(agent.name, sequence) for agent in agents for sequence in agent.acknowledged}
    return Compared(
        acknowledged=len(told),
        lost=len(told - set(found)),
        torn_or_doubled=sum(count != rows_each for count in found.values()),
        recognised=sum(agent.recognised for agent in agents),
    )
