"""Steps of training as traced processes count them, added up for the exporter: of the node, and of each workload."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from warehouse.contract.model import ProcessSample

MOST_REMEMBERED: Final = 4096
"""Processes, and workloads, whose count is kept; the longest unseen are forgotten first."""


class StepsSeen:
    """Adds up what each process's own counter gained. Written by the agent's thread, read by any other."""

    def __init__(self) -> None:
        """Begin at nothing: what a process had counted before it was first seen is added then."""
        self.total = 0
        self._guard = threading.Lock()
        self._counted: OrderedDict[str, int] = OrderedDict()
        self._of_workload: OrderedDict[str, int] = OrderedDict()

    def take(self, records: Iterable[object]) -> None:
        """Take what was told; a process that tells of several devices counts once."""
        told = [record for record in records if isinstance(record, ProcessSample) and record.steps_total is not None]
        with self._guard:
            for record in told:
                key = record.process_key or f"{record.node}/{record.pid}"
                gained = max(0, (record.steps_total or 0) - self._counted.get(key, 0))
                _add(self._counted, key, gained)
                self.total += gained
                if record.attempt_key is not None:
                    _add(self._of_workload, record.attempt_key, gained)

    def of_workloads(self) -> dict[str, int]:
        """Give the steps by attempt, those seen last at the end."""
        with self._guard:
            return dict(self._of_workload)


def _add(counts: OrderedDict[str, int], key: str, gained: int) -> None:
    counts[key] = counts.pop(key, 0) + gained
    while len(counts) > MOST_REMEMBERED:
        counts.popitem(last=False)
