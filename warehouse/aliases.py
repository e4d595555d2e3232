"""Which attempt a node means: node keys and the attempts of accounting, joined when something is read.

Rows keep the key that the node gave them. The table ``attempt_alias`` says what each node key means as far as is known
now; it is renewed in the transaction in which a node key or an attempt arrives, so that late accounting corrects
history and nothing is written anew. Whoever reads sees the tables through ``naming``, which puts the attempt's own key
in the place of the node's (docs/decisions/0008-node-keys-are-joined-when-read.md).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from warehouse.contract.model import LOST_STATES
from warehouse.contract.node_keys import (
    AMBIGUOUS,
    POD,
    POD_NAME,
    SLUID,
    SLURM,
    START_SLACK_SECONDS,
    UNKNOWN,
    KnownAttempt,
    match,
    parse_node_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warehouse.store import Transaction

TABLE: Final = "attempt_alias"
TIMES: Final = ("sampled_at", "happened_at", "hour_at", "start_at", "bucket_at")
"""Columns that tell when a row was; the first that a table has."""

FROM_NODES: Final = ("slurm_prolog",)
"""Sources of allocations whose begin and end are a hook's, on a node's clock: accounting's own are put in their place
where they are near."""

WAYS: Final = {
    (SLURM,): "JOIN job ON job.scheduler_job_id = wanted.scheduler_id JOIN attempt USING (job_key)",
    (SLUID, POD_NAME): "JOIN attempt ON attempt.other_id = wanted.scheduler_id JOIN job USING (job_key)",
    (POD,): "JOIN attempt ON regexp_extract(attempt_key, '[^:]*$') = wanted.scheduler_id JOIN job USING (job_key)",
}
"""How the id of each kind of node key leads to attempts. A pod's UID ends the key of its attempt."""

_MARK: Final = "/@"
_SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("node_key", "cluster", "kind", "scheduler_id", "attempt_key")),
        ("certainty", pa.string()),
        ("source", pa.string()),
        ("since_at", pa.float64()),
        ("until_at", pa.float64()),
    ]
)

_OF_MATCH: Final = attrgetter(*_SCHEMA.names[4:])


def follow(transaction: Transaction, table: str, rows: pa.Table) -> None:
    """Take note of rows that were written: node keys that are new, and attempts that node keys may mean."""
    if table in ("job", "attempt"):
        if transaction.execute(f"SELECT 1 FROM {TABLE} LIMIT 1"):
            _resolve(transaction, _meaning(transaction, table, rows))
    elif "attempt_key" in rows.column_names:
        take(transaction, rows)


def settle(transaction: Transaction) -> None:
    """Say anew what every node key means."""
    _resolve(transaction, [str(key) for (key,) in transaction.execute(f"SELECT DISTINCT node_key FROM {TABLE}")])


def take(transaction: Transaction, rows: pa.Table) -> None:
    """Write down those node keys among the rows' ``attempt_key`` that were not known."""
    distinct = pc.unique(rows["attempt_key"])
    texts = distinct.filter(pc.fill_null(pc.match_substring(distinct, _MARK), fill_value=False)).to_pylist()
    parsed = {text: key for text in texts if (key := parse_node_key(text)) is not None}
    if not parsed:
        return
    rows = pa.Table.from_pylist(
        [
            {"node_key": text, "cluster": key.cluster, "kind": key.kind, "scheduler_id": key.scheduler_id}
            for text, key in parsed.items()
        ],
        pa.schema([_SCHEMA.field(at) for at in range(4)]),
    )
    new = transaction.execute_with(
        rows,
        f"INSERT INTO {TABLE} SELECT node_key, cluster, kind, scheduler_id, NULL, '{UNKNOWN}', NULL, NULL, NULL "
        f"FROM incoming ANTI JOIN {TABLE} USING (node_key) RETURNING node_key",
    )
    _resolve(transaction, [str(key) for (key,) in new])


