"""The answer for people at a terminal. Whatever a node's names hold is shown as text and steers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collector.doctor.check import Finding
    from collector.doctor.examine import Answer

WIDTH_WITHOUT_TERMINAL: Final = 120
MARKS: Final = {True: ("ok", "green"), False: ("no", "bold red"), None: ("--", "dim")}
WARNING: Final = ("!!", "yellow")
"""The mark of what is missing, and the agent works without."""


def render(answer: Answer) -> RenderableType:
    """Draw the table of what was found, and what follows from it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, ratio in (("", None), ("check", None), ("device", None), ("found", 3), ("what to do", 2)):
        table.add_column(head, ratio=ratio, overflow="fold")
    before = ""
    for line in answer.lines:
        finding = line.finding
        mark, style = WARNING if finding.ok is False and not finding.needed else MARKS[finding.ok]
        table.add_row(
            Text(mark, style),
            Text("" if line.name == before else line.name),
            plain(finding.device or ""),
            _told(finding),
            plain(finding.fix),
        )
        before = line.name
    return Group(table, Text(), _verdict(answer))


def show(answer: Answer) -> None:
    """Print to stdout; where that is no terminal, wide enough for the table."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    console.print(render(answer))


def plain(text: str) -> Text:
    """Give text in which every character that would steer a terminal is replaced."""
    return Text("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))


def _told(finding: Finding) -> Text:
    told = plain(finding.found)
    if finding.reason:
        told.append("\n")
        told.append_text(plain(finding.reason))
    return told


def _verdict(answer: Answer) -> Text:
    if not answer.ok:
        needed = [line for line in answer.lines if line.finding.needed and not line.finding.ok]
        names = ", ".join(dict.fromkeys(line.name for line in needed))
        return Text(f"The agent would not work on {answer.node}: see {names}.", "bold red")
    rest = {0: "Nothing is missing.", 1: "One thing is missing."}.get(
        answer.missing, f"{answer.missing} things are missing."
    )
    verdict = Text("The agent works on ", "bold green")
    verdict.append_text(plain(answer.node))
    verdict.append(f". {rest}")
    return verdict
