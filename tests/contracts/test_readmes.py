"""Each room says at its door what lives there; what a page points at exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOMS = ("analysis", "collector", "dashboards", "warehouse")
CODE = ("*.py", "*.c", "*.h", "*.cu")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def _folders_with_code(repository: Path) -> list[Path]:
    files = [path for room in ROOMS for pattern in CODE for path in (repository / room).rglob(pattern)]
    return sorted({path.parent for path in files})


def test_each_folder_with_code_has_a_readme(repository: Path) -> None:
    missing = [str(folder) for folder in _folders_with_code(repository) if not (folder / "README.md").is_file()]
    assert missing == []


def test_each_readme_says_what_its_folder_may_import(repository: Path) -> None:
    rooms = [repository / room / "README.md" for room in ROOMS]
    assert [str(readme) for readme in rooms if "import" not in readme.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("folder", ["tests", "docs", "docs/decisions", "deploy"])
def test_folders_beside_the_rooms_have_a_readme(folder: str, repository: Path) -> None:
    assert (repository / folder / "README.md").is_file()


def test_what_a_page_links_to_exists(repository: Path) -> None:
    pages = [repository / "README.md", repository / "CHANGELOG.md"]
    pages += [page for folder in (*ROOMS, "docs", "tests", "deploy") for page in (repository / folder).rglob("*.md")]
    dead = [
        f"{page}: {target}"
        for page in pages
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert dead == []
