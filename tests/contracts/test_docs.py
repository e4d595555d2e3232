"""Pages that are told from the code tell what the code says today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

import trueload
from docs import generate
from warehouse.contract.metrics import CATALOGUE


def test_the_generated_pages_are_up_to_date(repository: Path) -> None:
    # In a process of its own: click keeps the help option of a command as the first caller in a process made it.
    program = [sys.executable, "-m", "docs.generate", "--check"]
    result = subprocess.run(program, cwd=repository, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_check_names_a_page_that_is_out_of_date(tmp_path: Path) -> None:
    for name, write in generate.PAGES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(write(), encoding="utf-8")
    assert generate.stale(tmp_path) == []
    (tmp_path / "metrics.md").write_text("edited by hand", encoding="utf-8")
    assert generate.stale(tmp_path) == ["metrics.md"]


def test_each_command_says_what_it_does() -> None:
    silent = [name for name, text in generate.commands(trueload.cli, "trueload") if len(text.split("\n\n")) < 2]
    assert silent == []


def test_each_option_says_what_it_is_for() -> None:
    def walk(command: click.Command, context: click.Context) -> list[str]:
        silent = [
            f"{context.command_path} {option.opts[0]}"
            for option in command.params
            if isinstance(option, click.Option) and not option.hidden and not option.help
        ]
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                silent += walk(child, click.Context(child, info_name=name, parent=context))
        return silent

    assert walk(trueload.cli, click.Context(trueload.cli, info_name="trueload")) == []


def test_each_metric_stands_in_the_table(repository: Path) -> None:
    text = (repository / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert [metric.name for metric in CATALOGUE if f"`{metric.name}`" not in text] == []
