"""Which GPU of the catalogue a name means, as a driver, a scheduler, a price list or a person spells it.

A name that fits no GPU in full fits none: figures of another card would be worse than no figures.
"""

from __future__ import annotations

import re

from analysis.gpu_catalogue import Catalogue, Gpu
from warehouse.contract.units import BYTES_PER_GIB

LONGEST_NAME = 200
"""Drivers give at most 96 characters (``NVML_DEVICE_NAME_V2_BUFFER_SIZE``); what is longer names no GPU."""

_OPTIONAL = frozenset({"nvidia", "tesla", "geforce", "quadro", "rtx", "amd", "instinct"})
"""Words of a model's name that its users leave out; none of them tells two models of the catalogue apart."""
_EMPTY = frozenset({"gpu", "hbm2", "hbm2e", "hbm3", "hbm3e"})
"""Words that say nothing of the model."""
_REWRITES = (
    (re.compile(r"^gpu:|(?<=[a-z0-9]):\d+$"), ""),  # gpu:a100:4, as Slurm writes it
    (
        re.compile(r"[ _-]*(\bmig\b[ _-]*)?(?<!\d)\d{1,2}g\.\d{1,3}gb.*$"),
        "",
    ),  # a slice of the card named before
    (re.compile(r"-shared$"), ""),  # as Kubernetes marks time slicing
    (re.compile(r"\([^()]*\)"), " "),
    (re.compile(r"[^a-z0-9]+"), " "),
    (re.compile(r"^ *\d+ ?x ?(?=[a-z])"), ""),  # 8x H100
    (re.compile(r"\b(rtx|gtx|titan)(?=\d)"), r"\1 "),
    (re.compile(r"(?<=\d{4})ti\b"), " ti"),
    (re.compile(r"\bmax q\b"), "maxq"),
    (re.compile(r"\b(\d{1,3}) ?gi?b?\b"), r"\1gb"),
)


def find(catalogue: Catalogue, name: str) -> tuple[Gpu, ...]:
    """Give the GPUs that a name means: none when it is unknown, several when it leaves the variant open.

    An id, or a name that a driver prints, means exactly one. Otherwise the name must have all words that make the
    model, and no word that the variant has not: form factor and memory size, where said, choose among variants.
    """
    if len(name) > LONGEST_NAME:
        return ()
    asked = _spelled(name)
    exact = tuple(gpu for gpu in catalogue.gpus if asked in {_spelled(own) for own in (gpu.id, *gpu.nvml_names)})
    if exact:
        return exact
    words = frozenset(asked.split()) - _EMPTY
    return tuple(gpu for gpu in catalogue.gpus if _made_of(gpu) <= words <= _own_words(gpu) | _OPTIONAL)


def _spelled(name: str) -> str:
    """Give a name in one spelling: words in small letters between single spaces."""
    text = name.casefold()
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    return " ".join(text.split())


def _words(name: str) -> frozenset[str]:
    return frozenset(_spelled(name).split())


def _made_of(gpu: Gpu) -> frozenset[str]:
    words = _words(gpu.model)
    return words - _OPTIONAL or words


def _own_words(gpu: Gpu) -> frozenset[str]:
    names = (gpu.id, gpu.name, gpu.model, gpu.form_factor, *gpu.nvml_names)
    words = {word for name in names for word in _words(name)}
    if gpu.memory_bytes is not None:
        words.add(f"{round(gpu.memory_bytes / BYTES_PER_GIB)}gb")
    if any(word.startswith("sxm") for word in words):
        words.add("sxm")
    return frozenset(words)
