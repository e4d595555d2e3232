"""P3: how many rows a real server takes per second, durably and each once, beside one commit a batch and Prometheus."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_least, at_most
from analysis.benchmarks._load import Address, Posted, post_all
from analysis.benchmarks._servers import children_cpu_seconds, has_prometheus, our_server, prometheus, remote_write
from warehouse import batches
from warehouse.contract import wire
from warehouse.contract.metrics import METRIC_COLUMNS
from warehouse.contract.model import SAMPLE_COLUMNS
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
SMALL_CONNECTIONS, LARGE_CONNECTIONS = 500, 64
"""A sender waits for the group commit, so that many must send at once: at 1,000 batches/s this is a wait of 0.5 s."""


def run(request: BenchRequest) -> BenchResult:
    """Post batches of two sizes to a server of its own, then the same samples one by one, and to Prometheus."""
    scale = 4 if request.full else 1
    small = [_batch(node, SMALL_ROWS) for node in range(3000 * scale)]
    large = [_batch(node, LARGE_ROWS) for node in range(400 * scale)]
    figures: dict[str, object] = {"columns": len(small[0].tables["device_sample"].columns)}
    not_shown = [
        "the network and TLS: the sender shares both cores with the server",
        "power loss: a commit is on the disk when it is acknowledged, and Prometheus syncs its log now and then",
    ]
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as folder:
        for name, sent, connections in (("800", large, LARGE_CONNECTIONS), ("80", small, SMALL_CONNECTIONS)):
            posted, document = _ours(Path(folder) / name, sent, connections)
            figures[f"batches_of_{name}"] = document
            rows_a_second = posted.taken * int(name) / posted.seconds
            if name == "800":
                bars.append(at_least("P3: rows/s in batches of 800", rows_a_second, LEAST_ROWS_A_SECOND))
            else:
                bars.append(at_least("P3: batches/s of 80 rows", posted.taken / posted.seconds, LEAST_BATCHES_A_SECOND))
            bars.append(at_most(f"P3: p99 wait, batches of {name}, s", posted.wait(99), MOST_WAIT_SECONDS))
            bars.append(_all_there(name, posted, document))
        figures["one_commit_a_batch"] = alone = _one_by_one(Path(folder) / "alone", small[:300])
        bars.append(_faster(figures["batches_of_80"], alone))
        if has_prometheus():
            figures["prometheus"] = _theirs(Path(folder) / "prometheus", small[: 800 * scale])
        else:
            not_shown.append("Prometheus: Debian package prometheus is not installed")
    return BenchResult(figures, bars, not_shown)


def _batch(node: int, rows: int) -> wire.Batch:
    """Make what one node of eight devices sends: every column of a sample, values as an agent rounds them."""
    chance = random.Random(node)  # noqa: S311 - made-up load
    now = round(time.time()) - rows // DEVICES
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
    return wire.Batch(f"node{node:05d}", "boot", 1, float(now), {"device_sample": wire.Table(rows, columns)})


def _ours(data: Path, sent: Sequence[wire.Batch], connections: int) -> tuple[Posted, dict[str, object]]:
    bodies = [wire.encode(batch) for batch in sent]
    rows = sent[0].tables["device_sample"].rows
    used = children_cpu_seconds()
    with our_server(data) as address:
        parts = urlsplit(address.url)
        headers = {"Authorization": f"Bearer {address.token}", "Content-Type": "application/gzip"}
        target = Address(parts.hostname or "", parts.port or 0, "/v1/batches", headers)
        posted = post_all(target, bodies, connections)
    used = children_cpu_seconds() - used
    store = open_store(data)
    try:
        counted = store.read("SELECT count(*) AS n FROM device_sample")["n"][0].as_py()
    finally:
        store.close()
    return posted, {
        **_told(posted, rows),
        "bytes_per_row": sum(map(len, bodies)) / len(bodies) / rows,
        "server_cpu_seconds_per_million_rows": 1e6 * used / (posted.taken * rows),
        "rows_acknowledged": posted.taken * rows,
        "rows_in_store": counted,
    }


def _told(posted: Posted, rows: int) -> dict[str, object]:
    return {
        "batches_per_second": posted.taken / posted.seconds,
        "rows_per_second": posted.taken * rows / posted.seconds,
        "refused": posted.refused,
        "wait_seconds": {f"p{percent}": posted.wait(percent) for percent in (50, 95, 99)},
    }


def _one_by_one(data: Path, sent: Sequence[wire.Batch]) -> dict[str, object]:
    bodies = [wire.encode(batch) for batch in sent]
    store = open_store(data, create=True)
    began = time.perf_counter()
    try:
        for body in bodies:
            batches.commit(store, [batches.check(wire.decode(body, orjson.loads))])
    finally:
        store.close()
    return {"batches_per_second": len(sent) / (time.perf_counter() - began), "rows_per_batch": SMALL_ROWS}


def _theirs(folder: Path, sent: Sequence[wire.Batch]) -> dict[str, object]:
    """Give the same samples to Prometheus: a series for each metric and device."""
    bodies = [remote_write(batch.tables["device_sample"], METRICS) for batch in sent]
    headers = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    used = children_cpu_seconds()
    with prometheus(folder) as port:
        posted = post_all(Address("127.0.0.1", port, "/api/v1/write", headers), bodies, LARGE_CONNECTIONS)
    return {
        **_told(posted, SMALL_ROWS),
        "values_per_row": len(METRICS),
        "cpu_seconds_per_million_rows": 1e6 * (children_cpu_seconds() - used) / (posted.taken * SMALL_ROWS),
    }


def _all_there(name: str, posted: Posted, document: dict[str, object]) -> Bar:
    missing = int(str(document["rows_acknowledged"])) - int(str(document["rows_in_store"]))
    held = missing == 0 and posted.refused == 0
    return Bar(f"P3: rows acknowledged and not in the store, batches of {name}", float(missing), "0", holds=held)


def _faster(grouped: object, alone: dict[str, object]) -> Bar:
    ours = grouped["batches_per_second"] if isinstance(grouped, dict) else None
    theirs = alone["batches_per_second"]
    ratio = ours / theirs if isinstance(ours, float) and isinstance(theirs, float) else None
    return at_least("P3: times one commit a batch", ratio, 2.0)


BENCHMARK = Benchmark(
    name="ingest",
    description="P3: rows and batches per second of a real server, waits, one commit a batch, and Prometheus.",
    run=run,
)
