"""The benchmark kind: one file in ``analysis/benchmarks/`` = one question of ``docs/benchmarks.md``."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from warehouse.contract.plugins import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from warehouse.client import Answer, Client
    from warehouse.contract.settings import Settings

PACKAGES = ("trueload", "duckdb", "ibis-framework", "numpy", "pyarrow", "pyspark")
"""Distributions whose versions can change a figure."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What a benchmark may use: the folder of sources, ways to a store and to questions, the settings."""

    data_root: Path
    full: bool
    open_client: Callable[[Path, bool], Client]
    settings: Settings
    answers: Callable[[], Mapping[str, Answer]] = dict


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure that has to be reached: ``bar`` says in words and numbers what was asked."""

    name: str
    value: float | None
    bar: str
    holds: bool


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What a benchmark found. ``predictions`` are rows under ``prediction_columns``, one per judged item."""

    figures: Mapping[str, object]
    bars: Sequence[Bar]
    not_shown: Sequence[str]
    prediction_columns: tuple[str, ...] = ()
    predictions: Sequence[tuple[str, ...]] = field(default=())


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark. ``run`` raises BadInputError when a source is there and cannot be read."""

    name: str
    description: str
    run: Callable[[BenchRequest], BenchResult]


def benchmarks() -> dict[str, Benchmark]:
    """Give every benchmark by name, found by the scan."""
    return scan("analysis.benchmarks", "BENCHMARK", Benchmark)


def at_least(name: str, value: float | None, least: float) -> Bar:
    """Give the bar of a figure that must not be smaller; one that could not be computed does not hold."""
    return Bar(name, value, f">= {least:g}", value is not None and value >= least)


def at_most(name: str, value: float | None, most: float) -> Bar:
    """Give the bar of a figure that must not be larger; one that could not be computed does not hold."""
    return Bar(name, value, f"<= {most:g}", value is not None and value <= most)


def bench_document(name: str, result: BenchResult) -> dict[str, object]:
    """Give the document of ``trueload bench NAME --json``."""
    return {
        "bench": name,
        "figures": dict(result.figures),
        "bars": [{"name": bar.name, "value": bar.value, "bar": bar.bar, "holds": bar.holds} for bar in result.bars],
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "cpu_count": os.cpu_count(),
            "python": platform.python_version(),
        },
        "versions": {package: _version(package) for package in PACKAGES},
        "not_shown": list(result.not_shown),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
