"""What every unit of every kind must keep; a new unit is found by the scan and tested without a line here."""

from __future__ import annotations

import dataclasses
import keyword
import re
from pathlib import Path
from typing import Any

import pytest

import trueload
from docs import generate
from docs.generate import KINDS, Kind
from warehouse.contract.errors import PluginError
from warehouse.contract.plugins import Plugin, scan
from warehouse.contract.settings import PREFIX, Setting, load

SENTENCE = re.compile(r"[A-Z][^\n]*\.\Z")
UNITS = [pytest.param(kind, unit, id=f"{kind.package}:{name}") for kind in KINDS for name, unit in kind.units().items()]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_a_kind_is_a_frozen_dataclass_with_slots(kind: Kind) -> None:
    units: dict[str, Any] = dict(kind.units())
    for unit in units.values():
        with pytest.raises(dataclasses.FrozenInstanceError):
            unit.name = "other"
        assert not hasattr(unit, "__dict__")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_a_kind_has_units(kind: Kind) -> None:
    assert kind.units()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_the_readme_of_the_folder_names_the_constant(kind: Kind, repository: Path) -> None:
    readme = repository.joinpath(*kind.package.split(".")) / "README.md"
    assert kind.constant in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize(("kind", "unit"), UNITS)
def test_a_unit_bears_the_name_of_its_file(kind: Kind, unit: Plugin, repository: Path) -> None:
    folder = repository.joinpath(*kind.package.split("."))
    stem = f"{unit.name}_" if keyword.iskeyword(unit.name) else unit.name
    assert (folder / f"{stem}.py").is_file()


@pytest.mark.parametrize(("kind", "unit"), UNITS)
def test_a_unit_describes_itself_in_one_plain_sentence(kind: Kind, unit: Plugin) -> None:
    assert SENTENCE.match(unit.description), f"{kind.package}.{unit.name}: {unit.description!r}"


@pytest.mark.parametrize(("kind", "unit"), UNITS)
def test_a_unit_stands_in_the_documents(kind: Kind, unit: Plugin) -> None:
    assert f"| `{unit.name}` | {unit.description}" in generate.units_page(), kind.title


@pytest.mark.parametrize(("kind", "unit"), UNITS)
def test_a_unit_has_a_test_file_of_its_own(kind: Kind, unit: Plugin, repository: Path) -> None:
    room = repository / "tests" / kind.package.partition(".")[0]
    assert list(room.rglob(f"test_*{unit.name}*.py")), f"{kind.package}.{unit.name}"


@pytest.mark.parametrize(("kind", "unit"), UNITS)
def test_the_settings_of_a_unit_have_unit_and_reason_and_are_registered(kind: Kind, unit: Plugin) -> None:
    registered = {setting.name for setting in trueload.registry()}
    for setting in getattr(unit, "settings", ()):
        assert isinstance(setting, Setting)
        assert setting.unit
        assert setting.reason
        assert setting.name in registered, f"{kind.package}.{unit.name}"


def test_every_setting_has_unit_reason_and_a_default_within_its_bounds() -> None:
    for setting in trueload.registry():
        assert setting.unit, setting.name
        assert SENTENCE.match(setting.reason), f"{setting.name}: {setting.reason!r}"
        if isinstance(setting.default, (int, float)):
            assert setting.lowest is None or setting.default >= setting.lowest, setting.name
            assert setting.highest is None or setting.default <= setting.highest, setting.name


def test_no_two_settings_share_a_name() -> None:
    names = [setting.name for setting in trueload.registry()]
    assert sorted(set(names)) == sorted(names)


def _package(folder: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> str:
    name = f"shelf_{len(modules)}_{folder.name}"
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    for module, text in modules.items():
        (package / f"{module}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return name


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """A kind made for these tests."""

    name: str
    description: str = "It serves a test."


USE = f"from dataclasses import dataclass\nfrom {__name__} import Tool\n"


def test_a_module_without_its_constant_is_an_error_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _package(tmp_path, monkeypatch, hammer="TOOLS = 1")
    with pytest.raises(PluginError, match=r"hammer must hold a constant TOOL of type Tool"):
        scan(package, "TOOL", Tool)


def test_a_constant_of_another_type_is_an_error_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _package(tmp_path, monkeypatch, hammer="TOOL = 'hammer'")
    with pytest.raises(PluginError, match=r"hammer must hold a constant TOOL of type Tool"):
        scan(package, "TOOL", Tool)


def test_a_module_that_begins_with_an_underscore_is_a_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _package(tmp_path, monkeypatch, _shared="x = 1")
    assert scan(package, "TOOL", Tool) == {}


def test_every_variable_that_the_code_reads_by_its_name_is_no_unknown_setting(repository: Path) -> None:
    named: set[str] = set()
    for room in ("analysis", "collector", "dashboards", "warehouse"):
        for path in (repository / room).rglob("*.py"):
            named |= set(re.findall(r'"(TRUELOAD_[A-Z_]+)"', path.read_text(encoding="utf-8")))
    named |= set(re.findall(r'"(TRUELOAD_[A-Z_]+)"', (repository / "trueload.py").read_text(encoding="utf-8")))
    named -= {PREFIX, "TRUELOAD_RECOMMENDATION"}  # the mark of an advice stands in a job's comment
    assert "TRUELOAD_TOKEN_FILE" in named
    assert load((), None, dict.fromkeys((name for name in named if "__" not in name), "x")).values == {}
