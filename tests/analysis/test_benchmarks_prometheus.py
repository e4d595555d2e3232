"""Prometheus as a peer of the pages: hours of a small fleet, worked out by hand, asked as pages ask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import urllib3

from analysis.benchmarks._prometheus_pages import (
    HELD_IDLE,
    USED,
    Month,
    Series,
    Writer,
    ask,
    beside,
    crowd,
    fill,
    page_queries,
)
from analysis.benchmarks._servers import has_prometheus, literals, prometheus, protobuf_field, varint

MIDNIGHT = 1_793_577_600.0
"""2026-11-02T00:00:00Z."""

DEVICES = (("a", "A100", "ann", "lab1"), ("b", "A100", "bob", "lab1"), ("c", "H100", "ann", "lab2"))
SERIES = [
    Series(name, {"device": device, "model": model, "user": user, "account": account, "job": f"of {device}"})
    for name in (USED, HELD_IDLE)
    for device, model, user, account in DEVICES
]
HOURS = 48


def test_a_write_is_the_message_that_protobuf_would_make() -> None:
    at, value = MIDNIGHT, np.array([0.5])
    label = [
        protobuf_field(1, protobuf_field(1, k) + protobuf_field(2, v)) for k, v in ((b"__name__", b"x"), (b"d", b"1"))
    ]
    sample = protobuf_field(2, b"\x09" + value.tobytes() + b"\x10" + varint(int(at * 1000)))
    expected = literals(protobuf_field(1, b"".join(label) + sample))
    assert Writer([Series("x", {"d": "1"})]).body(at, value) == expected


@pytest.mark.skipif(not has_prometheus(), reason="needs Debian's package prometheus")
def test_prometheus_answers_the_questions_of_pages_over_what_was_written(tmp_path: Path) -> None:
    used, idle = [3600.0, 1800.0, 0.0], [0.0, 1800.0, 3600.0]
    hours = ((MIDNIGHT + 3600.0 * hour, np.array([*used, *idle])) for hour in range(HOURS))
    queries = page_queries(MIDNIGHT, MIDNIGHT + 3600.0 * HOURS, "of b")
    with prometheus(tmp_path / "prometheus") as peer:
        assert fill(peer.port, SERIES, hours) == len(SERIES) * HOURS
        pool = urllib3.PoolManager()
        found = {query.name: ask(pool, peer.port, query) for query in queries}
        waits = crowd(peer.port, queries, readers=2, seconds=0.2)
    by_user = {row["metric"]["user"]: float(row["value"][1]) for row in found["waste_by_user"]}
    assert by_user == {"ann": 48 * 3600.0, "bob": 48 * 1800.0}
    by_account = {row["metric"]["account"]: float(row["value"][1]) for row in found["waste_by_account"]}
    assert by_account == {"lab1": 48 * 1800.0, "lab2": 48 * 3600.0}
    assert [row["metric"]["job"] for row in found["worst_jobs"]] == ["of c", "of b", "of a"]
    by_model = {row["metric"]["model"]: [float(v) for _, v in row["values"]] for row in found["fleet_by_day"]}
    assert by_model == {"A100": [24 * 5400.0, 24 * 5400.0], "H100": [0.0, 0.0]}
    [job] = found["one_job"]
    assert [float(value) for _, value in job["values"]] == [1800.0] * 48
    assert all(waits.values())


@pytest.mark.skipif(not has_prometheus(), reason="needs Debian's package prometheus")
def test_a_month_of_two_devices_is_written_and_each_question_is_answered(tmp_path: Path) -> None:
    figures = beside(tmp_path / "prometheus", Month(gpus=2, days=3, first_at=MIDNIGHT), readers=2, seconds=0.2)
    assert figures["samples"] == 2 * 2 * 3 * 23
    assert figures["answers"]
    first = figures["first_seconds"]
    assert isinstance(first, dict)
    assert set(first) == {"waste_by_user", "waste_by_account", "worst_jobs", "fleet_by_day", "one_job"}
