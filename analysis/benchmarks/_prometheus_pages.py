"""Prometheus as the peer of P5: hourly roll-ups of a fleet as series, and what pages ask, in PromQL.

A site that has only Prometheus would keep such series by recording rules: for each device and owner the seconds of an
hour that were used, and those that were held idle. Samples are stamped with the begin of their hour.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import urllib3

from analysis.benchmarks._servers import REMOTE_WRITE, literals, prometheus, protobuf_field, varint
from warehouse.contract.errors import StoreError
from warehouse.contract.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

USED, HELD_IDLE = "trueload_used_seconds", "trueload_held_idle_seconds"
TIMEOUT_SECONDS = 120.0
TOP = 50
_SAMPLE_BYTES = 16
"""A sample of ``prompb.TimeSeries``: a tag and a double, a tag and an instant in milliseconds of six bytes."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its name, and labels beside it."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Query:
    """What a page asks: an expression at an instant or, with a step, at each of several."""

    name: str
    expression: str
    at: float
    since: float | None = None
    step_seconds: float | None = None

    def fields(self) -> dict[str, str]:
        """Give the parameters of Prometheus' HTTP API."""
        if self.since is None or self.step_seconds is None:
            return {"query": self.expression, "time": str(self.at)}
        times = {"start": str(self.since), "end": str(self.at), "step": str(self.step_seconds)}
        return {"query": self.expression, **times}

    @property
    def path(self) -> str:
        """Give the path of Prometheus' HTTP API."""
        return "/api/v1/query" if self.step_seconds is None else "/api/v1/query_range"


def page_queries(since: float, until: float, job: str) -> list[Query]:
    """Give what the pages of a window ask: waste by user and account, the fleet by day, the worst jobs, one job.

    ``since`` and ``until`` are whole hours apart. A window of PromQL is open at its begin, so all end a second early.
    """
    end, whole = until - 1.0, int(until - since)
    day = int(SECONDS_PER_DAY)
    return [
        Query("waste_by_user", f"sum by (user) (sum_over_time({HELD_IDLE}[{whole}s]))", end),
        Query("waste_by_account", f"sum by (account) (sum_over_time({HELD_IDLE}[{whole}s]))", end),
        Query("worst_jobs", f"topk({TOP}, sum by (job) (sum_over_time({HELD_IDLE}[{whole}s])))", end),
        Query("fleet_by_day", f"sum by (model) (sum_over_time({USED}[{day}s]))", end, since + day - 1.0, float(day)),
        Query("one_job", f'{USED}{{job="{job}"}}[{whole}s]', end),
    ]


@dataclass(frozen=True, slots=True)
class Month:
    """The roll-ups by hour that ``bench pages`` fills its store with: each device runs one job a day, for 23 hours."""

    gpus: int
    days: int
    first_at: float

    @property
    def end_at(self) -> float:
        """Give the end of the last day."""
        return self.first_at + self.days * SECONDS_PER_DAY

    def job(self, number: int) -> str:
        """Give the key of a job; they are numbered day by day."""
        return f"bench/{number}#0"

    def series(self, day: int) -> list[Series]:
        """Give the series of a day: what was used of each device, then what was held idle."""
        return [
            Series(
                name,
                {
                    "device": f"GPU-{device:08d}",
                    "node": f"node{device // 8:04d}",
                    "model": "NVIDIA A100-SXM4-80GB",
                    "job": self.job(number),
                    "user": f"user{number % 60}",
                    "account": f"lab{number % 12}",
                },
            )
            for name in (USED, HELD_IDLE)
            for device, number in enumerate(range(day * self.gpus, (day + 1) * self.gpus))
        ]

    def hours(self, day: int) -> Iterator[tuple[float, npt.NDArray[np.float64]]]:
        """Give the begin of each hour of a day, and its values in the order of ``series``."""
        used = 36.0 * (20 + np.arange(day * self.gpus, (day + 1) * self.gpus) % 70)
        values = np.concatenate([used, SECONDS_PER_HOUR - used])
        for hour in range(23):
            yield self.first_at + day * SECONDS_PER_DAY + hour * SECONDS_PER_HOUR, values


