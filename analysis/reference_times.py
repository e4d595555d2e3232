"""The reference measurements that come with the program: the same work on several GPUs, all openly licensed.

``reference_times.csv`` holds seconds for the same amount of work, one row a measurement, from: Zeus (SymbioticLab,
Apache-2.0: epochs at the highest power limit), Gavel (stanford-futuredata, MIT: iterations of jobs alone on a GPU, of
its motivation table; the V100 of the other is partly filled in), MLPerf training (facts of the logs of rounds 2.1, 3.0
and 4.1: median time to target on eight accelerators), PyTorch Image Models (huggingface, Apache-2.0: time of an image,
every twelfth model by name). ``analysis.benchmarks._reference`` makes the file from the sources.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from analysis.gpu_file import read_catalogue
from analysis.transfer import Learned, NumberType, Reference, WorkKind

if TYPE_CHECKING:
    from analysis.gpu_catalogue import Gpu

FILE = "reference_times.csv"
COLUMNS = ("source", "workload", "configuration", "number_type", "kind", "gpu", "seconds")
REFERENCE_GPU = "a100-sxm4-80"

_WORD = re.compile(r"[a-z]+")


def workload_family(name: str) -> str:
    """Give the first word of a workload's name: ``resnet`` of resnet50 and ResNet-18, so that neither tells the other.

    Cross-validation leaves whole families out, in all sources at once.
    """
    found = _WORD.search(name.lower())
    return found.group() if found else name


@cache
def references() -> tuple[Reference, ...]:
    """Read the reference measurements, by piece of work."""
    gpus = {gpu.id: gpu for gpu in read_catalogue().gpus}
    rows: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    text = files("analysis").joinpath(FILE).read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        rows[tuple(row[name] for name in COLUMNS[:5])][row["gpu"]] = float(row["seconds"])
    found: list[Reference] = []
    for (source, workload, _, number_type, kind), seconds in rows.items():
        on: tuple[tuple[Gpu, float], ...] = tuple((gpus[gpu], value) for gpu, value in seconds.items())
        found.append(Reference(source, workload_family(workload), NumberType(number_type), WorkKind(kind), on))
    return tuple(found)


@cache
def learned() -> Learned:
    """Give the model of ``transfer`` after it has seen the reference measurements."""
    reference_gpu = next(gpu for gpu in read_catalogue().gpus if gpu.id == REFERENCE_GPU)
    return Learned(reference_gpu, references())
