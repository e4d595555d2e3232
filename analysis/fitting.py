"""A table that stays readable in a narrow terminal: it leaves out columns, and says which, rather than cut them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich import box
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

SUBJECT_CHARACTERS: Final = 28
"""So much of a row's name stands on one line where room is short: a job's key, or a login with some of a name."""
WORD_CHARACTERS: Final = 11
"""So much of other words does: a state, a node; an instant breaks behind its date."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """Rows below headings, of which some may be left out, ``spared[0]`` first; the first ``words`` columns are text."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    spared: Sequence[str]
    words: int = 1
    total: Sequence[str | Text] | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw all columns where they fit; else break headings and words, then leave out one column after the other."""
        without_bound = options.update(width=sum(map(len, self.headings)) + 200 * len(self.headings))
        spared = [heading for heading in self.spared if heading in self.headings]
        table, left_out = self._table(()), spared[:0]
        for count in range(len(spared) + 1):
            if Measurement.get(console, without_bound, table).maximum <= options.max_width:
                break
            left_out = spared[:count]
            table = self._table(left_out, narrow=True)
        yield table
        if left_out:
            names = ", ".join(left_out)
            yield Text(f"Left out for want of room: {names}; a wider terminal or --json shows them.", style="dim")

    def _table(self, left_out: Sequence[str], *, narrow: bool = False) -> Table:
        table = Table(title=self.title, title_justify="left")
        if narrow:
            table.box, table.pad_edge, table.padding = box.SIMPLE_HEAD, False, (0, 1, 0, 0)
        kept = [place for place, heading in enumerate(self.headings) if heading not in left_out]
        for place in kept:
            is_word = place < self.words
            longest = SUBJECT_CHARACTERS if place == 0 else WORD_CHARACTERS
            table.add_column(
                self.headings[place].replace(" ", "\n") if narrow else self.headings[place],
                justify="left" if is_word else "right",
                no_wrap=not is_word,
                overflow="fold",
                max_width=longest if is_word and narrow else None,
            )
        for row in self.rows:
            table.add_row(*(row[place] for place in kept))
        if self.total is not None:
            table.add_section()
            table.add_row(*(self.total[place] for place in kept))
        return table
