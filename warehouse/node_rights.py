"""What a node's own token may tell: of this node, its devices, what ran there, and jobs that only the node knows.

Whoever takes over one node must not be able to write another's readings, nor jobs of a scheduler: those come with an
operator's token or with the agents' shared one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from warehouse.batches import Checked
    from warehouse.contract.wire import Batch

TOLD_BY_NODES: Final = frozenset(
    {
        *("node", "device", "event", "allocation"),
        *("device_sample", "process_sample", "host_sample", "kernel_profile", "length_profile"),
    }
)
"""Tables that a node fills from what it reads itself."""

PROCESS_JOBS: Final[Mapping[str, tuple[str, ...]]] = {"job": ("job_key",), "attempt": ("job_key", "attempt_key")}
"""Tables, with their keys, that a node without a scheduler fills: sessions and commands of its users."""

NAMES_ITS_NODE: Final = frozenset({"node", "device", "allocation", "device_sample", "process_sample", "host_sample"})
"""Tables whose rows of a node must all name it; an event may speak of the cluster alone."""


def refusal(batch: Batch | Checked, node: str) -> str | None:
    """Say why a batch must not come with the token of a node; None if it may."""
    others = ({batch.agent} | batch.nodes) - {node}
    found = f"also speaks of {min(others)[:200]!r}" if others else None
    for name, table in batch.tables.items():
        if table.num_rows if isinstance(table, pa.Table) else table.rows:
            found = found or _wrong(name, table, node)
    return None if found is None else f"the token is of node {node!r}; the batch {found}"


def _wrong(name: str, table: Any, node: str) -> str | None:
    if name in PROCESS_JOBS:
        own = re.compile(rf".+/{re.escape(node)}-\d+-\d+#\d+(:\d+)?")
        keys = [key for column in PROCESS_JOBS[name] for key in _values(table, column)]
        if foreign := [key for key in keys if not (isinstance(key, str) and own.fullmatch(key))]:
            return f"tells of {foreign[0]!r:.200}, and a node tells of its own processes alone"
        if set(_values(table, "source")) != {"process"}:
            return "has jobs of another source than 'process', which come from their scheduler"
    elif name not in TOLD_BY_NODES:
        return f"has rows of {name[:100]!r}, which are not a node's to tell"
    elif name in NAMES_ITS_NODE and set(_values(table, "node")) != {node}:
        return f"has a row of {name!r} that names no node"
    return None


def _values(table: Any, column: str) -> Iterable[object]:
    """Give the distinct values of a column, decoded from JSON or Arrow; a missing column is all None."""
    if isinstance(table, pa.Table):
        return pc.unique(table[column]).to_pylist() if column in table.column_names else [None]
    values = table.columns.get(column)
    every = values if isinstance(values, list) else [values]
    return dict.fromkeys(
        value if isinstance(value, (str, int, float, bool, type(None))) else repr(value) for value in every
    )
