"""The importer kind: one file in ``warehouse/imports/`` = one foreign format.

An importer turns lines into records and says of every record of the file whether it could be read. It knows no
database: identity, "seen before" and storing are the loader's (``warehouse.loading``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from warehouse.contract.model import Record


@dataclass(frozen=True, slots=True)
class Imported:
    """One record of the file that could be read: its key and content, and the rows that it becomes.

    ``record_key`` names the thing the record is about (a later state of it has the same key); ``content`` is all
    that the importer used of it, so that an identical record is recognised and changes nothing.
    """

    line: int
    record_key: str
    content: str
    rows: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """One record of the file that could not be read, and why. ``reason`` is a short fixed text, ``detail`` free."""

    line: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """What is known of an earlier start of a job, to tell a requeue from an id that came back."""

    job_key: str
    attempt_key: str
    state: str
    submit_at: float | None
    start_at: float | None
    end_at: float | None


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the person said: the cluster's name, and the zone of times without an offset."""

    cluster: str
    zone: str
    past_attempts: Callable[[str, str], tuple[PastAttempt, ...]] = field(default=lambda _cluster, _job: ())
    """Given cluster and scheduler job id, the attempts that the store already holds."""


@dataclass(frozen=True, slots=True)
class Importer:
    """One foreign format. ``read`` streams a file; it raises BadInputError when the file is not of this format."""

    name: str
    description: str
    example: str
    read: Callable[[Path, ImportOptions], Iterator[Imported | Rejected]]
