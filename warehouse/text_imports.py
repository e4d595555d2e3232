"""Foreign text that a collector sends as it is: read here by the importer of its format, and how far it has come.

A collector on a machine of the scheduler asks ``sacct`` and sends what it printed. The one reader of that text is the
importer, here; the collector knows nothing of its columns, and stays as small as an agent.
"""

from __future__ import annotations

import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from warehouse import loading
from warehouse.client import LocalClient
from warehouse.contract import wire
from warehouse.contract.errors import BadInputError, BadUseError, StoreError
from warehouse.importer import ImportOptions
from warehouse.settings import (
    CLUSTER_NAME,
    CLUSTER_ZONE,
    IMPORT_CHUNK_CHARACTERS,
    IMPORT_CHUNK_RECORDS,
    IMPORT_MAX_FIELD_CHARACTERS,
    IMPORT_REQUEUE_WINDOW_SECONDS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.client import Document
    from warehouse.contract.settings import Settings
    from warehouse.store import Store

COLLECTED: Final = frozenset({"sacct"})
"""Formats that a collector may send; an operator may send any that is read from a file."""

LONGEST_NAME: Final = 200
_one_at_a_time = threading.Lock()
"""Keys depend on what is known of a job already: two texts with the same job must not be read side by side."""


def load_text(store: Store, settings: Settings, format_name: str, body: bytes, asked: Mapping[str, str]) -> Document:
    """Read a gzip'd text in a foreign format into the store; gives what became of its records.

    Raises:
        BadInputError: it is no gzip, too large, or nothing in it could be read.
        BadUseError: there is no such format, or a parameter cannot be used.
        StoreError: the store or its disk refused; what was kept before stays.

    """
    known = loading.importers()
    if format_name not in known:
        raise BadUseError(f"no format {format_name[:LONGEST_NAME]!r}; there are {', '.join(known)}")
    text = wire.inflate(body, format_name)
    options = ImportOptions(
        cluster=named("cluster", asked.get("cluster") or settings[CLUSTER_NAME]),
        zone=named("zone", asked.get("zone") or settings[CLUSTER_ZONE]),
        max_field_characters=settings[IMPORT_MAX_FIELD_CHARACTERS],
        requeue_window_seconds=settings[IMPORT_REQUEUE_WINDOW_SECONDS],
        settings=settings,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="text-", dir=store.data) as folder, _one_at_a_time:
            path = Path(folder) / format_name
            path.write_bytes(text)
            report = loading.load_files(
                LocalClient(store, {}, settings),
                known[format_name],
                [path],
                options,
                chunk_records=settings[IMPORT_CHUNK_RECORDS],
                chunk_characters=settings[IMPORT_CHUNK_CHARACTERS],
            )
    except OSError as cause:
        raise StoreError(f"{store.data}: no room for the text while it is read ({cause})") from cause
    if report.errors and report.exit_code:
        error = report.errors[0]
        raise BadInputError(format_name, error.place, error.detail)
    return {**report.document(), "files": []}


def read_cursor(store: Store, format_name: str, cluster: str) -> float | None:
    """Give up to when a collector has brought everything in, in seconds since the epoch; None: it never has."""
    rows = store.read(
        "SELECT epoch(until_at) AS until FROM import_cursor WHERE format = ? AND cluster = ?", [format_name, cluster]
    ).to_pylist()
    return float(rows[0]["until"]) if rows else None


def oldest_cursor(store: Store) -> float | None:
    """Give up to when the collector that is furthest behind has brought everything in; None: there is none."""
    (row,) = store.read("SELECT epoch(min(until_at)) AS until FROM import_cursor").to_pylist()
    return None if row["until"] is None else float(row["until"])


def move_cursor(store: Store, format_name: str, cluster: str, until_at: float) -> None:
    """Remember that everything before an instant has been brought in. It never goes back.

    Raises:
        BadInputError: no instant that can be kept.

    """
    try:
        until = datetime.fromtimestamp(until_at, UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError) as cause:
        raise BadInputError(format_name, "until_at", f"{until_at!r} is no instant") from cause
    with store.transaction() as transaction:
        transaction.execute(
            "INSERT INTO import_cursor VALUES (?, ?, ?, now()::TIMESTAMP) ON CONFLICT DO UPDATE SET "
            "until_at = greatest(until_at, excluded.until_at), moved_at = excluded.moved_at",
            [format_name, cluster, until],
        )


def named(what: str, text: str) -> str:
    """Check a name that somebody gave.

    Raises:
        BadUseError: it is empty, too long or unprintable.

    """
    if not 0 < len(text) <= LONGEST_NAME or not text.isprintable():
        raise BadUseError(f"{what}: expected a printable name of 1 to {LONGEST_NAME} characters")
    return text
