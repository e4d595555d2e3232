"""Expressions keep to the subset that means the same on DuckDB and on Spark (docs/scale.md: the portable subset)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

NEVER = {
    "asof_join": "Spark has no ASOF join: tag rows with their owner, join late corrections by range",
    "approx_nunique": "sketches differ between engines",
    "approx_median": "sketches differ between engines",
    "approx_quantile": "sketches differ between engines: use the histograms of the roll-ups",
    "quantile": "engines interpolate differently: use the histograms of the roll-ups",
    "median": "engines interpolate differently: use the histograms of the roll-ups",
    "arbitrary": "any row is another one on each engine",
    "mode": "ties are broken differently",
    "arg_max": "ties are broken differently: rank by a unique key and filter",
    "arg_min": "ties are broken differently: rank by a unique key and filter",
    "argmax": "ties are broken differently: rank by a unique key and filter",
    "argmin": "ties are broken differently: rank by a unique key and filter",
    "group_concat": "the order of a text's parts is lost",
    "collect": "the order of a list is lost: sort here",
    "sample": "another sample on each engine",
    "raw_sql": "words of one engine",
    "sql": "words of one engine",
}
"""Methods that no expression may call, and what to do instead."""

ONLY_ORDERED = {"first", "last", "nth"}
"""Methods that need ``order_by``: of unordered rows each engine gives another one."""

ENGINES = ("duckdb", "pyspark", "sqlglot")
BINDING = {"engines.py", "sight.py", "store.py"}
"""Modules of the warehouse that bind tables to an engine, and so speak its words."""

ARRAYS = {"np", "numpy", "statistics"}
"""What has methods of the same names and never reaches an engine."""


def offences(source: str) -> Iterator[str]:
    """Give what a module does outside the subset, with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                engines = [alias.name for alias in names if alias.name.split(".")[0] in ENGINES]
                yield from (f"{node.lineno}: imports {name}" for name in engines)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in ENGINES:
                yield f"{node.lineno}: imports {module}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in ARRAYS:
                continue
            case ast.Call(func=ast.Attribute(attr=method)) if method in NEVER:
                yield f"{node.lineno}: calls {method} ({NEVER[method]})"
            case ast.Call(func=ast.Attribute(attr=method), keywords=keywords) if method in ONLY_ORDERED:
                if not any(keyword.arg == "order_by" for keyword in keywords):
                    yield f"{node.lineno}: calls {method} without order_by"


def _modules(repository: Path) -> list[Path]:
    analysis = (repository / "analysis").rglob("*.py")
    warehouse = (module for module in (repository / "warehouse").rglob("*.py") if module.name not in BINDING)
    found = [module for module in analysis if "benchmarks" not in module.parts]
    return found + [module for module in warehouse if _speaks_ibis(module)]


def _speaks_ibis(module: Path) -> bool:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return any(name.split(".")[0] == "ibis" for name in imported)


def test_expressions_keep_to_the_portable_subset(repository: Path) -> None:
    modules = _modules(repository)
    assert {"activity.py", "holdings.py", "queries.py"} <= {module.name for module in modules}
    found = [
        f"{module.relative_to(repository)}:{offence}"
        for module in modules
        for offence in offences(module.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import duckdb",
        "from pyspark.sql import SparkSession",
        "samples.asof_join(jobs, 'at')",
        "samples.power.approx_quantile(0.5)",
        "samples.device.collect(order_by='at')",
        "samples.device.arg_max(samples.at)",
        "samples.device.first()",
        "backend.sql('SELECT 1')",
    ],
)
def test_what_is_not_portable_is_found(source: str) -> None:
    assert len(list(offences(source))) == 1


@pytest.mark.parametrize("source", ["x.device.first(order_by=x.at)", "np.median(values)", "x.power.max()"])
def test_what_is_portable_passes(source: str) -> None:
    assert list(offences(source)) == []
