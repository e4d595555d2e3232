"""What a report shows of a week, in words and drawings: the templates only lay it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a report shows: rows per table, and findings; and where the pages are, for links (empty: none)."""

    rows: int
    findings: int
    pages_url: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One part of the account: its GPU-hours, its share, the change against the week before, and what it means."""

    word: str
    colour: str
    hours: str
    share: str
    change: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One recommendation in words, with its range drawn; ``address`` leads to its page, where one may say no to it."""

    title: str
    saving: str
    cost: str
    confidence: str
    action: str
    evidence: Sequence[str]
    risks: Sequence[str]
    identity: str
    drawing: Markup
    address: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: its name, its cells, and a small drawing beside them (empty: none)."""

    name: str
    cells: Sequence[str]
    drawing: Markup


@dataclass(frozen=True, slots=True)
class Section:
    """One table: title, headings (of the name and of the cells), lines, how many were left out, and a note."""

    title: str
    headings: Sequence[str]
    lines: Sequence[Line]
    left_out: int = 0
    note: str = ""

    @property
    def drawn(self) -> bool:
        """Say whether any line has a drawing."""
        return any(line.drawing for line in self.lines)


@dataclass(frozen=True, slots=True)
class Digest:
    """The whole report."""

    week: str
    period: str
    zone: str
    audience: str
    title: str
    basis: str
    headline: str
    went_well: str
    figures: Sequence[Figure]
    bar: Markup
    findings: Sequence[Finding]
    findings_left_out: int
    groups: Sequence[Section]
    families: Section | None
    trend: Markup
    trend_words: Sequence[tuple[str, str]]
    trend_table: Section | None
    models: Section | None
    traced: Section | None
    coverage: Sequence[tuple[str, str]]
    outcomes: Sequence[str]
    address: str
    definitions: Sequence[tuple[str, str]]