def _meaning(transaction: Transaction, table: str, rows: pa.Table) -> list[str]:
    """Give the node keys that may mean an attempt of some incoming rows of ``job`` or ``attempt``."""
    jobs = "(SELECT DISTINCT job_key FROM incoming)"
    names = f"SELECT cluster, scheduler_job_id AS id FROM job SEMI JOIN {jobs} AS own USING (job_key)"
    if table == "attempt":
        names += (
            " UNION ALL SELECT cluster, unnest([other_id, regexp_extract(attempt_key, '[^:]*$')]) AS id "
            "FROM incoming JOIN (SELECT job_key, cluster FROM job) AS job USING (job_key)"
        )
    found = transaction.execute_with(
        rows,
        f"SELECT DISTINCT node_key FROM {TABLE} AS known SEMI JOIN ({names}) AS named "
        "ON known.cluster = named.cluster AND known.scheduler_id = named.id",
    )
    return [str(key) for (key,) in found]


def _resolve(transaction: Transaction, node_keys: Sequence[str]) -> None:
    """Say anew what some node keys mean."""
    if not node_keys:
        return
    wanted = pa.table({"node_key": pa.array(node_keys, pa.string())})
    kinds = {
        str(kind)
        for (kind,) in transaction.execute_with(
            wanted, f"SELECT DISTINCT kind FROM {TABLE} SEMI JOIN incoming USING (node_key)"
        )
    }
    told = "scheduler_id, attempt_key, job.cluster, epoch(start_at), epoch(end_at), state, attempt.source"
    ways = [
        f"SELECT node_key, {told} FROM wanted {joined} "
        f"WHERE kind IN ({', '.join(map(repr, chosen))}) AND job.cluster = wanted.cluster"
        for chosen, joined in WAYS.items()
        if kinds.intersection(chosen)
    ]
    rows = transaction.execute_with(
        wanted,
        f"WITH wanted AS (SELECT DISTINCT node_key, cluster, kind, scheduler_id FROM {TABLE} SEMI JOIN incoming "
        f"USING (node_key)) SELECT DISTINCT * FROM ({' UNION ALL '.join(ways)}) ORDER BY ALL",
    )
    known: dict[str, list[KnownAttempt]] = {}
    for node_key, scheduler_id, attempt_key, cluster, start_at, end_at, state, source in rows:
        one = KnownAttempt(
            attempt_key=str(attempt_key),
            cluster=str(cluster),
            scheduler_ids=frozenset({str(scheduler_id)}),
            start_at=None if start_at is None else float(str(start_at)),
            end_at=None if end_at is None else float(str(end_at)),
            source=str(source),
            is_lost=state in LOST_STATES,
        )
        known.setdefault(str(node_key), []).append(one)
    _renew(transaction, wanted, [row for key in node_keys for row in _rows(key, known.get(key, ()))])


def _rows(text: str, known: Iterable[KnownAttempt]) -> list[tuple[object, ...]]:
    key = parse_node_key(text)
    if key is None:
        return []
    names = (text, key.cluster, key.kind, key.scheduler_id)
    return [(*names, *_OF_MATCH(found)) for found in match(key, known)]


def _renew(transaction: Transaction, node_keys: pa.Table, rows: list[tuple[object, ...]]) -> None:
    transaction.execute_with(node_keys, f"DELETE FROM {TABLE} WHERE node_key IN (SELECT node_key FROM incoming)")
    names = ", ".join(name if not name.endswith("_at") else _instant(name) for name in _SCHEMA.names)
    columns = zip(*rows, strict=True) if rows else ([] for _ in _SCHEMA)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    transaction.execute_with(pa.table(arrays, _SCHEMA), f"INSERT INTO {TABLE} SELECT {names} FROM incoming")


def _instant(name: str) -> str:
    return f"make_timestamp(round({name} * 1000000)::BIGINT)"


COUNTS: Final = f"SELECT count(*), count(since_at) FROM {TABLE} WHERE certainty <> '{UNKNOWN}'"
"""How many meanings of node keys are known, and how many of them by time: without any, nothing is joined."""


