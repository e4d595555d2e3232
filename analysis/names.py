"""What a job's name says about the work: its words, and the parts that change from one repeat to the next.

People number, date and parametrise the names of repeated jobs (``unet_lr0.01_seed3``, ``230207_spatial_6_v_60``).
Masking those parts leaves the words; the leading word names the work. Numbers, dates, hashes and hyper-parameters are
kept as *axes*, so that a family can say what varies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from os.path import commonprefix
from typing import TYPE_CHECKING

from warehouse.contract.settings import AnySetting, Setting, Settings

INTERACTIVE_WORDS = Setting(
    "families",
    "interactive_words",
    (
        *("interactive", "bash", "sh", "zsh", "fish", "csh", "tcsh", "shell", "salloc", "srun", "tmux", "screen"),
        *("test", "tests", "testing", "debug", "notebook", "jupyter", "jupyterhub", "jupyterlab", "ipython"),
        *("vscode", "tunnel", "rstudio", "desktop", "vnc", "ondemand", "spawner"),
    ),
    "words",
    "A name made of these (and filler) is a session or a trial by a person, which is never the same work twice.",
)
FILLER_WORDS = Setting(
    "families",
    "filler_words",
    ("gpu", "job", "session", "node", "my", "sys", "dashboard", "slurm", "run", "lab", "server", "dev", "bc", "code"),
    "words",
    "Words that do not turn an interactive name (gpu_test, jupyter-lab, sys/dashboard) into the name of work.",
)
GENERIC_WORDS = Setting(
    "families",
    "generic_words",
    (
        *("train", "training", "run", "eval", "evaluate", "infer", "inference", "predict", "finetune", "pretrain"),
        *("exp", "experiment", "test", "model", "main", "start", "launch", "python", "py", "script", "gpu", "my"),
        *("new", "old", "final", "multi", "single", "benchmark", "sweep", "the"),
    ),
    "words",
    "Words that many kinds of work share: the word after them counts as well (train_unet is not train_bert).",
)
PLACEHOLDER_WORDS = Setting(
    "families",
    "placeholder_words",
    ("wrap", "sbatch", "name", "jobname", "job", "slurm", "unnamed", "noname", "none", "null", "default", "submit"),
    "words",
    "Names that a scheduler or an anonymiser gave, not a person: they say nothing about the work.",
)
PARAMETER_WORDS = Setting(
    "families",
    "parameter_words",
    (
        *("lr", "wd", "bs", "batch", "batchsize", "seed", "fold", "cv", "epoch", "epochs", "ep", "rep", "repeat"),
        *("replica", "run", "trial", "iter", "step", "steps", "rank", "part", "chunk", "split", "idx", "id", "v"),
        *(
            "ver",
            "version",
            "dropout",
            "dim",
            "hidden",
            "layers",
            "heads",
            "depth",
            "n",
            "k",
            "task",
            "no",
            "nr",
            "num",
        ),
    ),
    "words",
    "Followed by a number they are a hyper-parameter or a running number, which varies within the same work.",
)
SETTINGS: tuple[AnySetting, ...] = (
    INTERACTIVE_WORDS,
    FILLER_WORDS,
    GENERIC_WORDS,
    PLACEHOLDER_WORDS,
    PARAMETER_WORDS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUFFIX = re.compile(r"\.(sh|bash|slurm|sbatch|job|cmd|py)$")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DAY = r"(?<!\d)(19|20)\d\d([-_.]?)(0\d|1[0-2])\2([0-2]\d|3[01])"
_TIME_OF_DAY = r"([-_t ]([01]\d|2[0-3])[-_:.]?[0-5]\d([-_:.]?[0-5]\d)?)?(?!\d)"
_DATE = re.compile(_DAY + _TIME_OF_DAY)
_NEGATIVE_EXPONENT = re.compile(r"(?<=\d)e-(?=\d)")
_SEPARATORS = re.compile(r"[\s_\-/:,;|=()\[\]{}]+|(?<!\d)\.|\.(?!\d)")
_NUMBER = re.compile(r"\d+(\.\d+)?(e[~+]?\d+)?")
_HASH = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{6,}|[0-9a-f]{32,}")
_LONGEST_NAME_CHARACTERS = 1000
"""Slurm allows 64 KiB of name; what names the work stands at its beginning."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The word lists of the settings, ready to be looked up."""

    interactive: frozenset[str]
    filler: frozenset[str]
    generic: frozenset[str]
    placeholder: frozenset[str]
    parameter: frozenset[str]


