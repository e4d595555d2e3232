"""How a node names the attempt that it sees, before anybody with the whole history has given it its key.

A node knows a scheduler's id and a start, but neither the generation of an id that came back nor a database index. So
it writes a *node key*, and whoever knows the attempts finds the one it means (docs/decisions/0006-keys-of-nodes.md)::

    cluster/@slurm:77:1700000000         job 77 (JobIDRaw), allocated at about that second
    cluster/@sluid:s5K1KKYAYG5D00:       a Slurm job whose number is not known yet
    cluster/@pod:3c1f...:                a pod by its UID
    cluster/@podname:team-a/train-0:1700000000
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

START_SLACK_SECONDS: Final = 120.0
"""A prolog runs after the start that accounting writes down, on a clock of its own: an attempt fits when it started at
most this much after what the node says."""

SLURM, SLUID, POD, POD_NAME = "slurm", "sluid", "pod", "podname"
_SHAPE: Final = re.compile(r"(?P<cluster>.+)/@(?P<kind>slurm|sluid|pod|podname):(?P<id>[^:]+):(?P<start>\d*)")


@dataclass(frozen=True, slots=True)
class NodeKey:
    """An attempt as a node saw it; ``start_at`` is None where the id alone says which attempt it is."""

    cluster: str
    kind: str
    scheduler_id: str
    start_at: float | None = None

    def __str__(self) -> str:
        """Give the key as it is written in the column ``attempt_key``."""
        start = "" if self.start_at is None else str(int(self.start_at))
        return f"{self.cluster}/@{self.kind}:{self.scheduler_id}:{start}"


@dataclass(frozen=True, slots=True)
class KnownAttempt:
    """An attempt with its key and what a node may know it by: ids are JobIDRaw, SLUID, pod UID, namespace/name."""

    attempt_key: str
    cluster: str
    scheduler_ids: frozenset[str]
    start_at: float | None
    end_at: float | None


def parse_node_key(text: str) -> NodeKey | None:
    """Read a node key; None for a key of any other shape."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        return None
    return NodeKey(found["cluster"], found["kind"], found["id"], float(found["start"]) if found["start"] else None)


def find_attempt(wanted: NodeKey, known: Iterable[KnownAttempt]) -> str | None:
    """Give the key of the attempt that a node means; None when there is none, or more than one fits equally.

    Of an id's attempts it is the last that had started by then (within ``START_SLACK_SECONDS``) and had not ended.
    """
    own = [one for one in known if one.cluster == wanted.cluster and wanted.scheduler_id in one.scheduler_ids]
    if wanted.start_at is None:
        return own[0].attempt_key if len(own) == 1 else None
    at = wanted.start_at
    fitting = [
        one
        for one in own
        if one.start_at is not None
        and one.start_at <= at + START_SLACK_SECONDS
        and (one.end_at is None or one.end_at >= at)
    ]
    starts = sorted(((one.start_at or 0.0, one.attempt_key) for one in fitting), reverse=True)
    if len(starts) > 1 and starts[0][0] == starts[1][0]:
        return None
    return starts[0][1] if starts else None
