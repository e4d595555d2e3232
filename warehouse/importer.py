"""The importer kind: one file in ``warehouse/imports/`` = one foreign format.

An importer turns lines into records and says of every record of the file whether it could be read. It knows no
database: identity, "seen before" and storing are the loader's (``warehouse.loading``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from warehouse.contract.settings import Settings
from warehouse.settings import IMPORT_MAX_FIELD_CHARACTERS, IMPORT_REQUEUE_WINDOW_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from warehouse.contract.model import Record


@dataclass(frozen=True, slots=True)
class Altered:
    """One value of a kept record that was left out or shortened: its column, a short fixed reason, what it was."""

    column: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of a device by a source over one cadence. ``metrics`` is keyed by column; what is not known lacks."""

    cluster: str
    node: str
    device_uuid: str
    sampled_at: float
    cadence_seconds: float
    source: str
    metrics: Mapping[str, float]
    attempt_key: str | None = None
    share_ratio: float | None = None
    attribution: str | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """One record of the file that could be read: its key and content, and the rows that it becomes.

    ``record_key`` names the thing the record is about (a later state of it has the same key); ``content`` is all
    that the importer used of it, so that an identical record is recognised and changes nothing. ``altered`` names
    values of the record that did not make it into the rows as they stood. ``samples`` are stored where none of the
    same device, source, instant and owner is there yet: what was measured does not change. ``count`` says how many
    records of the file became this one (lines of a page of metrics become one reading of a device).
    """

    line: int
    record_key: str
    content: str
    rows: tuple[Record, ...]
    altered: tuple[Altered, ...] = ()
    samples: tuple[Sample, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class ImportedTables:
    """Many records at once, by column, for formats in which every record is alike: about a microsecond each.

    ``records`` has a ``record_key`` and a ``content_hash`` (63 bits) for each record; ``tables`` have the store's types
    (``warehouse.arrow.COLUMN_TYPES``), and row N of each belongs to record N. What ``Imported`` says of keys holds.
    """

    records: pa.Table
    tables: Mapping[str, pa.Table]


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


KnownRecord: TypeAlias = Callable[[str, str], bool]
"""Given a record's key and content, whether the store holds it already."""

PastAttempts: TypeAlias = Callable[[str, Sequence[str]], tuple[PastAttempt, ...]]
"""Given a cluster and some of its scheduler's job ids, the attempts that the store already holds."""


def _nothing_past(_cluster: str, _scheduler_job_ids: Sequence[str]) -> tuple[PastAttempt, ...]:
    return ()


def _nothing_known(_record_key: str, _content: str) -> bool:
    return False


def _ignore_progress(_bytes: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the person said: the cluster's name where the file has none, and the zone of times without an offset.

    ``consumed`` is told how many bytes of the file have been read so far. Texts longer than ``max_field_characters``
    are shortened, and said to be. A start submitted within ``requeue_window_seconds`` after a lost one goes on with it.
    ``node`` is the node of measurements that do not name one, ``job`` the scheduler's id of the job they belong to.
    Measurements of servers are read from ``since_at`` to ``until_at``.
    """

    cluster: str
    zone: str
    past_attempts: PastAttempts = _nothing_past
    consumed: Callable[[int], None] = _ignore_progress
    max_field_characters: int = IMPORT_MAX_FIELD_CHARACTERS.default
    requeue_window_seconds: float = IMPORT_REQUEUE_WINDOW_SECONDS.default
    node: str | None = None
    job: str | None = None
    since_at: float | None = None
    until_at: float | None = None
    is_known: KnownRecord = _nothing_known
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True)
class Importer:
    """One foreign format. ``read`` streams a file; it raises BadInputError when the file is not of this format.

    ``read_url`` does the same with a server at an ``http://`` or ``https://`` address; None: the format has no servers.
    ``gives`` names in plain words what the format can tell: which rungs of the ladder, whose, over which time.
    """

    name: str
    description: str
    example: str
    read: Callable[[Path, ImportOptions], Iterator[Imported | ImportedTables | Rejected]]
    read_url: Callable[[str, ImportOptions], Iterator[Imported | ImportedTables | Rejected]] | None = None
    gives: str = "nothing"
