"""P5: how long the questions of pages take over a month of roll-ups, with many readers at once."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import urllib3

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_most
from analysis.benchmarks._prometheus_pages import Month, beside
from analysis.benchmarks._servers import has_prometheus, our_server
from warehouse.contract.rollups import Rule
from warehouse.lake import days_to_seal, publish, seal
from warehouse.store import open_store

if TYPE_CHECKING:
    from warehouse.access import Address
    from warehouse.contract.settings import Settings

FIRST = "2026-10-05"
"""A Monday."""

DAYS = 30
SMALL, WHOLE = 100, 10_000
READERS = 20
LONG_SECONDS, SHORT_SECONDS = 60.0, 8.0
MOST_SECONDS = 0.3
HTTP_OK = 200
QUESTIONS = (
    "fleet",
    "waste?by=user",
    "waste?by=account&week=2026-W42",
    "jobs?limit=50",
    "families?week=2026-W42",
    "recommend?week=2026-W42",
    "job?id=bench/7%230",
)
"""What the pages ask when they are opened."""

_AFTER_ALL = date(2100, 1, 1)


@dataclass
class Asked:
    """What became of the questions of all readers."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, question: str, seconds: float, found: str) -> None:
        """Note one answer; ``found`` names what was wrong with it, if anything was."""
        with self.lock:
            self.seconds.setdefault(question, []).append(seconds)
            if found:
                self.wrong[found] += 1

    def p95(self) -> float:
        """Give the 95th percentile over all answers, in seconds."""
        every = [seconds for own in self.seconds.values() for seconds in own]
        return float(np.percentile(every, 95)) if every else float("nan")


def run(request: BenchRequest) -> BenchResult:
    """Fill a store with roll-ups of a month, serve it, ask each question once, then with twenty readers."""
    gpus, lasting = (WHOLE, LONG_SECONDS) if request.full else (SMALL, SHORT_SECONDS)
    not_shown = [
        *([] if has_prometheus() else ["the same questions on Prometheus: Debian package prometheus is not installed"]),
        "a page itself beside an empty one: this asks what pages ask, without a browser",
        "questions while batches come in: then each is worked out again when data have changed (first_seconds)",
        *([] if request.full else [f"the whole size: {gpus} of {WHOLE:,} GPUs (--full)"]),
    ]
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as folder:
        data = Path(folder) / "data"
        rows = _fill(data, gpus, request.settings)
        with our_server(data) as address:
            first = _ask_each(address)
            asked = _read_together(address, lasting)
        month = Month(gpus, DAYS, datetime.fromisoformat(FIRST).replace(tzinfo=UTC).timestamp())
        theirs = beside(Path(folder) / "prometheus", month, READERS, lasting) if has_prometheus() else None
    figures: dict[str, object] = {
        "gpus": gpus,
        "days": DAYS,
        "rows_by_hour": rows,
        "first_seconds": {question: own[0] for question, own in first.seconds.items()},
        "answers": sum(map(len, asked.seconds.values())),
        "p50_seconds": {question: float(np.median(own)) for question, own in asked.seconds.items()},
        "wrong": dict(first.wrong + asked.wrong),
        "prometheus": theirs,
    }
    wrong = sum((first.wrong + asked.wrong).values())
    bars = [
        at_most(f"P5: p95 seconds of {READERS} readers", asked.p95(), MOST_SECONDS),
        Bar("P5: errors and empty answers", float(wrong), "0", holds=wrong == 0),
    ]
    return BenchResult(figures, bars, not_shown)


def _fill(data: Path, gpus: int, settings: Settings) -> int:
    """Write roll-ups by hour of devices that each run one job a day, as if their samples had gone; gives the rows."""
    rule = Rule.of(settings)
    store = open_store(data, create=True)
    try:
        with store.transaction() as transaction:
            transaction.execute(_HELD, [gpus, FIRST, gpus, DAYS])
            for statement in _RECORDS:
                transaction.execute(statement)
            transaction.execute(_ROLLED, [rule.threshold_ratio, rule.continuous_cadences, rule.pause_seconds])
            transaction.execute("DROP TABLE held")
        rows = int(store.read("SELECT count(*) AS n FROM rollup_1h")["n"][0].as_py())
        for table, day in days_to_seal(store, _AFTER_ALL):
            seal(store, data, table, day)
        publish(store, data)
    finally:
        store.close()
    return rows


