"""P3: how many rows a real server takes per second, durably and each once, beside one commit a batch and Prometheus."""

from __future__ import annotations

import os
import random
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_least, at_most
from analysis.benchmarks._load import Address, Posted, post_all
from analysis.benchmarks._servers import REMOTE_WRITE, cpu_seconds, has_prometheus, our_server, prometheus, remote_write
from warehouse import batches
from warehouse.contract import wire
from warehouse.contract.metrics import METRIC_COLUMNS
from warehouse.contract.model import SAMPLE_COLUMNS
from warehouse.credentials import Credentials
from warehouse.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL_ROWS, LARGE_ROWS = 80, 800
DEVICES = 8
METRICS = METRIC_COLUMNS[: 28 - len(SAMPLE_COLUMNS)]
"""P3 speaks of samples of 28 columns."""

LEAST_ROWS_A_SECOND = 80_000.0
LEAST_BATCHES_A_SECOND = 1_000.0
MOST_WAIT_SECONDS = 1.0
RUNS = 3
NODES = 100
SMALL_CONNECTIONS, LARGE_CONNECTIONS = 500, 64
"""A sender waits for the group commit, so that many must send at once: at 1,000 batches/s this is a wait of 0.5 s."""


@dataclass(frozen=True, slots=True)
class Round:
    """One run over a new store: what was posted, and the CPU seconds of the server and of the sender meanwhile."""

    posted: Posted
    rows: int
    server_cpu_seconds: float
    sender_cpu_seconds: float
    load_average: float

    def document(self) -> dict[str, object]:
        """Give it as figures."""
        posted, sent = self.posted, self.posted.taken * self.rows
        return {
            "batches_per_second": posted.taken / posted.seconds,
            "rows_per_second": sent / posted.seconds,
            "refused": posted.refused,
            "wait_seconds": {f"p{percent}": posted.wait(percent) for percent in (50, 95, 99)},
            "server_cpu_seconds_per_million_rows": 1e6 * self.server_cpu_seconds / sent,
            "sender_cpu_seconds_per_million_rows": 1e6 * self.sender_cpu_seconds / sent,
            "load_average": self.load_average,
        }


