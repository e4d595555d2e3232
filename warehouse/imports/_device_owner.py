"""Whose the measurements of a device are, where a person names the job (``--job``) or a series does."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.contract.model import Allocation, Record
from warehouse.importer import ImportOptions, PastAttempt
from warehouse.imports._values import BadRowError, cluster_name

START_SLACK_SECONDS = 120.0
"""A logger of a job starts with it; clocks of nodes and of accounting differ by seconds."""


def attempt_at(known: Sequence[PastAttempt], at: float) -> PastAttempt | None:
    """Give the attempt that ran at an instant, the last one where two did."""
    fitting = [
        past
        for past in known
        if past.start_at is not None
        and past.start_at - START_SLACK_SECONDS <= at
        and (past.end_at is None or at < past.end_at + START_SLACK_SECONDS)
    ]
    return max(fitting, key=lambda past: (past.start_at or 0.0, past.attempt_key), default=None)


class JobOfDevices:
    """Gives the attempts of the job that a person named, and says once of each device that the attempt holds it."""

    def __init__(self, options: ImportOptions, source: str) -> None:
        """Ask the store for the job's attempts; without a named job nothing is anybody's."""
        self._job = options.job
        self._source = source
        self._cluster = cluster_name(options.cluster)
        self._known = options.past_attempts(self._cluster, [options.job]) if options.job else ()
        self._told: set[tuple[str, str]] = set()

    def of(self, device_uuid: str, at: float) -> tuple[str | None, tuple[Record, ...]]:
        """Give the attempt that held a device at an instant, and the rows that say so, the first time.

        Raises:
            BadRowError: the store knows no attempt of the named job at that time.

        """
        if self._job is None:
            return None, ()
        attempt = attempt_at(self._known, at)
        if attempt is None or attempt.start_at is None:
            detail = f"{self._cluster}/{self._job}: {len(self._known)} attempts, none at that time"
            raise BadRowError("job not in the store", f"{detail}; import the accounting first")
        if (attempt.attempt_key, device_uuid) in self._told:
            return attempt.attempt_key, ()
        self._told.add((attempt.attempt_key, device_uuid))
        held = Allocation(
            allocation_key=f"{attempt.attempt_key}:{device_uuid}",
            attempt_key=attempt.attempt_key,
            gpu_count=1.0,
            start_at=attempt.start_at,
            end_at=attempt.end_at,
            source=self._source,
            certainty="log",
            device_uuid=device_uuid,
        )
        return attempt.attempt_key, (held,)

    def last_attempt(self) -> str | None:
        """Give the last attempt of the named job; None where no job is named, or the store does not know it."""
        started = [past for past in self._known if past.start_at is not None]
        return max(started, key=lambda past: past.start_at or 0.0).attempt_key if started else None
