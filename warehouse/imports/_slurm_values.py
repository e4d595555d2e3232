"""The notations of Slurm's accounting: states, sizes, durations, trackable resources, job ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from warehouse.contract.model import AttemptState
from warehouse.imports._values import BadRowError, whole

NOTHING = frozenset({"", "Unknown", "UNKNOWN", "None", "NONE", "N/A", "(null)", "0"})
"""What Slurm writes for a time that is not set. 0 is its inner value for it."""

STATES: dict[str, AttemptState] = {
    "BOOT_FAIL": AttemptState.NODE_FAIL,
    "CANCELLED": AttemptState.CANCELLED,
    "COMPLETED": AttemptState.COMPLETED,
    "COMPLETING": AttemptState.RUNNING,
    "CONFIGURING": AttemptState.RUNNING,
    "DEADLINE": AttemptState.TIMEOUT,
    "FAILED": AttemptState.FAILED,
    "LAUNCH_FAILED": AttemptState.FAILED,
    "NODE_FAIL": AttemptState.NODE_FAIL,
    "OUT_OF_MEMORY": AttemptState.OUT_OF_MEMORY,
    "PENDING": AttemptState.PENDING,
    "PREEMPTED": AttemptState.PREEMPTED,
    "REQUEUED": AttemptState.REQUEUED,
    "REQUEUE_FED": AttemptState.PENDING,
    "REQUEUE_HOLD": AttemptState.PENDING,
    "RESIZING": AttemptState.RUNNING,
    "REVOKED": AttemptState.CANCELLED,
    "RUNNING": AttemptState.RUNNING,
    "SIGNALING": AttemptState.RUNNING,
    "SPECIAL_EXIT": AttemptState.PENDING,
    "STAGE_OUT": AttemptState.RUNNING,
    "STOPPED": AttemptState.RUNNING,
    "SUSPENDED": AttemptState.RUNNING,
    "TIMEOUT": AttemptState.TIMEOUT,
}
"""Slurm's job states (sacct(1), JOB STATE CODES). A suspended or completing job still holds its GPUs."""

LIVE_STATES = frozenset({AttemptState.PENDING, AttemptState.RUNNING})

_GPU_HASH = "7696487"
"""How old sacct writes the gres ``gpu`` where its name is not configured: the letters g, p, u as one number."""

_CACHED_TEXTS = 1024
"""Readings of texts that come again and again (states, resources of a partition's jobs) are kept up to this number."""

_STATE = re.compile(r"[A-Z][A-Z_]{1,30}\Z", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGTPE]?)([nc]?)\Z", re.ASCII)
_SCALE = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5, "E": 1024**6}
_DURATION = re.compile(r"(?:([0-9]{1,6})-)?(?:([0-9]{1,3}):)?([0-9]{1,3}):([0-9]{2})(?:\.([0-9]{1,9}))?\Z", re.ASCII)
_MOST_DIGITS = 20
_JOB_ID = re.compile(
    r"([0-9]{1,20})(?:_([0-9]{1,10})|\+([0-9]{1,6})|(_\[[^\]|.]*\]))?(?:\.([A-Za-z0-9_+-]{1,64}))?\Z", re.ASCII
)
_STEPS = frozenset({"batch", "extern", "0", "1", "2"})
"""Steps of most jobs; others are read by the pattern."""

_INDEX = re.compile(r"\([^)]*\)")


class JobId(NamedTuple):
    """A job id as sacct shows it: ``19_3``, ``26+1``, ``2145_[4-190%2]``, each with ``.step`` where it is a step."""

    number: str
    array_index: int | None
    het_offset: int | None
    is_array_rest: bool
    step: str | None

    @property
    def shown(self) -> str:
        """Give the id without the step."""
        if self.array_index is not None:
            return f"{self.number}_{self.array_index}"
        return self.number if self.het_offset is None else f"{self.number}+{self.het_offset}"


