"""What tests of the warehouse share: a client without a database, and the real one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from warehouse.client import Client, Document, LocalClient, Parameters, RecordId
from warehouse.contract.model import RECORDS
from warehouse.contract.settings import Settings
from warehouse.contract.wire import Table
from warehouse.importer import ImportedTables, PastAttempt
from warehouse.ingest import SAMPLE_KEY, SAMPLES
from warehouse.store import open_store

Row = dict[str, Any]
KEYS = {name: kind.KEY for name, kind in RECORDS.items()} | {SAMPLES: SAMPLE_KEY}


@dataclass
class MemoryClient:
    """Keeps rows the way the store does: the last row of a key wins, an absent value keeps what was known."""

    rows: dict[str, dict[tuple[Any, ...], Row]] = field(default_factory=dict)
    ledger: set[tuple[str, str, int]] = field(default_factory=set)
    loads: list[int] = field(default_factory=list)

    def ask(self, question: str, parameters: Parameters) -> Document:
        raise NotImplementedError

    def which_are_new(self, format_name: str, records: Sequence[RecordId]) -> list[bool]:
        return [(format_name, record.record_key, record.content_hash) not in self.ledger for record in records]

    def load(self, format_name: str, records: Sequence[RecordId], tables: Mapping[str, Table]) -> None:
        self.loads.append(len(records))
        self.ledger |= {(format_name, record.record_key, record.content_hash) for record in records}
        for name, table in tables.items():
            kept = self.rows.setdefault(name, {})
            for number in range(table.rows):
                row = {
                    column: values[number] if isinstance(values, list) else values
                    for column, values in table.columns.items()
                }
                key = tuple(row[column] for column in KEYS[name])
                if name == SAMPLES and key in kept:
                    continue
                known = kept.get(key, {})
                kept[key] = {c: known.get(c) if value is None else value for c, value in row.items()}

    def load_tables(self, format_name: str, given: ImportedTables) -> int:
        raise NotImplementedError(format_name, given)

    def past_attempts(self, cluster: str, scheduler_job_ids: Sequence[str]) -> tuple[PastAttempt, ...]:
        wanted = set(scheduler_job_ids)
        ids = {row["job_key"]: row["scheduler_job_id"] for row in self.table("job") if row["cluster"] == cluster}
        names = ("job_key", "attempt_key", "state", "submit_at", "start_at", "end_at")
        found = [
            PastAttempt(**{name: row[name] for name in names})
            for row in self.table("attempt")
            if row["job_key"] in ids and wanted & {ids[row["job_key"]], row.get("other_id")}
        ]
        return tuple(sorted(found, key=lambda past: (past.start_at, past.attempt_key)))

    def close(self) -> None:
        pass

    def table(self, name: str) -> list[Row]:
        return list(self.rows.get(name, {}).values())

    @property
    def gpu_seconds(self) -> float:
        """Allocated GPU-seconds of everything that has ended."""
        return sum(
            float(row["gpu_count"] * row["share_ratio"] * (row["end_at"] - row["start_at"]))
            for row in self.table("allocation")
            if row["end_at"] is not None
        )


@pytest.fixture(scope="session")
def memory_client() -> Callable[[], MemoryClient]:
    """Give a maker of empty clients without a database."""
    return MemoryClient


@pytest.fixture
def store_client(tmp_path: Path) -> Generator[Client]:
    """Give a client of a real, empty store."""
    client = LocalClient(open_store(tmp_path / "data", create=True), {}, Settings())
    yield client
    client.close()
