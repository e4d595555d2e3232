"""A server that is away for a day: what waits is bounded, what is dropped is counted and said, the rest arrives once.

A day is told in batches of four minutes, made as fast as the disk takes them; their files bear the times of that day,
so that the bound by age drops what it would have dropped. Writers and the server are killed at random moments.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from collector.spool import Bounds, Spool
from tests.warehouse.serving import ServerProcess
from warehouse import access
from warehouse.contract import wire

BATCHES = 360
BATCH_SECONDS = 240.0
ROWS = 24
BATCH_BYTES_ABOUT = 400
QUICK = {"TRUELOAD_STORE__COMMIT_WINDOW_SECONDS": "0.005", "TRUELOAD_SQL__OVER_HTTP": "yes"}
"""One sender, nothing to wait for; and questions about what is stored."""

STORED = """
SELECT floor((epoch(sampled_at) - {begin_at}) / 240)::BIGINT AS number, count(*) AS n, count(DISTINCT sampled_at) AS d
FROM device_sample GROUP BY 1 ORDER BY 1
"""
LEDGER = "SELECT count(*) AS n, count(DISTINCT (boot_id, sequence, part)) AS d FROM batch_ledger"
WRITER = """
import os, sys, time
from pathlib import Path
import collector.spool
from collector.spool import Bounds, Spool
from warehouse.contract import wire

folder, first, until, begin_at, max_bytes, max_age_seconds = sys.argv[1:]
collector.spool.LOOK_AGAIN_SECONDS = 0.2
spool = Spool(Path(folder), "node-1", Bounds(int(max_bytes), float(max_age_seconds)))
for number in range(int(first), int(until)):
    at = [float(begin_at) + 240.0 * number + 10.0 * row for row in range(24)]
    columns = {"cluster": "c", "node": "node-1", "device_uuid": "GPU-a", "cadence_seconds": 10.0, "source": "nvml"}
    written = spool.put({"device_sample": wire.Table(24, columns | {"sampled_at": at, "power_watts": 300.0})})
    os.utime(written, (float(begin_at) + 240.0 * number,) * 2)
    print(number, spool.waiting_count, spool.waiting_bytes, spool.dropped_total, flush=True)