@dataclass(frozen=True, slots=True)
class Gpus:
    """Some GPUs of one model; None: the model is not said."""

    model: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asked for; None: it does not say."""

    gpu_count: float | None
    cpu_count: int | None
    node_count: int | None
    memory_bytes: int | None


def job_id(column: str, text: str) -> JobId:
    """Read a job id.

    Raises:
        BadRowError: not a job id.

    """
    if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit():
        return JobId(text, None, None, is_array_rest=False, step=None)
    number, _, step = text.partition(".")
    if len(number) <= _MOST_DIGITS and number.isascii() and number.isdigit() and step in _STEPS:
        return JobId(number, None, None, is_array_rest=False, step=step)
    match = _JOB_ID.match(text)
    if match is None:
        raise BadRowError("bad job id", f"{column} is {text!r}; expected such as 1234, 1234_5, 1234+1 or 1234.batch")
    number, index, offset, rest, step = match.groups()
    return JobId(number, _int(index), _int(offset), rest is not None, step)


@lru_cache(maxsize=_CACHED_TEXTS)
def state(text: str) -> AttemptState:
    """Read a job state; a word that this version does not know is ``UNKNOWN``.

    Raises:
        BadRowError: not a state at all, which tells that the columns of the row are shifted.

    """
    word = text.partition(" ")[0].removesuffix("+")
    found = STATES.get(word)
    if found is None:
        if not _STATE.match(word):
            raise BadRowError("bad state", f"State is {text!r}; expected such as COMPLETED or CANCELLED by 0")
        return AttemptState.UNKNOWN
    return found


@lru_cache(maxsize=_CACHED_TEXTS)
def seconds(text: str) -> float | None:
    """Read ``[days-][hours:]minutes:seconds[.fraction]``; None where it is something else."""
    match = _DURATION.match(text)
    if match is None:
        return None
    days, hours, minutes, rest, fraction = match.groups()
    full = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + int(rest)
    return full + float(f"0.{fraction}") if fraction else float(full)


def size_bytes(text: str, *, nodes: int | None = None, cpus: int | None = None) -> int | None:
    """Read ``64G``, ``2.5M`` or, per node and per CPU, ``64Gn`` and ``4Gc``; None where it is something else."""
    if (
        text[-1:] in _SCALE
        and text[-1:]
        and len(text) < _MOST_DIGITS
        and (plain := text[:-1]).isdigit()
        and plain.isascii()
    ):
        return int(plain) * _SCALE[text[-1]]
    match = _SIZE.match(text)
    if match is None:
        return None
    amount, scale, per = match.groups()
    times = {"": 1, "n": nodes, "c": cpus}[per]
    return None if times is None else round(float(amount) * _SCALE[scale] * times)


@lru_cache(maxsize=_CACHED_TEXTS)
def request(text: str, memory: str) -> Request:
    """Read what a job asked for, ReqTRES and (where that says nothing about memory) ReqMem.

    Raises:
        BadRowError: a count is negative or no number.

    """
    asked = _resources(text)
    cpus, nodes = asked.get("cpu"), asked.get("node")
    cpu_count = None if cpus is None else whole("ReqTRES cpu", cpus)
    node_count = None if nodes is None else whole("ReqTRES node", nodes)
    return Request(
        gpu_count=float(sum(held.count for held in gpus("ReqTRES", text))) if text else None,
        cpu_count=cpu_count,
        node_count=node_count,
        memory_bytes=size_bytes(asked.get("mem") or memory, nodes=node_count, cpus=cpu_count),
    )


@lru_cache(maxsize=_CACHED_TEXTS)
def gpus(column: str, text: str) -> tuple[Gpus, ...]:
    """Read the GPUs of a list of trackable resources, by model.

    ``gres/gpu`` and ``gres/gpu:MODEL`` count the same cards and are never added: what the models do not explain of
    the total has no model. A total smaller than its parts is a site that counts only some; the parts are taken.

    Raises:
        BadRowError: a count is negative or no number.

    """
    if "gres/gpu" not in text:
        return ()
    total = 0
    typed: dict[str, int] = {}
    for name, amount in _resources(text).items():
        if name == "gres/gpu":
            total = whole(f"{column} {name}", amount)
        elif name.startswith("gres/gpu:"):
            typed[name.removeprefix("gres/gpu:")] = whole(f"{column} {name}", amount)
    return _by_model(typed, total)


@lru_cache(maxsize=_CACHED_TEXTS)
def gpus_of_gres(column: str, text: str) -> tuple[Gpus, ...]:
    """Read the GPUs of the old column AllocGRES: ``gpu:2``, ``gres:gpu:a100:2(IDX:0-1)``, ``gpu:a100``.

    Raises:
        BadRowError: a count is negative or no number.

    """
    untyped = 0
    typed: dict[str, int] = {}
    for item in _INDEX.sub("", text).split(","):
        words = item.strip().removeprefix("gres:").removeprefix("gres/").split(":")
        if words[0] not in {"gpu", _GPU_HASH}:
            continue
        last = words[-1]
        has_count = len(words) > 1 and last.lstrip("-").isdecimal()
        count = whole(column, last) if has_count else 1
        model = ":".join(words[1 : -1 if has_count else None])
        if model:
            typed[model] = typed.get(model, 0) + count
        else:
            untyped += count
    return _by_model(typed, untyped + sum(typed.values()))


def _resources(text: str) -> dict[str, str]:
    """Split trackable resources such as ``cpu=4,gres/gpu:a100=2,mem=4G``."""
    return dict(item.split("=", 1) for item in text.split(",") if "=" in item)


def _by_model(typed: dict[str, int], total: int) -> tuple[Gpus, ...]:
    found = [Gpus(model, count) for model, count in sorted(typed.items()) if count]
    rest = total - sum(typed.values())
    return (*found, Gpus(None, rest)) if rest > 0 else tuple(found)


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)
