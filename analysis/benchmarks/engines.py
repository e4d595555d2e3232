"""P9: Spark gives the same tables as DuckDB, for every question, over one lake."""

from __future__ import annotations

import resource
import tempfile
import time
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.benchmark import Bar, Benchmark, BenchRequest, BenchResult
from analysis.benchmarks._fleet import Fleet, write_fleet
from analysis.benchmarks._same import count_values, differences
from warehouse import lake, rollups
from warehouse.contract.settings import Settings
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.engines import Engine, open_lake
from warehouse.store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.client import Answer, Document
    from warehouse.sight import Sight

SMALL = Fleet(gpus=8, seconds=7 * SECONDS_PER_DAY, cadence_seconds=300.0)
WHOLE = Fleet(gpus=200, seconds=SECONDS_PER_DAY)
_FIRST_WEEK = "2026-W45"
_AFTER_ALL, _AFTER_ALL_AT = date(2100, 1, 1), 4e9


def questions(fleet: Fleet) -> list[tuple[str, dict[str, str]]]:
    """Give every core question with its parameters."""
    groupings = ("user", "account", "gpu_model", "partition", "week", "job")
    return [
        *(("waste", {"by": grouping}) for grouping in groupings),
        ("jobs", {"limit": "10000"}),
        ("families", {}),
        ("recommend", {}),
        ("fleet", {}),
        ("job", {"id": "1"}),
        ("analyze", {}),
        *([("weekly", {"week": _FIRST_WEEK})] if fleet.seconds >= 7 * SECONDS_PER_DAY else []),
    ]


def make_lake(data: Path, fleet: Fleet, *, rolled: bool = True) -> None:
    """Write a fleet into a new store, sum it up (``rolled``), and seal all of it."""
    store = open_store(data, create=True)
    try:
        write_fleet(store, fleet)
        if rolled:
            rollups.roll(store, Settings(), _AFTER_ALL_AT)
        for table, day in lake.days_to_seal(store, _AFTER_ALL):
            lake.seal(store, data, table, day)
        lake.publish(store, data)
    finally:
        store.close()


def ask_all(
    sight: Sight, asked: Sequence[tuple[str, dict[str, str]]], answers: Mapping[str, Answer], settings: Settings
) -> tuple[list[Document], list[float]]:
    """Give the answer to every question, and the seconds that each took."""
    documents, seconds = [], []
    for question, parameters in asked:
        began = time.perf_counter()
        documents.append(answers[question](sight, settings, parameters))
        seconds.append(time.perf_counter() - began)
    return documents, seconds


def run(request: BenchRequest) -> BenchResult:
    """Make a lake, ask both engines everything, and hold the documents against each other."""
    not_shown = ["the time on a real cluster: both engines share this machine's cores", "an object store"]
    if find_spec("pyspark") is None:
        return BenchResult({}, (), [*not_shown, "PySpark is not installed: pip install 'trueload[spark]'"])
    fleet = WHOLE if request.full else SMALL
    asked = questions(fleet)
    with tempfile.TemporaryDirectory(prefix="trueload-bench-") as folder:
        make_lake(Path(folder), fleet)
        figures: dict[str, object] = {"samples": fleet.samples, "gpus": fleet.gpus}
        found: dict[Engine, list[Document]] = {}
        for engine in Engine:
            began, used = time.perf_counter(), _cpu_seconds()
            with open_lake(Path(folder), engine, request.settings) as opened:
                start = time.perf_counter() - began
                found[engine], seconds = ask_all(opened, asked, request.answers(), request.settings)
            figures[engine] = {
                "start_seconds": start,
                "seconds": {_shown(*one): took for one, took in zip(asked, seconds, strict=True)},
                "total_seconds": sum(seconds),
                "own_cpu_seconds": _cpu_seconds() - used,
            }
    pairs = zip(asked, found[Engine.DUCKDB], found[Engine.SPARK], strict=True)
    wrong = {_shown(*question): list(differences(one, other)) for question, one, other in pairs}
    figures["values_compared"] = sum(map(count_values, found[Engine.DUCKDB]))
    figures["different"] = {name: places[:5] for name, places in wrong.items() if places}
    bars = [Bar(f"P9: {name}: values that differ", float(len(w)), "0 (1e-6)", holds=not w) for name, w in wrong.items()]
    return BenchResult(figures, bars, not_shown)


def _shown(question: str, parameters: Mapping[str, str]) -> str:
    return " ".join([question, *(f"{name}={value}" for name, value in parameters.items())])


def _cpu_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


BENCHMARK = Benchmark(
    name="engines",
    description="P9: every question answered by DuckDB and by Spark over one lake; whole documents to 1e-6.",
    run=run,
)
