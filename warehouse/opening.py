"""How the database file is opened: set aside where it is damaged, brought to the newest schema, its rows counted.

Every commit leaves its number and by how many rows of samples it changed the file. A start adds them up: a number that
is lower than the counter beside the file's tells of commits that were lost in silence, and a sum that differs from the
rows there are tells of rows that went another way than through a commit.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING, Final

import duckdb

from warehouse import salvage
from warehouse.contract.errors import StoreBusyError, StoreError
from warehouse.contract.metrics import METRIC_COLUMNS
from warehouse.recovery import Damage, diagnose, set_aside

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.recovery import CommitCounter

Config = dict[str, str | bool | int | float | list[str]]
FILE_FORMAT: Final = "v1.5.0"
"""The file format that both supported DuckDB lines (1.5 and 2.0) read and write."""

TALLIED: Final = ("device_sample", "process_sample", "host_sample")
"""Tables whose rows in the hot file are held against what commits said: what agents send, until it is sealed."""

LOG = logging.getLogger("trueload.store")
_HOLDER = re.compile(r"PID (\d+)")


def connect(path: Path, chosen: Config, *, recover: bool) -> duckdb.DuckDBPyConnection:
    """Open the file; with ``recover`` what is damaged is set aside under another name first, and said.

    Raises:
        StoreBusyError: another process owns it.
        StoreError: it cannot be opened.

    """
    try:
        return duckdb.connect(str(path), config=chosen)
    except duckdb.Error as cause:
        damage = diagnose(path, cause)
        if damage is Damage.BUSY:
            holder = _HOLDER.search(str(cause))
            who = f"process {holder.group(1)}" if holder else "another process"
            message = f"{path}: {who} owns the store; stop it, or ask it through its server"
            raise StoreBusyError(message) from cause
        if not recover or damage not in (Damage.LOG, Damage.FILE):
            hint = "; `trueload serve` sets it aside and goes on" if damage in (Damage.LOG, Damage.FILE) else ""
            raise StoreError(f"{path}: {damage.value} ({str(cause).splitlines()[0]}){hint}") from cause
        log_file = path.with_name(f"{path.name}.wal")
        moved = set_aside(log_file) if damage is Damage.LOG else set_aside(path, log_file)
        lost = "what was written since the last checkpoint" if damage is Damage.LOG else "what was not yet sealed"
        LOG.exception(
            "%s: %s. Set aside as %s. Lost here is %s; agents send again what they still hold.",
            path,
            damage.value,
            ", ".join(map(str, moved)),
            lost,
        )
        return connect(path, chosen, recover=recover)


def reveal_lost_commits(connection: duckdb.DuckDBPyConnection, counter: CommitCounter, path: Path) -> None:
    """Hold the ledger of commits against the counter beside the file and against the rows there are; say what lacks."""
    rows = connection.execute("SELECT max(number), count(*), sum(hot_rows), count(hot_rows) FROM committed").fetchall()
    [(known, commits, written, counted)] = rows
    found = hot_rows(connection)
    if commits == counted and (written or 0) != found:
        LOG.critical(
            "%s: by the ledger of commits %d rows of samples are in the file, and there are %d; `trueload verify` "
            "reads everything, and what is missing may be in a backup",
            path,
            written or 0,
            found,
        )
    if commits > 1 or written != found:
        _fold(connection, known or 0, found, path)
    lost = counter.read() - (known or 0)
    if lost > 0:
        LOG.error(
            "%s: the last %d commits are gone without a trace in the file (a damaged log?); agents send again what "
            "they still hold, imports must be repeated",
            path,
            lost,
        )
    counter.accept(known or 0)


def _fold(connection: duckdb.DuckDBPyConnection, known: int, found: int, path: Path) -> None:
    """Have one line stand for all commits: the last number, and the rows that are there."""
    try:
        connection.execute("BEGIN")
        connection.execute("DELETE FROM committed WHERE number < ?", [known])
        connection.execute("UPDATE committed SET hot_rows = ?", [found])
        connection.execute("COMMIT")
    except duckdb.Error as error:  # nothing but tidiness: on a full disk reading has to go on
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        if salvage.damage_in(error) is not None:
            raise
        LOG.warning("%s: old commit numbers stay (%s)", path, error)


def hot_rows(cursor: duckdb.DuckDBPyConnection) -> int:
    """Give the number of rows in the tables that are counted, as this cursor sees them."""
    return first_value(cursor.execute(f"SELECT {' + '.join(f'(SELECT count(*) FROM {name})' for name in TALLIED)}"))


def first_value(cursor: duckdb.DuckDBPyConnection) -> int:
    """Give the one number that a statement gave; 0 where it gave none."""
    rows = cursor.fetchall()  # one row left unread would hold the cursor
    return int(rows[0][0] or 0) if rows else 0


def config(data: Path, memory_limit_bytes: int | None) -> Config:
    """Give the settings to open the file with."""
    chosen: Config = {
        "storage_compatibility_version": FILE_FORMAT,
        "temp_directory": str(data / "tmp"),
        # Nothing is ever fetched from a network by the database itself.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if memory_limit_bytes is not None:
        chosen["memory_limit"] = f"{memory_limit_bytes}B"
    return chosen


def migrate(connection: duckdb.DuckDBPyConnection) -> bool:
    """Bring the schema up to date; says whether the store is of an earlier one."""
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP)")
    done = {version for (version,) in connection.execute("SELECT version FROM schema_version").fetchall()}
    migrations = _migrations()
    if done - {version for version, _ in migrations}:
        raise StoreError(f"the store has schema {max(done)}, newer than this version of trueload knows; update it")
    for version, script in migrations:
        if version in done:
            continue
        connection.execute("BEGIN")
        connection.execute(script)
        connection.execute("INSERT INTO schema_version VALUES (?, now()::TIMESTAMP)", [version])
        connection.execute("COMMIT")
    for column in METRIC_COLUMNS:
        connection.execute(f"ALTER TABLE device_sample ADD COLUMN IF NOT EXISTS {column} FLOAT")
    return bool(done) and len(done) < len(migrations)


def _migrations() -> list[tuple[int, str]]:
    scripts = [entry for entry in resources.files("warehouse.schema").iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name.split("_")[0]), entry.read_text(encoding="utf-8")) for entry in scripts)
