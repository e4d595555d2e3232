"""This room's benchmarks, and the document of any benchmark. The kind itself: ``warehouse.contract.benchmark``."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from warehouse.contract.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_least, at_most
from warehouse.contract.plugins import scan

__all__ = ("Bar", "BenchRequest", "BenchResult", "Benchmark", "at_least", "at_most", "bench_document", "benchmarks")

PACKAGES = ("trueload", "duckdb", "ibis-framework", "numpy", "pyarrow", "pyspark")
"""Distributions whose versions can change a figure."""


def benchmarks() -> dict[str, Benchmark]:
    """Give every benchmark of this room by name, found by the scan."""
    return scan("analysis.benchmarks", "BENCHMARK", Benchmark)


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
