"""Imports point one way: dashboards -> analysis | collector -> warehouse; the contract is standard library only."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HEAVY = ("duckdb", "ibis", "numpy", "pandas", "pyarrow", "streamlit")
PACKAGES = ("analysis", "collector", "dashboards", "warehouse")
PLUGIN_PACKAGES = (
    "analysis.remedies",
    "collector.jobs",
    "collector.sources",
    "dashboards.views",
    "warehouse.imports",
)


def _modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _imported(module: Path) -> Iterator[tuple[int, str]]:
    """Give line and full name of all that a module imports anywhere in it, lazily or by importlib too."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=source, names=names, level=0):
                yield from ((node.lineno, f"{source}.{alias.name}") for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield node.lineno, name


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _offences(modules: list[Path], forbidden: tuple[str, ...]) -> list[str]:
    return [
        f"{module}:{line} imports {name}"
        for module in modules
        for line, name in _imported(module)
        if any(_is_within(name, package) for package in forbidden)
    ]


def test_the_import_contracts_hold(repository: Path) -> None:
    # In a process of its own: import-linter sets up logging for a whole process and silences the loggers it finds.
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_contract_is_standard_library_only(repository: Path) -> None:
    offences = [
        f"{module}:{line} imports {name}"
        for module in _modules(repository / "warehouse" / "contract")
        for line, name in _imported(module)
        if name.split(".")[0] not in sys.stdlib_module_names and not _is_within(name, "warehouse.contract")
    ]
    assert offences == []


def test_collector_names_nothing_heavy_even_lazily(repository: Path) -> None:
    assert _offences(_modules(repository / "collector"), HEAVY) == []


def test_importing_all_of_collector_loads_nothing_heavy(repository: Path) -> None:
    program = (
        "import importlib, pkgutil, sys, collector\n"
        "for module in pkgutil.walk_packages(collector.__path__, 'collector.'):\n"
        "    importlib.import_module(module.name)\n"
        f"print(*sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, ""), ran.stderr


def test_the_front_door_opens_without_the_rooms_behind_it(repository: Path) -> None:
    program = f"import sys, trueload\nprint(*sorted(set({(*HEAVY, 'fastapi', 'plotly')!r}) & set(sys.modules)))\n"
    ran = subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, ""), ran.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_are_absolute(package: str, repository: Path) -> None:
    relative = [
        f"{module}:{node.lineno}"
        for module in _modules(repository / package)
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert relative == []


@pytest.mark.parametrize("package", PLUGIN_PACKAGES)
def test_plug_ins_never_import_each_other(package: str, repository: Path) -> None:
    folder = repository.joinpath(*package.split("."))
    units = [module for module in folder.glob("*.py") if not module.name.startswith("_")]
    names = tuple(f"{package}.{module.stem}" for module in units)
    offences = [
        offence for unit in units for offence in _offences([unit], tuple(set(names) - {f"{package}.{unit.stem}"}))
    ]
    assert offences == []


def test_no_room_imports_the_tests_or_the_documents(repository: Path) -> None:
    modules = [module for package in PACKAGES for module in _modules(repository / package)]
    assert _offences(modules, ("tests", "docs", "build_native")) == []
