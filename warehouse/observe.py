"""What the server tells Prometheus about itself. Labels are few and fixed: no node, job or person is one.

How far the clocks of senders are off is told as extremes over all senders, as far as it is certain: an exchange that
took long bounds an offset loosely (``warehouse.clocks``).
"""

from __future__ import annotations

import math
import shutil
import time
from typing import TYPE_CHECKING

import duckdb
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from warehouse import lake, text_imports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric
    from prometheus_client.registry import Collector

    from warehouse.batches import Acceptance
    from warehouse.clocks import Clocks
    from warehouse.committer import Committer
    from warehouse.contract.wire import Batch
    from warehouse.store import Store

OUTCOMES = ("new", "duplicate", "refused", "turned_away")
COMMIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
DELAY_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 21600.0, 86400.0)
ANSWER_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 100.0)


class Observations:
    """What one server has seen since it started. Safe to use from several threads."""

    def __init__(self, store: Store, committer: Committer, clocks: Clocks) -> None:
        """Begin to count; ``clocks`` are told of at each scrape."""
        self._registry = CollectorRegistry()
        self._batches = Counter(
            "trueload_server_batches", "Batches by what became of them.", ["outcome"], registry=self._registry
        )
        for outcome in OUTCOMES:
            self._batches.labels(outcome)
        self._rows = Counter("trueload_server_rows", "Rows taken from batches.", registry=self._registry)
        self._rejected = Counter(
            "trueload_server_rejected_values", "Values left out because they cannot be true.", registry=self._registry
        )
        self._delay = Histogram(
            "trueload_server_delay_seconds",
            "From when a batch was put together to when it was durable here.",
            buckets=DELAY_SECONDS,
            registry=self._registry,
        )
        self._answers = Histogram(
            "trueload_server_answer_seconds",
            "Time to answer a question.",
            buckets=ANSWER_SECONDS,
            registry=self._registry,
        )
        commits = Histogram(
            "trueload_server_commit_seconds",
            "Time of one write of a group of batches.",
            buckets=COMMIT_SECONDS,
            registry=self._registry,
        )
        committer.on_commit = commits.observe
        self._state = _State(store, committer, clocks)
        self._registry.register(self._state)

    def add(self, collector: Collector) -> None:
        """Have something else told, too."""
        self._registry.register(collector)

    def batch(self, outcome: str) -> None:
        """Count a batch."""
        self._batches.labels(outcome).inc()

    def taken(self, batch: Batch, result: Acceptance, now: float) -> None:
        """Count a batch that is durable."""
        self.batch("duplicate" if result.duplicate else "new")
        self._rows.inc(result.rows)
        self._rejected.inc(result.rejected_values)
        if not result.duplicate:
            self._delay.observe(max(0.0, now - batch.sent_at))

    def answered(self, seconds: float) -> None:
        """Count an answer."""
        self._answers.observe(seconds)

    def text(self) -> bytes:
        """Give everything in Prometheus' text format."""
        return generate_latest(self._registry)


class _State:
    """What is read off at the moment of a scrape."""

    def __init__(self, store: Store, committer: Committer, clocks: Clocks) -> None:
        self._store = store
        self._committer = committer
        self._clocks = clocks

    def describe(self) -> list[Metric]:
        """Give nothing: the names are fixed, and none is registered twice."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give the gauges."""
        data = self._store.data
        yield _gauge("waiting_rows", "Rows taken but not yet written.", self._committer.waiting_rows)
        yield _gauge("free_space_bytes", "Free space where the data lie.", shutil.disk_usage(data).free)
        hot = sum(file.stat().st_size for file in data.glob("hot.duckdb*") if file.is_file())
        yield _gauge("hot_bytes", "Size of the database file and its log.", hot)
        try:
            days = lake.sealed_days(self._store)
        except duckdb.Error:
            days = []
        yield _gauge("lake_bytes", "Size of the sealed days that are valid.", sum(day.file_bytes for day in days))
        yield _gauge("sealed_parts", "Sealed days in the lake, each table counted.", len(days))
        behind = text_imports.oldest_cursor(self._store)
        if behind is not None:
            yield _gauge(
                "accounting_age_seconds",
                "Age of what the collector of accounting that is furthest behind has brought in.",
                max(0.0, time.time() - behind),
            )
        readings = list(self._clocks.all().values())
        yield _gauge("senders", "Senders heard since the start, the latest at most 20,000.", len(readings))
        if not readings:
            return
        yield _gauge(
            "clocks_off",
            "Senders whose clock is certainly off by more than the setting cluster.clock_off_seconds.",
            sum(self._clocks.is_off(reading) for reading in readings),
        )
        yield _gauge(
            "clock_ahead_max_seconds",
            "The most by which a sender's clock is certainly ahead; negative: none is.",
            max(reading.offset.low for reading in readings),
        )
        bounded = [-reading.offset.high for reading in readings if math.isfinite(reading.offset.high)]
        if bounded:
            yield _gauge(
                "clock_behind_max_seconds",
                "The most by which a sender's clock is certainly behind; negative: none is.",
                max(bounded),
            )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"trueload_server_{name}", text, value=value)
