"""The import names are plain words: nothing else may claim them, and nothing of ours may hide them."""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from pathlib import Path

import pytest

NAMES = ("analysis", "collector", "dashboards", "trueload", "warehouse")
PACKAGES = tuple(name for name in NAMES if name != "trueload")


@pytest.mark.parametrize("name", NAMES)
def test_no_other_distribution_claims_the_name(name: str) -> None:
    assert set(metadata.packages_distributions().get(name, [])) <= {"trueload"}


@pytest.mark.parametrize("name", NAMES)
def test_the_name_leads_to_this_repository(name: str, repository: Path) -> None:
    where = importlib.import_module(name).__file__
    assert where is not None
    assert Path(where).is_relative_to(repository)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_not_taken_by_the_standard_library(name: str) -> None:
    assert name not in sys.stdlib_module_names


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_named_like_a_package(package: str, repository: Path) -> None:
    below = (repository / package).rglob("*")
    assert [str(path) for path in below if path.suffix in {"", ".py"} and path.stem in NAMES] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_modules_is_a_package(package: str, repository: Path) -> None:
    folders = {path.parent for path in (repository / package).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_no_folder_of_dashboards_switches_on_the_old_menu_of_streamlit(repository: Path) -> None:
    assert [str(path) for path in (repository / "dashboards").rglob("pages")] == []


def test_the_folders_of_tests_are_no_packages(repository: Path) -> None:
    assert [str(path) for path in (repository / "tests").rglob("__init__.py")] == []
