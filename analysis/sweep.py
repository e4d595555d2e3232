"""What differs between members of a sweep: arguments of the command, parameters in the name."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from typing import TYPE_CHECKING

from analysis.names import Vocabulary, take_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from analysis.evidence import AttemptEvidence

_ASSIGNED = re.compile(r"-{0,2}([A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"-{1,2}([A-Za-z][\w.-]*)")


def parameters(job: AttemptEvidence, known: Vocabulary) -> dict[str, str]:
    """Give what a job was started with, by name in lower case with ``_``: its arguments, else what its name says.

    Of the name come words with a number (``lr0.01``); numbers, dates and hashes that mean nothing known are left out.
    """
    found = _arguments(job.command or "")
    for axis, value in take_apart(job.name, known).axes if job.name else ():
        if axis not in {"number", "date", "hash"}:
            found.setdefault(axis, value)
    return found


def _arguments(command: str) -> dict[str, str]:
    try:
        tokens = shlex.split(command)
    except ValueError:
        tokens = command.split()
    found: dict[str, str] = {}
    for at, token in enumerate(tokens):
        assigned = _ASSIGNED.fullmatch(token)
        flag = _FLAG.fullmatch(token)
        if assigned:
            found[_plain(assigned[1])] = assigned[2]
        elif flag:
            following = tokens[at + 1] if at + 1 < len(tokens) else ""
            is_value = bool(following) and (not following.startswith("-") or _is_number(following))
            found[_plain(flag[1])] = following if is_value else ""
    return found


def _plain(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_").casefold()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def varying(members: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Name the parameters in which members differ; one that some lack differs."""
    rows = list(members)
    names = {name for row in rows for name in row}
    return tuple(sorted(name for name in names if len({row.get(name) for row in rows}) > 1))


def alike(
    members: Sequence[AttemptEvidence], known: Vocabulary, free: frozenset[str]
) -> tuple[list[list[AttemptEvidence]], tuple[str, ...], tuple[str, ...]]:
    """Part members so that all of a part are equal but for free parameters; the largest part first.

    Gives the parts, the free parameters that vary, and what parts them.
    """
    own = [parameters(one, known) for one in members]
    changing = varying(own)
    fixed = tuple(name for name in changing if name not in free)
    parts: dict[tuple[object, ...], list[AttemptEvidence]] = defaultdict(list)
    for one, values in zip(members, own, strict=True):
        parts[(one.gpu_model, one.image, *(values.get(name) for name in fixed))].append(one)
    ordered = sorted(parts.values(), key=lambda part: -sum(one.gpu_seconds.allocated for one in part))
    also = [
        word
        for column, word in (("gpu_model", "GPU model"), ("image", "image"))
        if len({getattr(one, column) for one in members}) > 1
    ]
    return ordered, tuple(name for name in changing if name in free), (*fixed, *also)
