"""Measured speeds of the same work on several GPUs, from sources of several forms, as pairs of GPUs.

Variants of a model (form factors, memory sizes) are one GPU model here, by the median of what was measured on them.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

from analysis.gpu_file import read_catalogue
from analysis.gpu_names import find
from analysis.transfer import NumberType, WorkKind
from warehouse.contract.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from analysis.gpu_catalogue import Gpu

ZEUS, GAVEL, LAMBDA = "zeus_measured", "gavel_throughputs", "lambda_gpu_benchmarks"
MLPERF, TIMM = "mlperf_training", "timm_benchmarks"

_COUNT = re.compile(r"(\d+)x(?=[A-Z]+\d)")
_LAMBDA_OTHER = frozenset({"name_gpu", "num_gpu", "watt", "price", "Unnamed: 0", ""})
_MLPERF_GPUS_PER_NODE = 8
_GAVEL_JOB = re.compile(r"\('(?P<name>[^']+)', 1\)")


@dataclass(frozen=True, slots=True)
class Measured:
    """One piece of work on one GPU model: seconds for the same amount of it. ``gpus`` are the variants it may be."""

    source: str
    workload: str
    item: str
    gpus: tuple[Gpu, ...]
    seconds: float
    number_type: NumberType
    kind: WorkKind

    @property
    def model(self) -> str:
        """Give the GPU model that the variants share."""
        return self.gpus[0].model


@dataclass(frozen=True, slots=True)
class Pair:
    """The same work on two GPU models."""

    origin: Measured
    target: Measured

    @property
    def key(self) -> tuple[str, str, str]:
        """Give what pairs are judged by: source, from, to."""
        return (self.origin.source, self.origin.model, self.target.model)

    @property
    def ratio(self) -> float:
        """Give the measured time on the target over that on the origin."""
        return self.target.seconds / self.origin.seconds


@cache
def gpus_of(name: str) -> tuple[Gpu, ...]:
    """Give the GPUs that a row's name means: of its runs of words, the longest that names any; none, if none does."""
    words = [word for word in re.split(r"[ _]+", name) if word]
    catalogue = read_catalogue()
    for size in range(len(words), 0, -1):
        for start in range(len(words) - size + 1):
            found = find(catalogue, " ".join(words[start : start + size]))
            if len({gpu.model for gpu in found}) == 1:
                return found
    return ()


