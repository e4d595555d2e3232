"""The job source kind: one file in ``collector/jobs/`` = one place that knows which job holds which device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from warehouse.contract.settings import AnySetting, Settings


@dataclass(frozen=True, slots=True)
class Holding:
    """A device held by an attempt within ``[start_at, end_at)``; ``end_at`` is None while it is held.

    ``pids`` are the attempt's processes on this node as the source knows them, None where it does not.
    """

    attempt_key: str
    device_uuid: str
    start_at: float
    end_at: float | None
    share_ratio: float = 1.0
    pids: frozenset[int] | None = None


class JobReader(Protocol):
    """An open job source."""

    def holdings(self) -> Sequence[Holding]:
        """Give what is held now, and what was given back within the last minutes.

        Raises:
            TrueloadError: the place cannot be asked now; what was known before stays valid.

        """
        ...


@dataclass(frozen=True, slots=True)
class JobSource:
    """One place that knows jobs."""

    name: str
    description: str
    open: Callable[[Settings], JobReader]
    settings: tuple[AnySetting, ...] = ()