time.sleep(0.3)
collector.spool.LOOK_AGAIN_SECONDS = 0.0
spool._shelf.look_again_at = 0.0
spool.put({"event": wire.Table(1, {"cluster": "c", "node": "node-1", "kind": "test", "happened_at": 0.0})})
print("end", spool.waiting_count, spool.waiting_bytes, spool.dropped_total, flush=True)
spool.close()
"""


@dataclass
class Day:
    """What the writers of the last day told: batches that were kept, the most that waited, and what they dropped."""

    begin_at: float
    kept: set[int] = field(default_factory=set)
    most_bytes: int = 0
    dropped: int = 0
    killed: int = 0


def write_a_day(spool: Path, repository: Path, bounds: Bounds, draw: random.Random) -> Day:
    """Spool a day's batches by processes that are killed now and then."""
    day, first = Day(time.time() // BATCH_SECONDS * BATCH_SECONDS - BATCH_SECONDS * BATCHES), 0
    while first < BATCHES:
        command = [sys.executable, "-c", WRITER, str(spool), str(first), str(BATCHES), str(day.begin_at)]
        command += [str(bounds.max_bytes), str(bounds.max_age_seconds)]
        writer = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        lives = draw.randrange(75, 175) if day.killed < 2 else BATCHES
        told: list[str] = []
        for line in writer.stdout:
            told = line.split()
            if told[0] != "end":
                day.kept.add(int(told[0]))
            day.most_bytes = max(day.most_bytes, int(told[2]))
            lives -= 1
            if not lives:
                writer.send_signal(signal.SIGKILL)
                day.killed += 1
                break
        rest, _ = writer.communicate(timeout=60)
        for line in rest.splitlines():
            if line.count(" ") == 3:  # the last may be cut
                told = line.split()
                day.kept.add(int(told[0]))
        day.dropped += int(told[3])
        first = max(day.kept) + 2  # the one after the last that was told may be whole on disk, too
    return day


def send_everything(spool: Path, repository: Path, data: Path, draw: random.Random) -> ServerProcess:
    """Let a server come and a sender empty the spool; both are killed meanwhile. Gives the last server, running."""
    sender = """
import sys, time
from pathlib import Path
from collector.ship import Shipper
from collector.poster import Endpoint
from collector.spool import Bounds, Spool

spool = Spool(Path(sys.argv[1]), "node-1", Bounds(10**9, 1e9, kept_max_bytes=10**9))
shipper = Shipper(spool, Endpoint(Path(sys.argv[2]).read_text(), Path(sys.argv[3]), 5.0, 0.02, 0.2))
shipper.start()
while spool.waiting_count:
    shipper.wake()
    print(spool.waiting_count, flush=True)
    time.sleep(0.05)
shipper.stop(5.0)
spool.close()
"""
    url_file = spool.parent / "url"
    for place in range(3):
        back = ServerProcess(data, variables=QUICK)
        url_file.write_text(back.url)
        token_file = access.token_file(back.data, access.Role.AGENT)
        command = [sys.executable, "-c", sender, str(spool), str(url_file), str(token_file)]
        running = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True)
        assert running.stdout is not None
        if place < 2:
            waiting = int(running.stdout.readline())
            for line in running.stdout:
                if int(line) < waiting - draw.randrange(10, 50):
                    break
            (back.kill if place == 0 else running.kill)()
            running.kill()
            running.communicate()
            if place == 1:
                back.stop()
            continue
        running.communicate(timeout=240)
        assert running.returncode == 0
        return back
    raise AssertionError


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "bounds",
    [Bounds(10**8, 18 * 3600.0), Bounds(180 * BATCH_BYTES_ABOUT, 7 * 86400.0), Bounds(10**8, 7 * 86400.0)],
    ids=["by age", "by bytes", "within bounds"],
)
def test_u27_a_day_without_a_server_loses_what_the_bounds_say_and_nothing_else(
    tmp_path: Path, repository: Path, bounds: Bounds
) -> None:
    draw, spool = random.Random(7), tmp_path / "spool"
    day = write_a_day(spool, repository, bounds, draw)
    assert day.killed == 2
    assert day.most_bytes <= bounds.max_bytes
    with Spool(spool, "node-1", Bounds(10**9, 1e9)) as opened:
        waiting = opened.waiting_count
    server = send_everything(spool, repository, tmp_path / "data", draw)
    client: Any = server.client()
    assert client.sql(LEDGER)["rows"] == [{"n": waiting, "d": waiting}]
    rows = client.sql(STORED.format(begin_at=day.begin_at))["rows"]
    client.close()
    server.stop()
    assert len(rows) == waiting - 1  # the last batch of all is an event
    assert {(row["n"], row["d"]) for row in rows} == {(ROWS, ROWS)}
    stored = {int(row["number"]) for row in rows}
    untold = stored - day.kept  # written whole, and the writer killed before it could say so
    assert len(untold) <= day.killed
    missing = sorted(day.kept - stored)
    assert missing == sorted(day.kept)[: len(missing)]  # the oldest, without a gap
    # A writer that is killed takes its count along: batches that it dropped after its last word.
    assert 0 <= len(missing) - day.dropped <= 2 * 50
    if bounds.max_age_seconds < 86400:
        assert 0 <= len(missing) - 90 <= 3  # six hours, and the minutes that this test took
    elif bounds.max_bytes < 10**6:
        assert len(missing) > 50
        assert sum(1 for _ in spool.glob("*.batch")) == 0
    else:
        assert missing == []
        assert day.dropped == 0


def test_what_is_dropped_is_said_with_its_bounds_and_not_for_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = wire.Table(1, {"cluster": "c", "node": "n", "kind": "test", "happened_at": 0.0})
    with Spool(tmp_path / "spool", "n", Bounds(1000, 1e9)) as spool:
        for _ in range(50):
            spool.put({"event": table})
        assert spool.dropped_total > 10
    (said,) = [record.getMessage() for record in caplog.records]
    assert "batches dropped so far, all up to 2" in said
    assert "(agent.spool_max_bytes 1000, agent.spool_max_age_seconds 1e+09)" in said
