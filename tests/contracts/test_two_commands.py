"""``make run`` and ``make test`` say in one line what a bare machine lacks, and make nothing before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if shutil.which("make") is None:
    pytest.skip("needs Debian package make", allow_module_level=True)

pytestmark = pytest.mark.bare

FOREIGN_PYTHON = """#!/bin/sh
case "$*" in
    -V) echo "Python {version}" ;;
    *{lacks}*) exit {status} ;;
    *) exec "{python}" "$@" ;;
esac
"""


@pytest.fixture
def tree(repository: Path, tmp_path: Path) -> Path:
    """Give a folder with what make reads, and no environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(repository / name, tmp_path)
    return tmp_path


def _make(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "MFLAGS"}
    return subprocess.run(["make", *arguments], cwd=tree, env=quiet, capture_output=True, text=True, check=False)


def _python_without(tree: Path, lacks: str, status: int, version: str) -> str:
    script = tree / "some-python"
    script.write_text(FOREIGN_PYTHON.format(version=version, lacks=lacks, status=status, python=sys.executable))
    script.chmod(0o755)
    return f"PYTHON={script}"


def _only_line(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode != 0
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    return line


@pytest.mark.parametrize("target", ["run", "test"])
def test_a_machine_without_python_is_told_what_to_install(target: str, tree: Path) -> None:
    line = _only_line(_make(tree, target, "PYTHON=no-such-python"))
    assert "apt install python3 python3-venv" in line
    assert not (tree / ".venv").exists()


@pytest.mark.parametrize("target", ["run", "test"])
def test_a_python_that_is_too_old_is_named(target: str, tree: Path) -> None:
    line = _only_line(_make(tree, target, _python_without(tree, "version_info", 0, "3.9.2")))
    assert "needs Python 3.11 or newer, and this is Python 3.9.2" in line
    assert not (tree / ".venv").exists()


@pytest.mark.parametrize("target", ["run", "test"])
def test_a_python_without_venv_is_told_what_to_install(target: str, tree: Path) -> None:
    line = _only_line(_make(tree, target, _python_without(tree, "ensurepip", 1, "3.11.2")))
    assert "apt install python3-venv" in line
    assert not (tree / ".venv").exists()


def test_a_finished_install_is_not_repeated(tree: Path) -> None:
    (tree / ".venv").mkdir()
    for stamp in (".made", ".build-tools", ".ready-to-run"):
        (tree / ".venv" / stamp).touch()
    ran = _make(tree, "--dry-run", "run")
    assert ran.stdout.strip() == ".venv/bin/trueload up --demo --data .trueload/demo"


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_what_is_installed_installs_again(changed: str, tree: Path) -> None:
    (tree / ".venv").mkdir()
    for stamp in (".made", ".build-tools", ".ready-to-run"):
        (tree / ".venv" / stamp).touch()
    newer = (tree / ".venv" / ".ready-to-run").stat().st_mtime + 10
    os.utime(tree / changed, (newer, newer))
    assert "pip" in _make(tree, "--dry-run", "run").stdout


def test_help_names_both_commands(tree: Path) -> None:
    lines = _make(tree).stdout
    assert "make run" in lines
    assert "make test" in lines
