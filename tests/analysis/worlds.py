"""Small stores filled by hand: what the analyses read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from analysis import pipeline
from warehouse import queries
from warehouse.contract import model, rollups, wire
from warehouse.contract.settings import Settings
from warehouse.store import Store

T0 = 1_793_577_600.0
"""2026-11-02T00:00:00Z, a Monday."""

TABLES = (*model.RECORDS, "device_sample", "process_sample", *rollups.COLUMNS, "rolled_hour", "rollup_due")


@dataclass
class World:
    """A store whose content a test sets; ``ask`` asks the pipeline, ``tables`` reads."""

    store: Store
    settings: Settings = field(default_factory=Settings)

    def fill(self, records: Iterable[Any], samples: Sequence[Mapping[str, Any]] = ()) -> World:
        """Put these records and samples in the place of what was there."""
        with self.store.transaction() as transaction:
            for name in TABLES:
                transaction.execute(f'DELETE FROM "{name}"')
            transaction.write(wire.from_records(records))
            if samples:
                names = {name for sample in samples for name in sample}
                columns = {name: [sample.get(name) for sample in samples] for name in sorted(names)}
                transaction.write({"device_sample": wire.Table(len(samples), columns)})
        return self

    def ask(self, question: str, **parameters: str) -> dict[str, Any]:
        """Give the document that answers a question."""
        return pipeline.ANSWERS[question](self.store, self.settings, parameters)

    def read(self) -> AbstractContextManager[queries.Tables]:
        """Give the tables, as a context manager."""
        return self.store.snapshot()


def job(number: int = 1, **words: Any) -> model.Job:
    """Make a job ``c/NUMBER#0``."""
    return model.Job(
        **({"job_key": f"c/{number}#0", "cluster": "c", "scheduler_job_id": str(number), "source": "t"} | words)
    )


def attempt(number: int = 1, start: float = 0.0, end: float | None = 3600.0, **words: Any) -> model.Attempt:
    """Make the only attempt of a job, in seconds after T0."""
    state = words.pop("state", model.AttemptState.COMPLETED)
    return model.Attempt(
        f"c/{number}#0:1", f"c/{number}#0", state, None, T0 + start, None if end is None else T0 + end, "t", **words
    )


def allocation(
    number: int = 1, device: str | None = "GPU-0", start: float = 0.0, end: float | None = 3600.0, **words: Any
) -> model.Allocation:
    """Make an allocation of that attempt, in seconds after T0."""
    fields: dict[str, Any] = {"gpu_count": 1.0, "source": "t", "device_uuid": device} | words
    key = f"c/{number}#0:1:{device}:{start}"
    return model.Allocation(
        allocation_key=key,
        attempt_key=f"c/{number}#0:1",
        start_at=T0 + start,
        end_at=None if end is None else T0 + end,
        **fields,
    )


def sample(
    at: float, device: str = "GPU-0", owner: int | None = 1, cadence: float = 60.0, **metrics: Any
) -> dict[str, Any]:
    """Make one sample, in seconds after T0."""
    return {
        "cluster": "c",
        "node": "n0",
        "device_uuid": device,
        "sampled_at": T0 + at,
        "cadence_seconds": cadence,
        "source": "nvml",
        "attempt_key": None if owner is None else f"c/{owner}#0:1",
        **metrics,
    }