@dataclass(frozen=True, slots=True)
class NameParts:
    """A name taken apart. ``words`` are lower case with ``#`` for digits inside; ``axes`` are (axis, value) pairs."""

    words: tuple[str, ...]
    axes: tuple[tuple[str, str], ...]


def vocabulary(settings: Settings) -> Vocabulary:
    """Give the word lists that are in force."""
    return Vocabulary(
        interactive=frozenset(settings[INTERACTIVE_WORDS]),
        filler=frozenset(settings[FILLER_WORDS]),
        generic=frozenset(settings[GENERIC_WORDS]),
        placeholder=frozenset(settings[PLACEHOLDER_WORDS]),
        parameter=frozenset(settings[PARAMETER_WORDS]),
    )


@lru_cache(maxsize=65536)
def take_apart(name: str, known: Vocabulary) -> NameParts:
    """Split a name into the words that name the work and the axes that vary within it."""
    text = _SUFFIX.sub("", name[:_LONGEST_NAME_CHARACTERS].strip().casefold())
    axes: list[tuple[str, str]] = []
    for axis, pattern, signs in (("hash", _UUID, ("-",)), ("date", _DATE, ("19", "20"))):
        if any(sign in text for sign in signs):  # far cheaper than the pattern, and most names have neither
            axes += [(axis, match.group()) for match in pattern.finditer(text)]
            text = pattern.sub(" ", text)
    words: list[str] = []
    parameter: str | None = None
    for token in _SEPARATORS.split(_NEGATIVE_EXPONENT.sub("e~", text)):
        if not token:
            continue
        parameter = _read_token(token, parameter, known, words, axes)
    return NameParts(_shared(tuple(words)), tuple(axes))


@lru_cache(maxsize=65536)
def _shared(words: tuple[str, ...]) -> tuple[str, ...]:
    """Give the same object for the same words: a million names have few."""
    return words


@lru_cache(maxsize=65536)
def _pair(axis: str, value: str) -> tuple[str, str]:
    """Give the same object for the same value of an axis."""
    return (axis, value)


def _read_token(
    token: str, parameter: str | None, known: Vocabulary, words: list[str], axes: list[tuple[str, str]]
) -> str | None:
    """File one token; give it back if it is a word whose number may follow as the next token (``lr 0.1``)."""
    if _NUMBER.fullmatch(token):
        if parameter is not None:
            words.pop()
        axes.append(_pair(parameter or "number", token))
        return None
    if _HASH.fullmatch(token):
        axes.append(_pair("hash", token))
        return None
    masked = _NUMBER.sub("#", token)
    numbers = ",".join(match.group() for match in _NUMBER.finditer(token))
    bare = masked.strip("#")
    if masked == f"{bare}#" and bare in known.parameter:
        axes.append(_pair(bare, numbers))
        return None
    if numbers:
        axes.append(_pair("number", numbers))
    words.append(bare or masked)
    return token if token in known.parameter else None


def pattern(names: Sequence[str]) -> str:
    """Give what some names have in common as a person would write it: digits as ``#``, ``…`` where they part.

    One name is its own pattern. Empty when the names have no beginning in common.
    """
    if len(set(names)) == 1:
        return names[0]
    masked = {_NUMBER.sub("#", name[:_LONGEST_NAME_CHARACTERS]) for name in names}
    if len(masked) == 1:
        return masked.pop()
    shared = commonprefix(list(masked))  # noqa: RUF071 - characters are compared, these are no paths
    return f"{shared}…" if shared else ""


def is_interactive(parts: NameParts, known: Vocabulary) -> bool:
    """Say whether the name is a session's or a trial's: all its words are interactive ones or filler."""
    words = set(parts.words)
    return bool(words & known.interactive) and words <= known.interactive | known.filler


def stem(parts: NameParts, known: Vocabulary) -> tuple[str, ...]:
    """Give the leading words up to the first that is not generic; empty when the name says nothing.

    A single letter is too little to name work, and counts as generic.
    """
    words = [word for word in parts.words if word not in known.placeholder]
    for count, word in enumerate(words, start=1):
        if is_telling(word, known):
            return tuple(words[:count])
    return tuple(words)


def is_telling(word: str, known: Vocabulary) -> bool:
    """Say whether a word alone can name work."""
    return len(word) > 1 and word not in known.generic
