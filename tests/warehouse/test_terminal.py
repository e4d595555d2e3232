"""What commands print for people: nothing that somebody may copy is cut, in a terminal of 80 columns or a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.table import Table

import trueload_cli
from warehouse import terminal
from warehouse.store import open_store

LONG = "/srv/" + 60 * "abc" + "/run.sh"


def said(*arguments: str, columns: int = 80) -> str:
    result = CliRunner().invoke(trueload_cli.cli, arguments, env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.output


def test_a_table_in_a_pipe_is_as_wide_as_it_must_be(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("one", "two")
    table.add_row(LONG, "short")
    terminal.show(table)
    assert LONG in capsys.readouterr().out


def test_a_table_in_a_terminal_breaks_words_and_cuts_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    table = Table("one", "two")
    table.add_row(LONG, "short")
    terminal.show(table)
    out = capsys.readouterr().out
    assert LONG not in out
    assert "…" not in out
    assert out.count("abc") >= 50


def test_the_id_of_a_token_is_listed_whole(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "alice.token"
    open_store(data, create=True).close()
    new = said("token", "new", "--role", "user", "--name", "alice", "--file", str(file), "--data", str(data))
    assert new.split(":")[0] in said("token", "list", "--data", str(data))


def test_every_setting_stands_on_a_line_of_its_own_with_its_reason_below() -> None:
    lines = said("settings", "--show").splitlines()
    place = lines.index("agent.cadence_seconds = 10.0  (seconds; default)")
    assert lines[place + 1].startswith("    Shows pauses")
    assert max(len(line) for line in lines if line.startswith("    ")) <= 80
