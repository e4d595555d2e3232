"""Makes ``analysis/reference_times.csv`` from sources with an open licence: run as a module with their folder."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.benchmarks import _gpu_choice_sources as sources
from analysis.reference_times import COLUMNS, FILE
from analysis.transfer import WorkKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from analysis.benchmarks._gpu_choice_sources import Measured

_EVERY = 12
"""Of the thousand models of PyTorch Image Models every twelfth: more would only say the same again."""


def reference_text(root: Path) -> str:
    """Give the text of the file, from the sources below a folder."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for source, one in _measured(root):
        item = one.item.replace(one.workload, "", 1).strip("| ()")
        kinds = (one.number_type.value, one.kind.value)
        writer.writerow((source, one.workload, item, *kinds, one.gpus[0].id, f"{one.seconds:.5g}"))
    return stream.getvalue()


def _measured(root: Path) -> Iterator[tuple[str, Measured]]:
    yield from _named("zeus", _on_several(sources.zeus(root)))
    yield from _named("gavel", _on_several(sources.gavel(root, "motivation_oracle")))
    yield from _named("mlperf", _on_several(sources.mlperf(root)))
    yield from _named("timm", _every_few(root))


def _named(source: str, rows: Iterable[Measured]) -> Iterator[tuple[str, Measured]]:
    return ((source, one) for one in rows)


def _on_several(rows: Iterable[Measured]) -> list[Measured]:
    found = list(rows)
    gpus: dict[str, set[str]] = {}
    for one in found:
        gpus.setdefault(one.item, set()).add(one.gpus[0].id)
    return sorted((one for one in found if len(gpus[one.item]) > 1), key=lambda one: one.item)


def _every_few(root: Path) -> Iterator[Measured]:
    """Take inference, in all layouts, compiled and not."""
    pairs = [pair for pair in sources.timm(root) if pair.origin.kind == WorkKind.INFERENCE]
    chosen = set(sorted({pair.origin.workload for pair in pairs})[::_EVERY])
    rows: dict[tuple[str, str], Measured] = {}
    for pair in pairs:
        if pair.origin.workload in chosen:
            for one in (pair.origin, pair.target):
                rows[one.item, one.model] = one
    return iter(_on_several(rows[key] for key in sorted(rows)))


if __name__ == "__main__":
    target = Path(__file__).parent.parent / FILE
    target.write_text(reference_text(Path(sys.argv[1])), encoding="utf-8")