def run(request: BenchRequest) -> BenchResult:
    """Post batches of two sizes to a server of its own, then the same samples one by one, and to Prometheus."""
    scale = 4 if request.full else 1
    figures: dict[str, object] = {}
    not_shown = [
        "the network and TLS; the sender shares the cores with the server",
        "an idle machine: of several runs the one with the most rows a second counts, others show how busy it was",
        "power loss: a commit is on the disk when it is acknowledged, and Prometheus syncs its log now and then",
    ]
    bars: list[Bar] = []
    if not has_prometheus():
        not_shown.append("Prometheus: Debian package prometheus is not installed")
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as name:
        folder = Path(name)
        for rows, count, connections in ((LARGE_ROWS, 300, LARGE_CONNECTIONS), (SMALL_ROWS, 2500, SMALL_CONNECTIONS)):
            sent = [batch_of(node, rows) for node in range(count * scale)]
            figures["columns"] = len(sent[0].tables["device_sample"].columns)
            ours = [_ours(folder / f"ours-{rows}-{turn}", sent, connections) for turn in range(RUNS)]
            found = {**_best(ours), "bytes_per_row": len(wire.encode(sent[0])) / rows}
            if has_prometheus():
                theirs = [_theirs(folder / f"theirs-{rows}-{turn}", sent[: count // 4]) for turn in range(RUNS)]
                found["prometheus"] = {**_best(theirs), "values_per_row": len(METRICS)}
            figures[f"batches_of_{rows}"] = found
            bars += _bars(rows, max(ours, key=_speed), [at.posted for at in ours])
            if rows == SMALL_ROWS:
                alone = _one_by_one(folder / "alone", sent[:300])
                figures["one_commit_a_batch"] = {"batches_per_second": alone, "rows_per_batch": rows}
                bars.append(at_least("P3: times one commit a batch", _speed(max(ours, key=_speed)) / alone, 2.0))
    return BenchResult(figures, bars, not_shown)


def _speed(done: Round) -> float:
    return done.posted.taken / done.posted.seconds


def _best(rounds: Sequence[Round]) -> dict[str, object]:
    """Give the fastest run, and how fast each was beside its load average."""
    every = [{"rows_per_second": _speed(at) * at.rows, "load_average": at.load_average} for at in rounds]
    return {**max(rounds, key=_speed).document(), "runs": every}


def _bars(rows: int, best: Round, every: Sequence[Posted]) -> list[Bar]:
    speed = (
        at_least("P3: rows/s in batches of 800", _speed(best) * rows, LEAST_ROWS_A_SECOND)
        if rows == LARGE_ROWS
        else at_least("P3: batches/s of 80 rows", _speed(best), LEAST_BATCHES_A_SECOND)
    )
    missing = sum(posted.refused + posted.missing for posted in every)
    return [
        speed,
        at_most(f"P3: p99 wait, batches of {rows}, s", best.posted.wait(99), MOST_WAIT_SECONDS),
        at_most(f"P3: batches refused, or acknowledged and not in the store, batches of {rows}", missing, 0),
    ]


def batch_of(number: int, rows: int) -> wire.Batch:
    """Make what one of a hundred nodes of eight devices sends: 28 columns, values as an agent rounds them."""
    chance = random.Random(number)  # noqa: S311 - made-up load
    node = number % NODES
    lasting = rows // DEVICES
    now = round(time.time()) + (number // NODES - 1) * lasting
    columns: dict[str, wire.Column] = {
        "cluster": "bench",
        "node": f"node{node:05d}",
        "device_uuid": [f"GPU-{node:05d}-{row % DEVICES}" for row in range(rows)],
        "sampled_at": [float(now + row // DEVICES) for row in range(rows)],
        "cadence_seconds": 1.0,
        "source": "nvml",
        "attempt_key": f"bench/{node}#0:1",
        "share_ratio": 1.0,
        "attribution": "scheduler",
    }
    for column in METRICS:
        digits, largest = (4, 1.0) if column.endswith(("_ratio", "_seconds")) else (2, 100.0)
        columns[column] = [round(chance.random() * largest, digits) for _ in range(rows)]
    return wire.Batch(
        f"node{node:05d}", "boot", 1 + number // NODES, float(now), {"device_sample": wire.Table(rows, columns)}
    )


def _ours(data: Path, sent: Sequence[wire.Batch], connections: int) -> Round:
    """Post to a new server, each batch with the token of its node, which speaks for that node alone."""
    bodies = [wire.encode(batch) for batch in sent]
    rows = sent[0].rows
    tokens = _enrolled(data, {batch.agent for batch in sent})
    with our_server(data) as address:
        parts = urlsplit(address.url)
        host, port = parts.hostname or "", parts.port or 0
        requests = [
            Address(host, port, "/v1/batches", {"Authorization": f"Bearer {tokens[batch.agent]}"}).request(body)
            for batch, body in zip(sent, bodies, strict=True)
        ]
        done = _round(host, port, requests, connections, rows, address.process_id)
    store = open_store(data)
    try:
        counted = store.read("SELECT count(*) AS n FROM device_sample")["n"][0].as_py()
    finally:
        store.close()
    return replace(done, posted=replace(done.posted, missing=done.posted.taken - counted // rows))


def _enrolled(data: Path, nodes: set[str]) -> dict[str, str]:
    store = open_store(data, create=True)
    try:
        credentials = Credentials(store)
        return {node: credentials.enrol(node)[1] for node in sorted(nodes)}
    finally:
        store.close()


def _round(host: str, port: int, requests: Sequence[bytes], connections: int, rows: int, process_id: int) -> Round:
    before, own = cpu_seconds(process_id), time.process_time()
    posted = post_all(host, port, requests, connections)
    own = time.process_time() - own
    return Round(posted, rows, cpu_seconds(process_id) - before, own, os.getloadavg()[0])


def _one_by_one(data: Path, sent: Sequence[wire.Batch]) -> float:
    """Give batches/s with a commit for each, in this process and without HTTP."""
    bodies = [wire.encode(batch) for batch in sent]
    store = open_store(data, create=True)
    began = time.perf_counter()
    try:
        for body in bodies:
            batches.commit(store, [batches.check(wire.decode(body, orjson.loads))])
    finally:
        store.close()
    return len(sent) / (time.perf_counter() - began)


def _theirs(folder: Path, sent: Sequence[wire.Batch]) -> Round:
    """Give the same samples to Prometheus: a series for each metric and device."""
    with prometheus(folder) as peer:
        address = Address("127.0.0.1", peer.port, "/api/v1/write", REMOTE_WRITE)
        requests = [address.request(remote_write(batch.tables["device_sample"], METRICS)) for batch in sent]
        return _round(address.host, address.port, requests, LARGE_CONNECTIONS, sent[0].rows, peer.process_id)


BENCHMARK = Benchmark(
    name="ingest",
    description="P3: rows and batches per second of a real server, waits, one commit a batch, and Prometheus.",
    run=run,
    needs_sources=False,
)