def naming(table: str, columns: Sequence[str], source: str, *, timed: bool) -> str:
    """Give the SQL that reads a table with each node key replaced by the attempt that it means.

    Plain SQL for DuckDB and Spark. ``source`` is what is read instead of the table's own name; ``timed`` says that some
    node keys are settled by the time of their rows. A key that fits two attempts stays, and its rows say so.
    """
    time = next((name for name in TIMES if name in columns), None)
    is_timed = timed and time is not None
    meant = "coalesce(timed.meant, whole.meant)" if is_timed else "whole.meant"
    how = "coalesce(timed.how, whole.how)" if is_timed else "whole.how"
    values = {name: f"own.{name}" for name in columns}
    values["attempt_key"] = f"coalesce({meant}, own.attempt_key)"
    for told in {"attribution", "certainty"}.intersection(columns):
        values[told] = f"CASE WHEN {how} = '{AMBIGUOUS}' THEN '{AMBIGUOUS}' ELSE own.{told} END"
    joins = [f"LEFT JOIN {_settled('since_at IS NULL')} AS whole ON own.attempt_key = whole.node_key"]
    if is_timed:
        joins.append(_timed_join(str(time)))
    if table == "allocation":
        joins.append(f"LEFT JOIN attempt ON attempt.attempt_key = {meant}")
        values["start_at"] = _START
        values["end_at"] = _END
    chosen = ", ".join(f"{value} AS {name}" for name, value in values.items())
    return f"SELECT {chosen} FROM {source} AS own {' '.join(joins)}"


def _settled(condition: str) -> str:
    return (
        "(SELECT node_key, attempt_key AS meant, certainty AS how, since_at, until_at "
        f"FROM {TABLE} WHERE certainty <> '{UNKNOWN}' AND {condition})"
    )


def _timed_join(time: str) -> str:
    """Join by time. A row that speaks for an hour is only given to an attempt that no other shares its key with."""
    condition, end = "since_at IS NOT NULL", f"own.{time}"
    reach = f"{end} >= timed.since_at"
    if time == "hour_at":
        condition += f" AND node_key IN (SELECT node_key FROM {TABLE} GROUP BY node_key HAVING count(*) = 1)"
        reach = f"{end} + INTERVAL 1 HOUR > timed.since_at"
    return (
        f"LEFT JOIN {_settled(condition)} AS timed ON own.attempt_key = timed.node_key AND {reach} "
        f"AND (timed.until_at IS NULL OR {end} < timed.until_at)"
    )


def meaning(columns: Sequence[str], rows: str, attempt: str) -> str:
    """Give the SQL condition under which rows carry a node key that means an attempt of which a condition holds.

    ``rows`` is what the rows' table is called there, ``attempt`` a condition on ``known.attempt_key``.
    """
    time = next((name for name in TIMES if name in columns), None)
    within = "known.since_at IS NULL"
    if time is not None:
        within += f" OR ({rows}.{time} >= known.since_at AND coalesce({rows}.{time} < known.until_at, true))"
    return (
        f"EXISTS (SELECT 1 FROM {TABLE} AS known WHERE known.node_key = {rows}.attempt_key AND ({within}) "
        f"AND ({attempt}))"
    )


_SLACK: Final = f"INTERVAL {START_SLACK_SECONDS:.0f} SECONDS"
_IS_NODES: Final = f"own.source IN ({', '.join(map(repr, FROM_NODES))})"
_START: Final = (
    f"CASE WHEN {_IS_NODES} AND attempt.start_at BETWEEN own.start_at - {_SLACK} AND own.start_at + {_SLACK} "
    "THEN attempt.start_at ELSE own.start_at END"
)
_END: Final = (
    f"CASE WHEN {_IS_NODES} AND attempt.end_at IS NOT NULL AND (own.end_at IS NULL OR own.end_at >= attempt.end_at - "
    f"{_SLACK}) THEN attempt.end_at WHEN own.end_at < ({_START}) THEN ({_START}) ELSE own.end_at END"
)
