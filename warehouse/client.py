"""How everybody outside the server process reaches the data: the same answers, near or far.

One process owns the database file. A command that finds the data directory owned by a server asks there, else it
opens the store itself; the person at the keyboard sees no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.contract.settings import AnySetting, Settings
    from warehouse.contract.wire import Table
    from warehouse.importer import PastAttempt
    from warehouse.store import Store

Document: TypeAlias = dict[str, object]
Parameters: TypeAlias = Mapping[str, str]
Answer: TypeAlias = "Callable[[Store, Settings, Parameters], Document]"
"""A question that the data can be asked: ``waste``, ``families``, ``recommend``, ``job``, ``weekly`` and so on."""


@dataclass(frozen=True, slots=True)
class RecordId:
    """What a foreign record is about, and a hash of its content."""

    record_key: str
    content_hash: int


class Client(Protocol):
    """What pages, commands and reports may do with the data."""

    def ask(self, question: str, parameters: Parameters) -> Document:
        """Give the document that answers a question.

        Raises:
            BadUseError: no such question, or a parameter that cannot be used.
            NotFoundError: the thing asked for is not there.
            UnreachableError, RefusedError, StoreError: the data cannot be reached.

        """
        ...

    def which_are_new(self, format_name: str, records: Sequence[RecordId]) -> list[bool]:
        """Say for each record of a foreign file whether its content was never loaded before."""
        ...

    def load(self, format_name: str, records: Sequence[RecordId], tables: Mapping[str, Table]) -> None:
        """Load the rows of new records and remember the records, all or nothing."""
        ...

    def past_attempts(self, cluster: str, scheduler_job_id: str) -> tuple[PastAttempt, ...]:
        """Give the attempts already known of a scheduler's job id, in order of start."""
        ...

    def close(self) -> None:
        """Let go of the store or the connection."""
        ...


@dataclass(frozen=True, slots=True)
class Composition:
    """What the front door hands to every command: how to reach the data, and the settings.

    ``open_client(data, create)`` raises StoreError when the directory holds no store and ``create`` is false.
    """

    open_client: Callable[[Path, bool], Client]
    settings: Callable[[Path | None], Settings]
    registry: Callable[[], tuple[AnySetting, ...]]
    answers: Callable[[], Mapping[str, Answer]]
