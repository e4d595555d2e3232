"""What hosts tell is kept: in the hot file, in the lake, and in what an analysis reads."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from warehouse import lake
from warehouse.contract import wire
from warehouse.contract.model import HostSample
from warehouse.store import open_store

DAY = date(2026, 11, 20)
AT = 1795132800.0
"""2026-11-20 00:00 UTC."""


def test_rows_of_hosts_are_one_table_in_hot_file_and_lake(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    node = HostSample("c", "n", "node", AT, 10.0, "host", cpu_seconds=12.5)
    group = HostSample("c", "n", "group", AT + 10, 10.0, "host", subject="/job_7", attempt_key="c/7#0:1")
    with store.transaction() as transaction:
        transaction.write(wire.from_records([node]))
    lake.seal(store, tmp_path, "host_sample", DAY)
    with store.transaction() as transaction:
        transaction.write(wire.from_records([group]))
    with store.snapshot() as tables:
        found = tables.host_sample.order_by("sampled_at").to_pyarrow().to_pylist()
    assert [(row["scope"], row["subject"], row["cpu_seconds"], row["attempt_key"]) for row in found] == [
        ("node", None, 12.5, None),
        ("group", "/job_7", None, "c/7#0:1"),
    ]
    assert [(day.table, day.row_count) for day in lake.sealed_days(store)] == [("host_sample", 1)]
    store.close()