class Writer:
    """Makes remote writes of one sample for each of the same series: bytes that stay are made once."""

    def __init__(self, series: Sequence[Series]) -> None:
        """Lay out the bytes of a write."""
        found, values, instants = bytearray(), [], []
        for one in series:
            labels = sorted({"__name__": one.name, **one.labels}.items())
            body = b"".join(
                protobuf_field(1, protobuf_field(1, name.encode()) + protobuf_field(2, value.encode()))
                for name, value in labels
            )
            found += protobuf_field(1, body + protobuf_field(2, bytes(_SAMPLE_BYTES)))
            begin = len(found) - _SAMPLE_BYTES
            found[begin], found[begin + 9] = 0x09, 0x10
            values.append(begin + 1)
            instants.append(begin + 10)
        self._template = np.frombuffer(bytes(found), np.uint8)
        self._values = np.array(values)[:, None] + np.arange(8)
        self._instants = np.array(instants)[:, None] + np.arange(6)

    def body(self, at: float, values: npt.NDArray[np.float64]) -> bytes:
        """Give the body of a write: one value for each series, all of one instant (seconds, from 2005 to 2109)."""
        plain = self._template.copy()
        plain[self._values] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
        plain[self._instants] = np.frombuffer(varint(round(at * 1000)), np.uint8)
        return literals(plain.tobytes())


def fill(port: int, series: Sequence[Series], hours: Iterable[tuple[float, npt.NDArray[np.float64]]]) -> int:
    """Write hour after hour, each with one value for each series; gives the number of samples.

    Raises:
        StoreError: Prometheus did not take a write.

    """
    writer, written = Writer(series), 0
    pool = urllib3.PoolManager(retries=False, timeout=TIMEOUT_SECONDS)
    for at, values in hours:
        answer = pool.request(
            "POST", f"http://127.0.0.1:{port}/api/v1/write", body=writer.body(at, values), headers=REMOTE_WRITE
        )
        if answer.status not in (200, 204):
            raise StoreError(f"Prometheus refused samples: {answer.status} {answer.data[:200]!r}")
        written += len(series)
    return written


def beside(folder: Path, month: Month, readers: int, seconds: float) -> dict[str, object]:
    """Run Prometheus over a month of roll-ups and have readers ask what pages ask; gives the figures.

    Raises:
        StoreError: Prometheus did not start, take a write or answer.

    """
    queries = page_queries(month.first_at, month.end_at, month.job(7))
    with prometheus(folder) as peer:
        began = time.perf_counter()
        samples = sum(fill(peer.port, month.series(day), month.hours(day)) for day in range(month.days))
        filled = time.perf_counter() - began
        pool = urllib3.PoolManager(retries=False, timeout=TIMEOUT_SECONDS)
        first = crowd_of(lambda query: ask(pool, peer.port, query), queries, 1, 0.0, at_least=len(queries))
        waits = crowd(peer.port, queries, readers, seconds)
    every = [wait for own in waits.values() for wait in own]
    return {
        "samples": samples,
        "fill_seconds": filled,
        "first_seconds": {name: own[0] for name, own in first.items()},
        "answers": len(every),
        "p50_seconds": {name: float(np.median(own)) for name, own in waits.items() if own},
        "p95_seconds": float(np.percentile(every, 95)) if every else None,
    }


def ask(pool: urllib3.PoolManager, port: int, query: Query) -> list[dict[str, Any]]:
    """Ask one query; gives the rows of its result.

    Raises:
        StoreError: Prometheus did not answer it.

    """
    answer = pool.request("GET", f"http://127.0.0.1:{port}{query.path}", fields=query.fields())
    if answer.status != 200:  # noqa: PLR2004
        raise StoreError(f"Prometheus: {query.name}: {answer.status} {answer.data[:200]!r}")
    rows: list[dict[str, Any]] = json.loads(answer.data)["data"]["result"]
    return rows


def crowd(port: int, queries: Sequence[Query], readers: int, seconds: float) -> dict[str, list[float]]:
    """Have so many readers ask one query after the other; gives the seconds of each answer by query."""
    pool = urllib3.PoolManager(retries=False, timeout=TIMEOUT_SECONDS, maxsize=readers, block=True)
    return crowd_of(lambda query: ask(pool, port, query), queries, readers, seconds)


def crowd_of(
    asked: Callable[[Query], object], queries: Sequence[Query], readers: int, seconds: float, at_least: int = 0
) -> dict[str, list[float]]:
    """Do the same with any way to ask; each reader begins with another query and asks ``at_least`` so many."""
    waits: dict[str, list[float]] = {query.name: [] for query in queries}
    ends_at = time.perf_counter() + seconds

    def reader(number: int) -> None:
        for turn in count(number):
            query, began = queries[turn % len(queries)], time.perf_counter()
            if began >= ends_at and turn - number >= at_least:
                return
            asked(query)
            waits[query.name].append(time.perf_counter() - began)

    with ThreadPoolExecutor(readers) as threads:
        for done in [threads.submit(reader, number) for number in range(readers)]:
            done.result()
    return waits
