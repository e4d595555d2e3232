"""The job source kind: one file in ``collector/jobs/`` = one place that knows which job holds which device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from warehouse.contract.errors import UnreachableError

if TYPE_CHECKING:
    import threading

    from collector.cgroups import Place
    from warehouse.contract.model import Record
    from warehouse.contract.settings import AnySetting, Settings


@dataclass(frozen=True, slots=True)
class Holding:
    """A device held by an attempt within ``[start_at, end_at)``; ``end_at`` is None while it is held.

    ``device_uuid`` may be any spelling that ``collector.device_ids`` reads; None where something is held and nobody
    can say which device. ``is_shared`` says that others may hold the same device at the same time. ``pids`` are the
    attempt's processes on this node as the source knows them, None where it does not. ``source`` and ``certainty`` go
    into the ``allocation`` that the agent tells the server; a source that is empty has it told by somebody else.
    """

    attempt_key: str
    device_uuid: str | None
    start_at: float
    end_at: float | None
    share_ratio: float = 1.0
    pids: frozenset[int] | None = None
    is_shared: bool = False
    source: str = ""
    certainty: str = "scheduler"
    said: str = ""
    """How the source names what is held, which tells two unknown devices of one attempt apart."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The attempt of a process, by which witness: ``cgroup`` (the kernel's word), ``environ`` (its own)."""

    attempt_key: str
    source: str


@dataclass(frozen=True, slots=True)
class Witness:
    """What is known of a process: its control groups, the environment it was started with, its user."""

    pid: int
    place: Place
    environ: Mapping[str, str]
    user_id: int | None


class JobReader(Protocol):
    """An open job source."""

    def holdings(self) -> Sequence[Holding]:
        """Give what is held now, and what was given back within the last minutes.

        Raises:
            TrueloadError: the place cannot be asked now; what was known before stays valid.

        """
        ...


@runtime_checkable
class NamesProcesses(JobReader, Protocol):
    """An open job source that can also say whose a process is."""

    knows_allocations: bool
    """Whether a device that it does not mention is held by nobody."""

    def claim(self, witness: Witness) -> Claim | None:
        """Say whose a process is; None when it belongs to no job, or nobody can tell."""
        ...


class TooMuchError(UnreachableError):
    """What was asked for at once took too long: a shorter window asks less."""


class History(Protocol):
    """What a scheduler remembers of jobs, asked for by time: for the one collector of a cluster, not for nodes."""

    format: str
    """The importer of the server that reads its text."""

    cluster: str
    """Whose place in time it is."""

    def pieces(self, since_at: float, until_at: float) -> Iterator[tuple[bytes, int]]:
        """Give what is known of ``[since_at, until_at)`` as gzip'd texts, each readable by itself, with its rows.

        Raises:
            UnreachableError: the scheduler cannot be asked now; nothing, or only a part, was given.
            TooMuchError: it took too long.
            BadUseError: it never can be, as things are set up.

        """
        ...


class Follower(Protocol):
    """What a scheduler tells of jobs as it happens: for the one collector of a cluster."""

    cluster: str

    def follow(self, tell: Callable[[list[Record]], None], stop: threading.Event) -> None:
        """Tell of everything that is there, then of each change, until told to stop.

        Raises:
            UnreachableError: the scheduler does not answer, or not any more; called again, it begins anew.
            BadUseError: it never can be asked, as things are set up.

        """
        ...

    def look(self, tell: Callable[[list[Record]], None]) -> None:
        """Tell of everything that is there. Raises as ``follow``."""
        ...


@dataclass(frozen=True, slots=True)
class JobSource:
    """One place that knows jobs: on a node (``open``), and where it can, those of a whole cluster.

    Of a cluster it tells what was (``history``), or what is and what becomes of it (``follower``).
    """

    name: str
    description: str
    open: Callable[[Settings], JobReader]
    settings: tuple[AnySetting, ...] = ()
    history: Callable[[Settings], History] | None = None
    follower: Callable[[Settings], Follower] | None = None
