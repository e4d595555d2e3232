"""Models on MIG slices of one A100, beside what a slice's share of the card foretells."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

from analysis.gpu_file import read_catalogue
from analysis.gpu_options import slice_time
from warehouse.contract.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

SLICES: Final = "miso_a100_mig"
_GPU, _WHOLE = "a100-sxm4-40", "7g.40gb"
_COLUMNS: Final = ("mig_slice", "model", "batch_size", "seconds")


def slice_figures(root: Path) -> dict[str, Any] | None:
    """Give by slice the mean error of the likely time, of the slice's share alone, and the share between low and high.

    None: the source is not there.
    """
    seconds = _medians(root)
    if not seconds:
        return None
    catalogue = read_catalogue()
    gpu = next(one for one in catalogue.gpus if one.id == _GPU)
    found: dict[str, Any] = {}
    for profile in catalogue.mig_profiles_of(gpu):
        name, sm, memory = profile.profile, profile.sm_ratio, profile.memory_ratio
        ratios = [
            seconds[name, *work] / whole
            for (at, *work), whole in seconds.items()
            if at == _WHOLE and (name, *work) in seconds
        ]
        if name != _WHOLE and ratios and sm and memory:
            time = slice_time(gpu, sm, memory)
            found[name] = {
                "count": len(ratios),
                "error": fmean(abs(time.likely / ratio - 1) for ratio in ratios),
                "error_of_its_share": fmean(abs(1 / sm / ratio - 1) for ratio in ratios),
                "coverage": fmean(time.low <= ratio <= time.high for ratio in ratios),
            }
    return found


def _medians(root: Path) -> dict[tuple[Any, ...], float]:
    """Give the median seconds of an iteration by slice, model and batch size, without the first of each epoch."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    values: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for path in sorted((root / SLICES).rglob("iteration_times.parquet")):
        try:
            table = parquet.read_table(path, columns=[*_COLUMNS, "iteration"])
        except (OSError, pa.ArrowException) as cause:
            raise BadInputError(str(path), None, f"cannot be read as Parquet ({cause})") from cause
        grouped = table.filter(pc.greater(table["iteration"], 0)).group_by(list(_COLUMNS[:3]))
        for row in grouped.aggregate([("seconds", "approximate_median")]).to_pylist():
            values[tuple(row[name] for name in _COLUMNS[:3])].append(row["seconds_approximate_median"])
    return {key: median(own) for key, own in values.items()}
