"""Finding plug-ins: one constant per module, and errors at start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from warehouse.contract.errors import PluginError
from warehouse.contract.plugins import scan


@dataclass(frozen=True)
class Unit:
    """A kind of plug-in for these tests."""

    name: str
    description: str = "Does something."


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the folder of an empty importable package named ``units_for_test``."""
    home = tmp_path / "units_for_test"
    home.mkdir()
    (home / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield home
    for name in [name for name in sys.modules if name.startswith("units_for_test")]:
        del sys.modules[name]


def put(home: Path, module: str, line: str) -> None:
    """Write one module that can make a Unit."""
    (home / f"{module}.py").write_text(f"import {__name__} as kind\n{line}\n", encoding="utf-8")


def test_units_are_found_by_name_and_helpers_are_passed_over(package: Path) -> None:
    put(package, "two", "UNIT = kind.Unit('two')")
    put(package, "one", "UNIT = kind.Unit('one')")
    put(package, "_help", "")
    assert list(scan("units_for_test", "UNIT", Unit)) == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "must hold a constant UNIT of type Unit"),
        ("UNIT = 'one'", "must hold a constant UNIT of type Unit"),
        ("UNIT = kind.Unit('Not A Name')", "not lower_case"),
    ],
)
def test_a_missing_or_wrong_constant_is_an_error_at_start(package: Path, line: str, words: str) -> None:
    put(package, "bad", line)
    with pytest.raises(PluginError, match=words):
        scan("units_for_test", "UNIT", Unit)


def test_two_units_may_not_share_a_name(package: Path) -> None:
    put(package, "one", "UNIT = kind.Unit('same')")
    put(package, "two", "UNIT = kind.Unit('same')")
    with pytest.raises(PluginError, match="'same' is taken"):
        scan("units_for_test", "UNIT", Unit)