def pairs_of(measured: Iterable[Measured], fewest_workloads: int = 5) -> list[Pair]:
    """Give all ordered pairs of GPU models on which a source has at least some workloads in common."""
    by_item: dict[tuple[str, str], dict[str, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for one in measured:
        by_item[one.source, one.item][one.model].append(one)
    found = [
        Pair(_median(by_model[origin]), _median(by_model[target]))
        for by_model in by_item.values()
        for origin, target in itertools.permutations(sorted(by_model), 2)
    ]
    counts: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for pair in found:
        counts[pair.key].add(pair.origin.workload)
    return [pair for pair in found if len(counts[pair.key]) >= fewest_workloads]


def _median(rows: Sequence[Measured]) -> Measured:
    """Take variants of a model together."""
    first = rows[0]
    gpus = {gpu.id: gpu for row in rows for gpu in row.gpus}
    return Measured(
        first.source,
        first.workload,
        first.item,
        tuple(gpus.values()),
        median(row.seconds for row in rows),
        first.number_type,
        first.kind,
    )


# ------------------------------------------------------------------------------------------------------------- sources


def zeus(root: Path) -> Iterator[Measured]:
    """Give the seconds of an epoch at the highest power limit that was tried."""
    for path in sorted((root / ZEUS).rglob("summary_power_*.csv")):
        gpus = gpus_of(_spaced(path.stem.rpartition("_")[2]))
        best: dict[str, tuple[float, str, float]] = {}
        for row in _rows(path):
            item = "|".join(row[name] for name in ("dataset", "network", "batch_size", "optimizer"))
            limit = float(row["power_limit"])
            if item not in best or limit > best[item][0]:
                best[item] = (limit, row["network"], float(row["time_per_epoch"]))
        for item, (_, workload, seconds) in best.items():
            if gpus:
                yield Measured(ZEUS, workload, item, gpus, seconds, NumberType.SINGLE, WorkKind.TRAINING)


def gavel(root: Path, table: str = "simulation") -> Iterator[Measured]:
    """Give the seconds of an iteration of the jobs on one GPU, alone, of one of the source's tables."""
    for path in sorted((root / GAVEL).rglob(f"{table}_throughputs.json.gz")):
        for gpu, jobs in _json(path).items():
            gpus = gpus_of(gpu)
            for job, others in jobs.items():
                match = _GAVEL_JOB.fullmatch(job)
                name = match["name"] if match else job
                rate = others.get("null")
                if isinstance(rate, list):
                    rate = rate[0]
                if "unconsolidated" in gpu or not gpus or not rate or (job.startswith("(") and not match):
                    continue
                workload = name.partition(" (")[0]
                yield Measured(GAVEL, workload, name, gpus, 1 / rate, NumberType.SINGLE, WorkKind.TRAINING)


def lambda_gpus(root: Path) -> Iterator[Measured]:
    """Give the seconds of a unit of work on one GPU. Newer containers are another item: software differs."""
    for number_type in NumberType:
        for version in ("", "-v2"):
            for path in sorted((root / LAMBDA).rglob(f"pytorch-train-throughput{version}-{number_type}.csv")):
                if path.parent.name != "csv_v1_v2":  # the same rows again
                    yield from _lambda_rows(path, version, number_type)


def _lambda_rows(path: Path, version: str, number_type: NumberType) -> Iterator[Measured]:
    for row in _rows(path):
        name = next(iter(row.values()))
        told = _COUNT.findall(name)
        count = float(row["num_gpu"]) if row.get("num_gpu") else float(told[-1]) if told else 1.0
        gpus = gpus_of(name)
        for task, text in row.items():
            if task in _LAMBDA_OTHER or count != 1 or not gpus or not text or float(text) <= 0:
                continue
            item = f"{task}|{number_type}{version}"
            yield Measured(LAMBDA, task, item, gpus, 1 / float(text), number_type, WorkKind.TRAINING)


def mlperf(root: Path) -> Iterator[Measured]:
    """Give the median seconds to the target quality on one node of eight accelerators."""
    runs: dict[tuple[str, tuple[str, ...]], list[float]] = defaultdict(list)
    gpus: dict[tuple[str, ...], tuple[Gpu, ...]] = {}
    for path in sorted((root / MLPERF).rglob("runs.csv.gz")):
        for row in _rows(path):
            if row["status"] != "success" or row["number_of_nodes"] not in {"1", "1.0"}:
                continue
            if float(row["accelerators_per_node"] or 0) != _MLPERF_GPUS_PER_NODE:
                continue
            found = gpus_of(re.sub(r"[-(),]", " ", row["accelerator_model_name"]))
            if found:
                ids = tuple(gpu.id for gpu in found)
                gpus[ids] = found
                runs[row["benchmark"], ids].append((float(row["run_stop_ms"]) - float(row["run_start_ms"])) / 1e3)
    for (benchmark, ids), seconds in runs.items():
        yield Measured(MLPERF, benchmark, benchmark, gpus[ids], median(seconds), NumberType.HALF, WorkKind.TRAINING)


def timm(root: Path) -> list[Pair]:
    """Give pairs of the same model, image size, number type, layout and way to compile.

    Each pair of GPUs is taken at the newest version of the framework that both have, else each at its own newest.
    """
    tables: dict[tuple[str, ...], dict[str, dict[int, Path]]] = defaultdict(lambda: defaultdict(dict))
    variants: dict[str, tuple[Gpu, ...]] = {}
    for path in sorted((root / TIMM).rglob("benchmark-*.csv.gz")):
        _, mode, numbers, layout, version, *rest = path.name.removesuffix(".csv.gz").split("-")
        is_compiled = rest[-1] == "dynamo"
        gpu = next(word for word in reversed(rest) if word != "dynamo")
        gpus = gpus_of(_spaced(gpu))
        if gpus:
            found = tables[mode, numbers, layout, "dynamo" if is_compiled else ""]
            found[gpus[0].model][int(version.removeprefix("pt"))] = path
            variants[gpus[0].model] = gpus
    pairs: list[Pair] = []
    for config, by_gpu in tables.items():
        for origin, target in itertools.permutations(by_gpu, 2):
            both = by_gpu[origin].keys() & by_gpu[target].keys()
            chosen = [by_gpu[model][max(both or by_gpu[model])] for model in (origin, target)]
            pairs += _timm_pairs(config, [variants[origin], variants[target]], chosen)
    return pairs


def _timm_pairs(config: tuple[str, ...], gpus: Sequence[tuple[Gpu, ...]], paths: Sequence[Path]) -> Iterator[Pair]:
    mode = config[0]
    kind = WorkKind.TRAINING if mode == "train" else WorkKind.INFERENCE
    speeds = [_timm_speeds(path, mode) for path in paths]
    for (model, size), speed in speeds[0].items():
        other = speeds[1].get((model, size))
        if other is not None:
            item = "|".join((model, size, *filter(None, config)))
            first, second = (
                Measured(TIMM, model, item, own, 1 / value, NumberType.HALF, kind)
                for own, value in zip(gpus, (speed, other), strict=True)
            )
            yield Pair(first, second)


@cache
def _timm_speeds(path: Path, mode: str) -> Mapping[tuple[str, str], float]:
    return {
        (row["model"], row[f"{mode}_img_size"]): float(row[f"{mode}_samples_per_sec"])
        for row in _rows(path)
        if row[f"{mode}_samples_per_sec"]
    }


def _spaced(name: str) -> str:
    """Part letters from digits: ``pro6000maxq`` as ``pro 6000 maxq``. A name without digits in between stays."""
    return re.sub(r"(?<=[a-z]{3})(?=\d)|(?<=\d)(?=[a-z]{4})", " ", name)


SOURCES: Mapping[str, Callable[[Path], list[Pair]]] = {
    ZEUS: lambda root: pairs_of(zeus(root)),
    GAVEL: lambda root: pairs_of(gavel(root)),
    LAMBDA: lambda root: pairs_of(lambda_gpus(root)),
    MLPERF: lambda root: pairs_of(mlperf(root)),
    TIMM: timm,
}
"""By folder: the pairs of a source; none where the folder is absent."""


# ------------------------------------------------------------------------------------------------------------- reading


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, gzip.BadGzipFile, UnicodeDecodeError) as cause:
        raise BadInputError(str(path), None, f"cannot be read ({cause})") from cause


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_text(path))))


def _json(path: Path) -> dict[str, Any]:
    document = json.loads(_text(path))
    if not isinstance(document, dict):
        raise BadInputError(str(path), None, "is no JSON object")
    return document
