"""Whose data were deleted on request, and what must therefore not come (back) in.

A tombstone is about a user or a project (account or namespace), on one cluster or all, and about jobs that were
submitted before an instant: who goes on working leaves new traces. It keeps the SHA-256 of the name, never the name.
Beside the database it lies in a file, which outlives it: a restored backup is held against it.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from warehouse.contract.errors import StoreError
from warehouse.lake import replace_durably

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from warehouse.store import Transaction

FILE = "tombstones.json"
USER, PROJECT = "user", "project"
KEYS = ("job", "attempt")
"""Kinds of keys that are forbidden."""

KINDS = {USER: ('"user"',), PROJECT: ("account", "namespace")}
"""Kinds of tombstones, with the columns of ``job`` that they are about."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One deletion. ``before_at`` and ``purged_at`` are seconds since the epoch; ``cluster`` None is all clusters."""

    kind: str
    name_hash: str
    cluster: str | None
    before_at: float
    purged_at: float

    @classmethod
    def of(cls, kind: str, name: str, cluster: str | None, now: float | None = None) -> Tombstone:
        """Make one for everything until now."""
        at = time.time() if now is None else now
        return cls(kind, hashlib.sha256(name.encode()).hexdigest(), cluster, at, at)


def matching(alias: str) -> str:
    """Give the SQL condition under which a row of ``job`` is about a tombstone: for ``FROM job AS alias``."""
    hits = " OR ".join(
        f"(kind = '{kind}' AND name_hash IN ({', '.join(f'sha256({alias}.{column})' for column in columns)}))"
        for kind, columns in KINDS.items()
    )
    return (
        f"EXISTS (SELECT 1 FROM tombstone WHERE ({hits}) AND coalesce(tombstone.cluster = {alias}.cluster, "
        f"tombstone.cluster IS NULL) AND coalesce({alias}.submit_at < before_at, true))"
    )


def enter(transaction: Transaction, tombstones: Iterable[Tombstone]) -> int:
    """Write tombstones that are not known yet; gives their number."""
    count = 0
    for one in tombstones:
        known = transaction.execute(
            "SELECT 1 FROM tombstone WHERE kind = ? AND name_hash = ? AND cluster IS NOT DISTINCT FROM ? "
            "AND before_at >= make_timestamp(?)",
            [one.kind, one.name_hash, one.cluster, int(one.before_at * 1e6)],
        )
        if not known:
            transaction.execute(
                "INSERT INTO tombstone VALUES (?, ?, ?, make_timestamp(?), make_timestamp(?), NULL)",
                [one.kind, one.name_hash, one.cluster, int(one.before_at * 1e6), int(one.purged_at * 1e6)],
            )
            count += 1
    return count


def read_file(path: Path) -> list[Tombstone]:
    """Read tombstones from a file; none where there is no file.

    Raises:
        StoreError: it is damaged: what was deleted is not known.

    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [Tombstone(**item) for item in content["tombstones"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise StoreError(f"{path}: tells what was deleted on request, and cannot be read ({cause})") from cause


def add_to_file(path: Path, tombstones: Sequence[Tombstone]) -> None:
    """Add tombstones to a file, durably.

    Raises:
        StoreError: it cannot be read or written.

    """
    if not tombstones:
        return
    every = dict.fromkeys([*read_file(path), *tombstones])
    try:
        replace_durably(path, json.dumps({"version": 1, "tombstones": [asdict(one) for one in every]}, indent=1))
    except OSError as cause:
        raise StoreError(f"{path}: cannot be written ({cause})") from cause


def in_order(tables: Iterable[str]) -> list[str]:
    """Give names of tables so that jobs and attempts come before what names them."""
    return sorted(tables, key=lambda name: KEYS.index(name) if name in KEYS else len(KEYS))


def wanted(transaction: Transaction, table: str, rows: pa.Table) -> pa.Table:
    """Give the rows of a table that no tombstone forbids; write jobs and attempts before what names them.

    A forbidden job or attempt makes its key forbidden; where it was not so before, the next sweep
    (``warehouse.purge``) looks for what came in under it earlier.
    """
    if "attempt_key" not in rows.column_names and "job_key" not in rows.column_names:
        return rows
    if not transaction.execute("SELECT 1 FROM tombstone LIMIT 1"):
        return rows
    if table == "job":
        _forbid(transaction, "job", rows, f"SELECT job_key FROM incoming WHERE {matching('incoming')}")
    elif table == "attempt":
        _forbid(transaction, "attempt", rows, f"SELECT attempt_key FROM incoming WHERE {forbidden('job_key', 'job')}")
    for kind in KEYS:
        rows = _without(transaction, kind, rows)
    return rows


def _without(transaction: Transaction, kind: str, rows: pa.Table) -> pa.Table:
    column = f"{kind}_key"
    if column not in rows.column_names:
        return rows
    found = transaction.execute_with(
        rows.select([column]),
        f"SELECT {column} FROM (SELECT DISTINCT {column} FROM incoming) AS named WHERE {forbidden(column, kind)}",
    )
    if not found:
        return rows
    keys = pa.array([key for (key,) in found], pa.string())
    return rows.filter(pc.invert(pc.is_in(rows[column], value_set=keys)))


def _forbid(transaction: Transaction, kind: str, rows: pa.Table, query: str) -> None:
    new = transaction.execute_with(rows, f"{forbid(kind, query)} RETURNING key_hash")
    if new:
        transaction.execute("UPDATE tombstone SET swept_at = NULL")


def forbid(kind: str, query: str) -> str:
    """Give the SQL that makes the keys forbidden that a query gives in its one column."""
    return (
        f"INSERT INTO purged_key SELECT DISTINCT '{kind}', sha256(key) FROM ({query}) AS found(key) "
        "ON CONFLICT DO NOTHING"
    )


def forbidden(column: str, kind: str) -> str:
    """Give the SQL condition under which a key is forbidden."""
    return f"sha256({column}) IN (SELECT key_hash FROM purged_key WHERE kind = '{kind}')"
