"""kill -9 at random moments under load: nothing acknowledged is lost, nothing is doubled."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
import urllib3

from tests.warehouse.serving import ServerProcess
from warehouse import access
from warehouse.contract import wire
from warehouse.store import open_store

ROUNDS = 20
SENDERS = 4
ROWS = 10
PROGRESS_SECONDS = 60.0


def body(agent: str, sequence: int) -> bytes:
    """Give a batch of ten samples that tell their batch."""
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": agent,
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": [float(sequence * ROWS + row) for row in range(ROWS)],
        "power_watts": float(sequence % 1000),
    }
    return wire.encode(wire.Batch(agent, "boot", sequence, 0.0, {"device_sample": wire.Table(ROWS, columns)}), level=1)


class Sender(threading.Thread):
    """An agent that sends its batches in order and each again until it is acknowledged."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: set[int] = set()
        self.url = ""
        self.last = "nothing sent"
        self.token = ""
        self.enough = threading.Event()

    def run(self) -> None:
        pool = urllib3.PoolManager(retries=False, timeout=10)
        sequence = 0
        while not self.enough.is_set():
            headers = {"Authorization": f"Bearer {self.token}"}
            try:
                answer = pool.request("POST", f"{self.url}/v1/batches", body=body(self.name, sequence), headers=headers)
            except urllib3.exceptions.HTTPError as error:
                self.last = str(error)
                self.enough.wait(0.02)
                continue
            self.last = f"{answer.status} {answer.data[:200]!r}"
            if answer.status == 200:
                self.acknowledged.add(sequence)
                sequence += 1


def wait_for_progress(senders: list[Sender]) -> None:
    """Wait until some sender's batch is acknowledged that was not before: the server is at work."""
    before = sum(len(sender.acknowledged) for sender in senders)
    deadline = time.monotonic() + PROGRESS_SECONDS
    while sum(len(sender.acknowledged) for sender in senders) == before:
        assert time.monotonic() < deadline, [sender.last for sender in senders]
        time.sleep(0.02)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_doubled_over_twenty_kills(tmp_path: Path) -> None:
    data = tmp_path / "data"
    moments = random.Random(7)
    senders = [Sender(f"node{number}") for number in range(SENDERS)]
    for turn in range(ROUNDS):
        server = ServerProcess(data)
        for sender in senders:
            sender.url, sender.token = server.url, access.token_file(data, access.Role.AGENT).read_text()
            if turn == 0:
                sender.start()
        wait_for_progress(senders)
        time.sleep(moments.uniform(0.0, 0.7))
        server.kill()
    for sender in senders:
        sender.enough.set()
        sender.join()

    store = open_store(data)
    found = {
        (row["node"], row["sequence"]): row["n"]
        for row in store.read(
            "SELECT node, epoch_ms(sampled_at) // 10000 AS sequence, count(*) AS n FROM device_sample GROUP BY ALL"
        ).to_pylist()
    }
    store.close()
    acknowledged = {(sender.name, sequence) for sender in senders for sequence in sender.acknowledged}
    assert len(acknowledged) > ROUNDS
    assert acknowledged <= set(found), "an acknowledged batch is gone"
    assert set(found.values()) == {ROWS}, "a batch is torn or doubled"
