"""How a node names the attempt that it sees, before anybody with the whole history has given it its key.

A node knows a scheduler's id and a start, but neither the generation of an id that came back nor a database index. So
it writes a *node key*, and whoever knows the attempts finds the one it means (docs/decisions/0006-keys-of-nodes.md)::

    cluster/@slurm:77:1700000000         job 77 (JobIDRaw), allocated at about that second
    cluster/@sluid:s5K1KKYAYG5D00:       a Slurm job whose number is not known yet
    cluster/@pod:3c1f...:                a pod by its UID
    cluster/@podname:team-a/train-0:1700000000
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

START_SLACK_SECONDS: Final = 120.0
"""A prolog runs on a clock of its own: an attempt still fits when it started at most this much after what the node
says, or ended at most this much before."""

SLURM, SLUID, POD, POD_NAME = "slurm", "sluid", "pod", "podname"
GIVEN_ONCE: Final = frozenset({SLUID, POD})
"""Kinds of ids that are never given to another job."""

EXACT, BY_START, BY_TIME, NEAR = "exact", "by_start", "by_time", "near"
AMBIGUOUS, UNKNOWN = "ambiguous", "unknown"
"""How sure it is which attempt is meant: it is the only one with this id that fits; the one of several that had started
last; the one that ran when the row was taken; one that is only near what the node's clock says; two fit equally, so
that nobody is blamed; none is known yet."""

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
    """An attempt with its key and what a node may know it by: ids are JobIDRaw, SLUID, pod UID, namespace/name.

    ``is_lost`` says that the same job may have been started again since: a node that names a later time may mean that.
    """

    attempt_key: str
    cluster: str
    scheduler_ids: frozenset[str]
    start_at: float | None
    end_at: float | None
    source: str = ""
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """What rows with a node key belong to: those of ``[since_at, until_at)``, or all of them where both are None.

    ``until_at`` alone may be None: for ever. ``source`` is who told of the attempt.
    """

    attempt_key: str | None
    certainty: str
    source: str | None = None
    since_at: float | None = None
    until_at: float | None = None


def parse_node_key(text: str) -> NodeKey | None:
    """Read a node key; None for a key of any other shape."""
    found = _SHAPE.fullmatch(text)
    if found is None:
        return None
    return NodeKey(found["cluster"], found["kind"], found["id"], float(found["start"]) if found["start"] else None)


def match(wanted: NodeKey, known: Iterable[KnownAttempt]) -> list[Match]:
    """Say which attempts a node means by a key, as far as they are known now; never empty.

    * With a start: of the id's attempts the last that had started by then and had not ended. Where there is none,
      clocks differ: the last that started within ``START_SLACK_SECONDS`` after it, else the last that had ended within
      the slack before it, unless its job may have been started again.
    * Without: the only one, of an id that is given once; else each row belongs to the attempt that ran at its time.
    """
    own = [one for one in known if one.cluster == wanted.cluster and wanted.scheduler_id in one.scheduler_ids]
    if not own:
        return [Match(None, UNKNOWN)]
    if wanted.start_at is not None:
        return [_by_start(wanted.start_at, own)]
    if wanted.kind in GIVEN_ONCE and len(own) == 1:
        return [Match(own[0].attempt_key, EXACT, own[0].source)]
    return _by_time(own) or [Match(None, UNKNOWN)]


def _by_start(at: float, own: Sequence[KnownAttempt]) -> Match:
    begun = [one for one in own if one.start_at is not None and one.start_at <= at + START_SLACK_SECONDS]
    open_then = [one for one in begun if _end(one) >= at]
    fitting, certainty = [one for one in open_then if (one.start_at or 0.0) <= at], EXACT if len(own) == 1 else BY_START
    if not fitting:
        just_ended = [one for one in begun if not one.is_lost and _end(one) + START_SLACK_SECONDS >= at]
        fitting, certainty = open_then or just_ended, NEAR
    if not fitting:
        return Match(None, UNKNOWN)
    latest = max(one.start_at or 0.0 for one in fitting)
    meant = [one for one in fitting if one.start_at == latest]
    return Match(meant[0].attempt_key, certainty, meant[0].source) if len(meant) == 1 else Match(None, AMBIGUOUS)


def _by_time(own: Iterable[KnownAttempt]) -> list[Match]:
    """Give each attempt its time with some slack; neighbours part where one ended or, at the latest, the next began."""
    begun = sorted((one for one in own if one.start_at is not None), key=lambda one: one.start_at or 0.0)
    groups = [list(same) for _, same in groupby(begun, key=lambda one: one.start_at or 0.0)]
    begins: list[float] = []
    ended = -math.inf
    for same in groups:
        start = same[0].start_at or 0.0
        begins.append(max(start - START_SLACK_SECONDS, min(ended, start)))
        ended = max(map(_end, same))
    found: list[Match] = []
    for same, since, following in zip(groups, begins, [*begins[1:], math.inf], strict=True):
        until = min(max(map(_end, same)) + START_SLACK_SECONDS, following)
        ends = None if math.isinf(until) else until
        if len(same) == 1:
            found.append(Match(same[0].attempt_key, BY_TIME, same[0].source, since, ends))
        else:
            found.append(Match(None, AMBIGUOUS, None, since, ends))
    return found


def _end(one: KnownAttempt) -> float:
    return math.inf if one.end_at is None else one.end_at
