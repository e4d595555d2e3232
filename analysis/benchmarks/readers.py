"""P5 beside P3: many readers while batches arrive. No error, no wrong or empty answer, and nobody waits for long."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import numpy as np
import orjson

from analysis.benchmark import Benchmark, BenchRequest, BenchResult, at_least, at_most
from analysis.benchmarks._fleet import FIRST_AT, Fleet, write_fleet
from analysis.benchmarks._load import Address, Connection, send_at_a_rate
from analysis.benchmarks._same import differences
from analysis.benchmarks._servers import cpu_seconds, our_server
from analysis.benchmarks.ingest import SMALL_ROWS, batch_of
from warehouse.contract import wire
from warehouse.contract.units import SECONDS_PER_DAY, iso
from warehouse.store import open_store

if TYPE_CHECKING:
    from warehouse import access

FLEET = Fleet(gpus=48, seconds=SECONDS_PER_DAY, cadence_seconds=30.0)
READERS = 20
SECONDS = 60.0
BATCHES_A_SECOND = 200.0
MOST_P95_SECONDS = 0.3
LEAST_KEPT_UP_RATIO = 0.99
WORDS_OF_TROUBLE = ("Traceback", " ERROR ")
SEED = 1

_WINDOW: Mapping[str, str] = {
    "since": str(iso(FIRST_AT)),
    "until": str(iso(FIRST_AT + FLEET.seconds)),
    "zone": "UTC",
}
QUESTIONS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("waste", {**_WINDOW, "by": "user"}),
    ("waste", {**_WINDOW, "by": "account"}),
    ("jobs", {**_WINDOW, "limit": "50"}),
    ("families", _WINDOW),
    ("recommend", _WINDOW),
    ("fleet", _WINDOW),
    ("job", {**_WINDOW, "id": "bench/0#0"}),
)
"""What is asked, over a day that is complete, so that what is right does not change while batches arrive."""


@dataclass(slots=True)
class Heard:
    """What readers were told: how long each answer took, how many were errors or differed from the right one."""

    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def run(request: BenchRequest) -> BenchResult:
    """Ask everything once, then over and over by 20 readers beside 200 batches/s."""
    seconds = SECONDS if request.seconds is None else request.seconds
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as name:
        data = Path(name) / "data"
        store = open_store(data, create=True)
        try:
            write_fleet(store, FLEET)
        finally:
            store.close()
        with our_server(data) as address:
            before = cpu_seconds(address.process_id)
            heard, waits, due = asyncio.run(_crowd(address, seconds))
            used = cpu_seconds(address.process_id) - before
        log = (Path(name) / "server.log").read_text(encoding="utf-8")
    trouble = [line for line in log.splitlines() if any(word in line for word in WORDS_OF_TROUBLE)]
    p95 = _percentile(heard.waits, 95)
    return BenchResult(
        {
            "readers": READERS,
            "seconds": seconds,
            "answers": len(heard.waits),
            "answer_seconds": {f"p{percent}": _percentile(heard.waits, percent) for percent in (50, 95, 99)},
            "batches_due": due,
            "batches_acknowledged": len(waits),
            "acknowledgement_seconds": {f"p{percent}": _percentile(waits, percent) for percent in (50, 95, 99)},
            "server_cpu_seconds": used,
            "load_average": os.getloadavg()[0],
            "first_troubles": [*heard.errors[:3], *heard.wrong[:3], *trouble[:3]],
        },
        [
            at_most("readers: answers that are errors", len(heard.errors), 0),
            at_most("readers: answers that differ from the right one", len(heard.wrong), 0),
            at_most("readers: lines of the server's log that speak of an error", len(trouble), 0),
            at_most("readers: p95 of an answer, s", p95, MOST_P95_SECONDS),
            at_least("readers: share of batches that were acknowledged", len(waits) / max(due, 1), LEAST_KEPT_UP_RATIO),
        ],
        [
            f"a large store: {FLEET.samples:,} samples of {FLEET.gpus} GPUs (`trueload bench pages` has 10,000 GPUs)",
            "an idle machine: readers and senders share the cores with the server",
        ],
    )


async def _crowd(address: access.Address, seconds: float) -> tuple[Heard, Sequence[float], int]:
    parts = urlsplit(address.url)
    to = Address(parts.hostname or "", parts.port or 0, "/v1/batches", {"Authorization": f"Bearer {address.token}"})
    right = [await _right(to, *asked) for asked in QUESTIONS]
    heard = Heard()
    due = int(seconds * BATCHES_A_SECOND)
    bodies = [to.request(body) for body in _bodies(due)]
    ends_at = time.perf_counter() + seconds
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send_at_a_rate(to.host, to.port, bodies, BATCHES_A_SECOND))
        for number in range(READERS):
            group.create_task(_reader(to, right, random.Random(SEED + number), heard, ends_at))  # noqa: S311
    return heard, sending.result(), due


async def _right(to: Address, question: str, parameters: Mapping[str, str]) -> bytes:
    """Ask before anything arrives.

    Raises:
        AssertionError: there is no answer, or it is empty: then nothing is measured.

    """
    async with Connection(to.host, to.port) as connection:
        status, body = await connection.ask(to.get(_path(question, parameters)))
    document = orjson.loads(body)
    if status != 200 or not any(isinstance(part, list | dict) and part for part in document.values()):  # noqa: PLR2004
        raise AssertionError(f"{question}: {status} {body[:200]!r}")
    return body


def _path(question: str, parameters: Mapping[str, str]) -> str:
    return f"/v1/answers/{question}?{urlencode(parameters)}"


async def _reader(to: Address, right: Sequence[bytes], chance: random.Random, heard: Heard, ends_at: float) -> None:
    async with Connection(to.host, to.port) as connection:
        while time.perf_counter() < ends_at:
            at = chance.randrange(len(QUESTIONS))
            began = time.perf_counter()
            status, body = await connection.ask(to.get(_path(*QUESTIONS[at])))
            heard.waits.append(time.perf_counter() - began)
            if status != 200:  # noqa: PLR2004
                heard.errors.append(f"{QUESTIONS[at][0]}: {status} {body[:200]!r}")
            elif body != right[at]:
                heard.wrong += list(differences(_still(right[at]), _still(body), QUESTIONS[at][0]))[:1]


def _still(body: bytes) -> dict[str, object]:
    """Give a document without what has to change: until when the store as a whole has samples."""
    return {name: value for name, value in orjson.loads(body).items() if name != "as_of"}


def _bodies(count: int) -> Iterator[bytes]:
    """Give batches of samples of now: their values repeat, for making them takes longer than sending them."""
    patterns = [batch_of(number, SMALL_ROWS) for number in range(100)]
    for number in range(count):
        pattern = patterns[number % len(patterns)]
        yield wire.encode(
            wire.Batch(pattern.agent, "boot", 1 + number // len(patterns), pattern.sent_at, pattern.tables), level=1
        )


def _percentile(waits: Sequence[float], percent: float) -> float | None:
    return float(np.percentile(waits, percent)) if waits else None


BENCHMARK = Benchmark(
    name="readers",
    description="Twenty readers beside 200 batches/s: no error, no wrong or empty answer, and how long they wait.",
    run=run,
    needs_sources=False,
)
