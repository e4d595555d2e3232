"""What is committed works on any machine, names no package index, and pins by name and number."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.+!]*\Z")
INDEX_HOST = re.compile(rb"pypi\.(org|io)|pythonhosted\.org|registry\.npmjs|deb\.debian\.org|conda\.anaconda")
MACHINE_PATH = re.compile(rb"(?<![\w.*-])/(?:work/(?:main|shared)|root)/")


@pytest.fixture(scope="module")
def tracked(repository: Path) -> list[Path]:
    """Give all files of the working tree that are committed, or would be."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("needs a git checkout")
    files = [repository / name for name in listing.stdout.decode().split("\0") if name]
    return [path for path in files if path.is_file() and path != Path(__file__)]


@pytest.mark.parametrize("pattern", [INDEX_HOST, MACHINE_PATH], ids=["package index", "path of one machine"])
def test_no_file_names_a_place_of_its_own(pattern: re.Pattern[bytes], tracked: list[Path]) -> None:
    assert [str(path) for path in tracked if pattern.search(path.read_bytes())] == []


def test_nothing_built_is_committed(tracked: list[Path]) -> None:
    assert [str(path) for path in tracked if path.suffix in {".so", ".o", ".pyc", ".duckdb", ".parquet"}] == []


def test_every_version_is_pinned_by_name_and_number(repository: Path) -> None:
    lines = (repository / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [line for line in pins if not PIN.match(line)] == []


def test_the_pins_say_how_they_are_refreshed(repository: Path) -> None:
    assert "make constraints" in (repository / "constraints.txt").read_text(encoding="utf-8")


def test_the_changelog_has_a_place_for_what_is_unreleased(repository: Path) -> None:
    assert "\n## [Unreleased]\n" in (repository / "CHANGELOG.md").read_text(encoding="utf-8")