_HELD = """
    CREATE TEMP TABLE held AS SELECT day * ?::BIGINT + device AS number, hour,
        'GPU-' || lpad(device::VARCHAR, 8, '0') AS uuid, 'node' || lpad((device // 8)::VARCHAR, 4, '0') AS node,
        ?::TIMESTAMP + to_hours((day * 24 + hour)::INT) AS hour_at
    FROM range(?) AS d(device), range(?) AS t(day), range(24) AS h(hour)
"""
_RECORDS = (
    """
    INSERT INTO device (device_uuid, cluster, node, since_at, state, gpu_model, memory_bytes)
    SELECT uuid, 'bench', node, min(hour_at), 'up', 'NVIDIA A100-SXM4-80GB', 85899345920 FROM held GROUP BY ALL
    """,
    """
    INSERT INTO job (job_key, cluster, scheduler_job_id, source, name, "user", account, partition, submit_at)
    SELECT 'bench/' || number || '#0', 'bench', number, 'bench', 'train-' || number % 40, 'user' || number % 60,
           'lab' || number % 12, 'gpu', hour_at FROM held WHERE hour = 0
    """,
    """
    INSERT INTO attempt (attempt_key, job_key, state, start_at, end_at, source)
    SELECT 'bench/' || number || '#0:1', 'bench/' || number || '#0', 'completed', hour_at,
           hour_at + INTERVAL 23 HOUR, 'bench' FROM held WHERE hour = 0
    """,
    """
    INSERT INTO allocation (allocation_key, attempt_key, gpu_count, start_at, end_at, source, certainty, share_ratio,
                            device_uuid, node)
    SELECT 'bench/' || number || '#0:1:0', 'bench/' || number || '#0:1', 1, hour_at, hour_at + INTERVAL 23 HOUR,
           'bench', 'scheduler', 1, uuid, node FROM held WHERE hour = 0
    """,
    # 40: activity by every rung, and a process.
    """
    INSERT INTO rollup_1h BY NAME
    SELECT 'bench' AS cluster, node, uuid AS device_uuid, 'bench/' || number || '#0:1' AS attempt_key,
           hour_at AS bucket_at, hour_at AS start_at, hour_at + INTERVAL 1 HOUR AS end_at,
           hour_at AS seen_start_at, hour_at + INTERVAL 1 HOUR AS seen_end_at, 40 AS activity_code,
           false AS lasting, 360 AS sample_count, 3600 AS covered_seconds, 3600 AS driver_util_known_seconds,
           36 * (20 + number % 70) AS driver_util_seconds, 3600 AS gpu_bound_known_seconds,
           36 * (10 + number % 70) AS gpu_bound_seconds, 3600 AS engine_active_known_seconds,
           36 * (15 + number % 70) AS engine_active_seconds, 42e9 AS memory_used_bytes_max
    FROM held WHERE hour < 23
    """,
)
_ROLLED = "INSERT INTO rolled_hour SELECT DISTINCT hour_at, ?, ?, ?, 10, 0, true, true FROM held"


def _ask_each(address: Address) -> Asked:
    pool, asked = urllib3.PoolManager(retries=False, timeout=120.0), Asked()
    for question in QUESTIONS:
        _ask(pool, address, question, asked)
    return asked


def _ask(pool: urllib3.PoolManager, address: Address, question: str, asked: Asked) -> None:
    began = time.perf_counter()
    answer = pool.request(
        "GET", f"{address.url}/v1/answers/{question}", headers={"Authorization": f"Bearer {address.token}"}
    )
    seconds = time.perf_counter() - began
    found = "" if answer.status == HTTP_OK else f"{question}: {answer.status} {answer.data[:100]!r}"
    asked.note(question, seconds, found or ("" if len(answer.data) > HTTP_OK else f"{question}: empty"))


def _read_together(address: Address, lasting_seconds: float) -> Asked:
    """Have readers ask one question after the other, each beginning with another one."""
    asked, ends_at = Asked(), time.monotonic() + lasting_seconds

    def read(number: int) -> None:
        pool = urllib3.PoolManager(retries=False, timeout=120.0)
        at = number
        while time.monotonic() < ends_at:
            _ask(pool, address, QUESTIONS[at % len(QUESTIONS)], asked)
            at += 1

    readers = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return asked


BENCHMARK = Benchmark(
    name="pages",
    description="P5: the questions of pages over a month of roll-ups, with twenty readers at once.",
    run=run,
    needs_sources=False,
)
