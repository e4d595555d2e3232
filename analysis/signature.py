"""The signature of a job: what it has in common with every repeat of the same work.

It is a function of the job alone (and of the word lists), never of the other jobs around it. So a family keeps its id
from week to week, and a million jobs are grouped in one pass.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.names import NameParts, Vocabulary, is_interactive, is_telling, stem, take_apart

if TYPE_CHECKING:
    from analysis.evidence import AttemptEvidence

_LAUNCHERS = frozenset(
    {
        "sbatch",
        "srun",
        "mpirun",
        "mpiexec",
        "bash",
        "sh",
        "python",
        "python3",
        "torchrun",
        "accelerate",
        "launch",
        "env",
    }
)
_NOTHING = NameParts((), ())


@dataclass(frozen=True, slots=True)
class Signature:
    """What makes jobs the same work: ``key`` is compared, ``basis`` says it in words.

    ``words`` are the leading words that the names share, if the names count; ``otherwise`` stands for them if not.
    """

    key: tuple[str, ...]
    whose: str
    basis: str
    words: tuple[str, ...]
    otherwise: str

    @property
    def family_id(self) -> str:
        """Give the stable id of the family: a hash of the key."""
        digest = hashlib.blake2b(json.dumps(self.key).encode(), digest_size=8)
        return f"f-{digest.hexdigest()}"


def name_parts(job: AttemptEvidence, known: Vocabulary) -> NameParts:
    """Take the job's name apart; a job without a name has no parts."""
    return take_apart(job.name, known) if job.name else _NOTHING


def is_session(job: AttemptEvidence, parts: NameParts, known: Vocabulary) -> bool:
    """Say whether a person sat before the job: the scheduler says so, or its name does."""
    return bool(job.interactive) or is_interactive(parts, known)


def signature(job: AttemptEvidence, parts: NameParts, known: Vocabulary) -> Signature | None:
    """Give the job's signature, or None when nothing tells what work it is.

    In order: the leading words of the name; where these are generic or missing, the program, image or working
    directory beside them; where there is nothing of the kind, the resources that were asked for.
    """
    owner = job.user or job.account
    whose = f"user {job.user}" if job.user else f"account {job.account}" if job.account else "unknown owner"
    where = (job.cluster, owner or "")
    words = stem(parts, known)
    text = " ".join(words)
    if words and is_telling(words[-1], known):
        return Signature((*where, "name", text), whose, "", words, "")
    program = _program(job, known)
    if program is not None:
        kind, value = program
        return Signature((*where, kind, text, value), whose, f"same {kind} ({value})", words, value)
    if text:
        return Signature((*where, "name", text), whose, "", words, "")
    return _request(job, where, whose) if owner else None


def _program(job: AttemptEvidence, known: Vocabulary) -> tuple[str, str] | None:
    """Give what is run: the script of the command, else the image, else the directory it runs in."""
    script = _script(job.command) if job.command else None
    if script:
        return "program", script
    if job.image:
        return "image", job.image.partition("@")[0]
    if job.work_dir:
        return "working directory", _sweep_root(job.work_dir, known)
    return None


def _script(command: str) -> str | None:
    try:
        tokens = shlex.split(command)
    except ValueError:
        tokens = command.split()
    for token in tokens:
        base = posixpath.basename(token)
        if not token.startswith("-") and "=" not in token and base and base not in _LAUNCHERS:
            return base
    return None


def _sweep_root(work_dir: str, known: Vocabulary) -> str:
    """Leave out trailing folders that only number or parametrise a run (``…/sweep/seed_3`` is ``…/sweep``)."""
    path = posixpath.normpath(work_dir)
    while posixpath.dirname(path) not in {"", path} and not take_apart(posixpath.basename(path), known).words:
        path = posixpath.dirname(path)
    return path


def _request(job: AttemptEvidence, where: tuple[str, str], whose: str) -> Signature:
    limit = "unknown" if job.time_limit_seconds is None else f"{job.time_limit_seconds:g} s"
    asked = (
        f"{job.gpu_count:g} GPU",
        f"{job.node_count or 1} node",
        f"partition {job.partition or 'unknown'}",
        f"time limit {limit}",
    )
    text = ", ".join(asked)
    return Signature((*where, "request", *asked), whose, f"no telling names, same request ({text})", (), text)
