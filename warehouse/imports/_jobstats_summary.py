"""Summaries that jobstats leaves in Slurm's AdminComment: ``JS1:`` and gzip'd JSON in base64.

Format: PrincetonUniversity/jobstats, ``docs/setup/summaries.md``. Utilization is a mean in percent over the job, memory
of a GPU the highest that was seen, ``total_time`` of a node its CPU seconds.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from warehouse.contract.model import AttemptSummary
from warehouse.imports._values import BadRowError

SOURCE: Final = "jobstats"
MARK: Final = "JS1:"
NOTHING: Final = frozenset({"", "JS1:Short", "JS1:None"})
"""What stands there where a job was too short for a summary, or none could be made."""

MOST_BYTES: Final = 16 * 1024**2
"""The largest summary unpacked; those of jobs on thousands of GPUs are below one megabyte."""

_GZIP: Final = zlib.MAX_WBITS | 16


@dataclass(frozen=True, slots=True)
class GpuMean:
    """One GPU of a job: its node and index, and what is known of it."""

    node: str
    index: str
    util_ratio: float | None
    memory_peak_bytes: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A job's summary; ``elapsed_seconds`` None: not told."""

    gpus: tuple[GpuMean, ...]
    cpu_seconds: float | None
    elapsed_seconds: float | None

    def row(self, attempt_key: str) -> AttemptSummary | None:
        """Give the means over an attempt; None where nothing is known. GPUs without a mean are not covered."""
        ratios = [gpu.util_ratio for gpu in self.gpus if gpu.util_ratio is not None]
        peaks = [gpu.memory_peak_bytes for gpu in self.gpus if gpu.memory_peak_bytes is not None]
        load = (
            self.cpu_seconds / self.elapsed_seconds if self.cpu_seconds is not None and self.elapsed_seconds else None
        )
        if not ratios and not peaks and load is None:
            return None
        return AttemptSummary(
            attempt_key=attempt_key,
            source=SOURCE,
            coverage_ratio=len(ratios) / len(self.gpus) if ratios else 1.0,
            coverage_assumed=True,
            driver_util_ratio=sum(ratios) / len(ratios) if ratios else None,
            gpu_memory_peak_bytes=max(peaks, default=None),
            cpu_load_count=load,
        )


def summary(text: str) -> Summary | None:
    """Read a comment: a summary, or its JSON in plain; None where there is none.

    Raises:
        BadRowError: it begins like a summary, and is damaged.

    """
    if text in NOTHING or not text.startswith((MARK, "{")):
        return None
    try:
        body = text.encode() if text.startswith("{") else _unpacked(text.removeprefix(MARK))
        document = json.loads(body)
    except (ValueError, binascii.Error, zlib.error, RecursionError) as cause:
        raise BadRowError("damaged summary", f"AdminComment is {text[:60]!r}: {cause}") from cause
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), dict):
        raise BadRowError("damaged summary", "expected an object with nodes")
    nodes = {str(name): node for name, node in document["nodes"].items() if isinstance(node, dict)}
    cpu = [seconds for node in nodes.values() if (seconds := _number(node.get("total_time"))) is not None]
    return Summary(
        gpus=tuple(gpu for name, node in nodes.items() for gpu in _gpus(name, node)),
        cpu_seconds=sum(cpu) if cpu else None,
        elapsed_seconds=_number(document.get("total_time")),
    )


def _unpacked(text: str) -> bytes:
    unpacker = zlib.decompressobj(_GZIP)
    plain = unpacker.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    if not unpacker.eof:
        raise ValueError(f"cut short, or more than {MOST_BYTES} bytes")
    return plain


def _gpus(name: str, node: Mapping[str, Any]) -> Iterator[GpuMean]:
    parts = {key: node.get(key) for key in ("gpu_utilization", "gpu_used_memory", "gpu_total_memory")}
    known = {key: part if isinstance(part, dict) else {} for key, part in parts.items()}
    for index in sorted({str(index) for part in known.values() for index in part}):
        percent = _number(known["gpu_utilization"].get(index))
        if percent is not None and percent > 100:  # noqa: PLR2004 - percent
            raise BadRowError("impossible value", f"GPU {index} of {name[:80]} is {percent:g} % busy")
        memory = _number(known["gpu_used_memory"].get(index))
        yield GpuMean(name, index, None if percent is None else percent / 100, memory)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e18 else None  # noqa: PLR2004 - no amount of a job
