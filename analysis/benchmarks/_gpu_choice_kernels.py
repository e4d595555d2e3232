"""Kernels that ran with equal name, grid and block on two GPU models, foretold by waves."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Final

from analysis import waves
from analysis.benchmarks._outcome import Outcome
from analysis.estimate import Range
from analysis.gpu_file import read_catalogue
from analysis.occupancy import Launch
from warehouse.contract.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KERNELS: Final = "hta"
LEAST_SECONDS: Final = 20e-6
"""Shorter kernels are mostly their own start."""
_GPUS: Final = {"v100": "v100-sxm2-16", "a100": "a100-sxm4-40"}
"""What the traces come from, as far as it is told: the figures of the source are for 1555 GB/s."""


def kernel_outcomes(root: Path) -> list[Outcome]:
    """Give every kernel both ways, where it takes long enough on the GPU that it is foretold from."""
    catalogue = {gpu.id: gpu for gpu in read_catalogue().gpus}
    found: list[Outcome] = []
    for path in sorted((root / KERNELS).rglob("paired_kernels_v100_a100_*.csv")):
        try:
            rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        except (OSError, UnicodeDecodeError) as cause:
            raise BadInputError(str(path), None, f"cannot be read ({cause})") from cause
        for origin, target in (("v100", "a100"), ("a100", "v100")):
            before, after = (waves.card_of(catalogue[_GPUS[name]]) for name in (origin, target))
            if before is not None and after is not None:
                models = (catalogue[_GPUS[origin]].model, catalogue[_GPUS[target]].model)
                kernels = [(row, _kernel(row, origin)) for row in rows]
                found += [
                    _outcome(models, kernel, row, (before, after), float(row[f"{target}_median_us"]) * 1e-6)
                    for row, kernel in kernels
                    if kernel.seconds >= LEAST_SECONDS
                ]
    return found


def _kernel(row: Mapping[str, str], gpu: str) -> waves.Kernel:
    blocks, threads = (math.prod(int(size) for size in row[name].split("x")) for name in ("grid", "block"))
    launch = Launch(threads, int(float(row[f"{gpu}_regs"])), int(float(row[f"{gpu}_smem"])))
    return waves.Kernel(1.0, float(row[f"{gpu}_median_us"]) * 1e-6, blocks, launch)


def _outcome(
    models: tuple[str, str],
    kernel: waves.Kernel,
    row: Mapping[str, str],
    cards: tuple[waves.Card, waves.Card],
    truth_seconds: float,
) -> Outcome:
    before, after = cards
    likely = waves.kernel_on(kernel, before, after).likely / kernel.seconds
    spread = waves.KERNEL_HALF_WIDTH
    peaks = (before.flops_per_second, after.flops_per_second)
    baselines = {
        "peak ratio": peaks[0] / peaks[1] if peaks[0] and peaks[1] else None,
        "bandwidth ratio": before.memory_bytes_per_second / after.memory_bytes_per_second,
    }
    item = f"{row['kernel']}|{row['grid']}|{row['block']}"
    return Outcome(
        (KERNELS, *models),
        item,
        item,
        Range(likely * math.exp(-spread), likely, likely * math.exp(spread)),
        truth_seconds / kernel.seconds,
        baselines,
    )
