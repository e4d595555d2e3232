"""The same answers as tables of pandas, for notebooks and scripts.

Every table is the rows of one document that the command line prints too (``docs/schemas/``), nothing is computed
anew: nested figures stand in columns of their own (``gpu_seconds.held_idle`` is ``held_idle_gpu_seconds``), instants
are in UTC, and what is not known is NaN, NaT or None, never 0. The rest of the document, such as the rung and the
window, lies in ``frame.attrs``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import pandas as pd

from dashboards.document import Row, part, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Self, Unpack

    from warehouse.client import Client, Document

PAGE_ROWS = 10_000
"""Rows of ``jobs`` asked for at a time: the most that the question gives."""


class Window(TypedDict, total=False):
    """What every question may be narrowed by; see ``Connection``."""

    since: str
    until: str
    week: str
    zone: str
    rung: str
    pseudonyms: str


@dataclass(frozen=True, slots=True)
class Recommended:
    """What is advised, largest likely saving first, and what is not, with the reason and what would be needed."""

    recommendations: pd.DataFrame
    refusals: pd.DataFrame


@dataclass(frozen=True, slots=True)
class Job:
    """One job: what is known of it, its attempts, its readings over time, findings, and the whole document.

    ``ladder`` has one row for each attempt and rung: ``value``, ``source``, ``coverage_ratio``. ``timeline`` has one
    row for each instant of which something is known; it is empty for a job without samples.
    """

    identity: Row
    attempts: pd.DataFrame
    ladder: pd.DataFrame
    timeline: pd.DataFrame
    findings: pd.DataFrame
    document: Document


class Connection:
    """The data of a directory or a server, asked as the command line asks.

    The window of every question is ``since`` and ``until`` (a date or an instant, ISO 8601; half-open) or ``week``
    (such as ``"2026-W44"``); without one it is everything there is. ``rung`` chooses what counts as busy, ``zone``
    the IANA zone of weeks and of instants without an offset; ``pseudonyms="yes"`` shows pseudonyms for people, accounts
    and directories, to pass the answer on. All questions raise ``BadUseError`` for a value that
    cannot be used, ``NotFoundError`` for a thing that is not there, and ``UnreachableError``, ``RefusedError`` or
    ``StoreError`` when the data cannot be reached.
    """

    def __init__(self, client: Client) -> None:
        """Take over a client."""
        self.client = client

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go."""
        self.close()

    def close(self) -> None:
        """Let go of the store or the connection: until then no other process can open the directory."""
        self.client.close()

    def ask(self, question: str, **parameters: str | None) -> Document:
        """Give the whole document that answers a question, as ``--json`` prints it."""
        return self.client.ask(question, {name: value for name, value in parameters.items() if value is not None})

    def waste(self, by: str | None = None, **window: Unpack[Window]) -> pd.DataFrame:
        """Where the allocated GPU time went, one row for each ``by``, most held idle first; without it one row.

        ``by`` is user, account, team, project, cost_centre, gpu_model, partition, week or job. GPU-seconds.
        """
        document = self.ask("waste", by=by, **window)
        return _frame(rows(document, "rows") if by else [document], document)

    def families(self, **window: Unpack[Window]) -> pd.DataFrame:
        """Jobs that are the same work repeated, with why they belong together and what varies. GPU-seconds."""
        document = self.ask("families", **window)
        return _frame(rows(document, "families"), document)

    def recommend(self, **window: Unpack[Window]) -> Recommended:
        """Which change would have given GPU time back, with a range; and what is not estimable, and why."""
        document = self.ask("recommend", **window)
        return Recommended(
            _frame(rows(document, "recommendations"), document), _frame(rows(document, "refusals"), document)
        )

    def jobs(self, **window: Unpack[Window]) -> pd.DataFrame:
        """All jobs, most held idle first. GPU-seconds."""
        found: list[Row] = []
        while True:
            document = self.ask("jobs", limit=str(PAGE_ROWS), offset=str(len(found)), **window)
            more = rows(document, "jobs")
            found += more
            if len(more) < PAGE_ROWS:
                return _frame(found, document)

    def job(self, id: str, **window: Unpack[Window]) -> Job:  # noqa: A002 - as the command and the page say
        """Tell what one job did with its GPUs; ``id`` is a job key, or the scheduler's id where it is unique."""
        document = self.ask("job", id=id, **window)
        attempts = rows(document, "attempts")
        return Job(
            identity=part(document, "job"),
            attempts=_frame([_without(attempt, ("ladder", "tracer")) for attempt in attempts], document),
            ladder=_frame(_rungs(attempts), {}),
            timeline=_frame(rows(part(document, "timeline"), "points"), {}),
            findings=_frame(rows(document, "findings"), {}),
            document=document,
        )

    def fleet(self, **window: Unpack[Window]) -> pd.DataFrame:
        """The account of all GPU time over time: capacity, what was held of it, and how it was used. GPU-seconds."""
        document = self.ask("fleet", **window)
        return _frame(rows(document, "series"), document)


def _without(row: Row, names: Iterable[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _rungs(attempts: Iterable[Row]) -> list[Row]:
    return [
        {"attempt": attempt.get("attempt"), "rung": rung, **part(part(attempt, "ladder"), rung)}
        for attempt in attempts
        for rung in part(attempt, "ladder")
    ]


def _frame(found: Iterable[Row], document: Row) -> pd.DataFrame:
    """Make a table of rows; what the document says beside its rows and tables becomes ``attrs``."""
    frame = pd.DataFrame([dict(_columns(row)) for row in found])
    for name in frame.columns:
        if str(name).endswith("_at") or name == "at":
            frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
        elif str(name).endswith(("_seconds", "_ratio", "_bytes", "_low", "_likely", "_high")):
            frame[name] = frame[name].astype("float64")
    frame.attrs = {name: value for name, value in document.items() if not isinstance(value, list)}
    return frame


def _columns(row: Row) -> Iterator[tuple[str, Any]]:
    """Give the columns of one row; a part of the GPU-seconds is named by its part, others by their whole."""
    for name, value in row.items():
        if not isinstance(value, dict):
            yield name, value
        elif name == "gpu_seconds":
            yield from ((f"{inner}_gpu_seconds", figure) for inner, figure in value.items())
        else:
            yield from ((f"{name}_{inner}", figure) for inner, figure in _columns(value))
