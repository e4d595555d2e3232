"""A scheduler that is followed as things happen: its records go into a spool, and from there to the server."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector import settings as names
from collector.accounting import LONGEST_WAIT_SECONDS, SOURCE, able
from collector.running import endpoint, open_spool
from collector.ship import Shipper
from warehouse.contract import wire
from warehouse.contract.errors import UnreachableError

if TYPE_CHECKING:
    import threading

    from collector.job_source import Follower
    from collector.spool import Spool
    from warehouse.contract.model import Record
    from warehouse.contract.settings import Settings

LOG = logging.getLogger("trueload.jobs")
FOLDER: Final = "jobs"
"""Below ``agent.spool_dir``: a node's agent on the same machine has its own."""

FIRST_WAIT_SECONDS: Final = 1.0
MOST_DOUBLINGS: Final = 20


def folder_of(settings: Settings) -> Path:
    """Give where what waits for the server lies."""
    return Path(settings[names.SPOOL_DIR]) / FOLDER


def open_follower(settings: Settings) -> Follower | None:
    """Open what the settings name, if it can be followed.

    Raises:
        BadUseError: there is no such source, or it cannot be asked as things are set up.

    """
    source = able(settings[SOURCE])
    return None if source.follower is None else source.follower(settings)


def run_follower(settings: Settings, follower: Follower, stop: threading.Event) -> int:
    """Follow until told to stop; what is away is waited for. Gives the number of records that were told.

    Raises:
        BadUseError: it can never work as it is set up.

    """
    with open_spool(settings, folder_of(settings), f"jobs:{follower.cluster}") as spool:
        shipper = Shipper(spool, endpoint(settings))
        shipper.start()
        told = _Telling(spool, shipper)
        failures, said = 0, ""
        try:
            while not stop.is_set():
                before = told.records
                try:
                    follower.follow(told.tell, stop)
                except UnreachableError as error:
                    failures = 1 if told.records > before else failures + 1
                    if str(error) != said:
                        LOG.warning("%s", error)
                        said = str(error)
                    longest = settings[LONGEST_WAIT_SECONDS]
                    wait = min(longest, FIRST_WAIT_SECONDS * 2.0 ** min(failures - 1, MOST_DOUBLINGS))
                    stop.wait(wait * (1 - random.random() / 4))  # noqa: S311 - so that two do not come back together
        finally:
            shipper.stop(settings[names.STOP_SECONDS])
        return told.records


def look_once(settings: Settings, follower: Follower) -> int:
    """Tell of everything that is there, and wait until the server has it; gives the number of records.

    Raises:
        UnreachableError: scheduler or server do not answer. What was read waits in the spool.

    """
    with open_spool(settings, folder_of(settings), f"jobs:{follower.cluster}") as spool:
        shipper = Shipper(spool, endpoint(settings))
        told = _Telling(spool, shipper)
        follower.look(told.tell)
        shipper.start()
        shipper.stop(settings[names.POST_TIMEOUT_SECONDS])
        if spool.waiting_count:
            raise UnreachableError(
                f"{settings[names.SERVER_URL]}: {spool.waiting_count} batches wait in {spool.folder} for the server; "
                "the next run sends them"
            )
        return told.records


class _Telling:
    """Puts records into the spool and wakes the shipper."""

    def __init__(self, spool: Spool, shipper: Shipper) -> None:
        self.records = 0
        self._spool = spool
        self._shipper = shipper

    def tell(self, records: list[Record]) -> None:
        if not records:
            return
        self._spool.put(wire.from_records(records))
        self.records += len(records)
        self._shipper.wake()
