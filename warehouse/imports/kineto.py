"""Timelines of the PyTorch profiler (Kineto): JSON, plain or packed, of one rank or a folder of ranks.

This is the one place where a profiler's file becomes a timeline; ``trueload trace`` reads through it without a store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.contract.errors import BadInputError
from warehouse.importer import Altered, Imported, Importer, ImportOptions, Rejected
from warehouse.imports._kineto_file import NoTimelineError, read_file
from warehouse.imports._kineto_records import SOURCE, profile_of, records_of
from warehouse.imports._values import BadRowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from warehouse.timeline import Timeline

SUFFIXES = (".json", ".json.gz")

__all__ = ["IMPORTER", "NoTimelineError", "read_timeline", "trace_files"]


def _ignore(_bytes: int) -> None:
    pass


def read_timeline(path: Path, consumed: Callable[[int], None] = _ignore) -> Timeline:
    """Read one rank's profile. ``consumed`` is told how many bytes of the file have been read.

    Raises:
        BadInputError: the file cannot be read, is cut short, or is no profiler's timeline; it says at which byte.

    """
    return read_file(path, consumed)


def trace_files(path: Path) -> list[Path]:
    """Give the files of a profile: the file itself, or those of a folder that end in .json or .json.gz, by name.

    Raises:
        BadInputError: a folder without any.

    """
    if not path.is_dir():
        return [path]
    found = sorted(entry for entry in path.rglob("*") if entry.name.endswith(SUFFIXES) and entry.is_file())
    if not found:
        raise BadInputError(str(path), None, f"is a folder without profiles; expected files ending in {SUFFIXES}")
    return found


def read(path: Path, options: ImportOptions) -> Iterator[Imported | Rejected]:
    """Give one record for every rank; see ``Importer.read``. In a folder, a broken file costs only itself."""
    files = trace_files(path)
    for number, file in enumerate(files, 1):
        try:
            yield _record(file, number, options)
        except BadInputError as error:
            if not path.is_dir():
                raise
            yield Rejected(number, "no profile", str(error))
        except BadRowError as bad:
            yield Rejected(number, bad.reason, f"{file}: {bad.detail}" if path.is_dir() else bad.detail)


def _record(file: Path, number: int, options: ImportOptions) -> Imported:
    timeline = read_timeline(file, options.consumed)
    profile = profile_of(timeline)
    altered = tuple(
        Altered("traceEvents", f"{refused.reason}, left out", f"{refused.count} events, first at {refused.place}")
        for refused in timeline.refused
    )
    content = f"{options.cluster}\x1f{profile.name}"
    return Imported(number, f"{SOURCE}-{profile.name}", content, records_of(profile, options), altered)


EXAMPLE = """\
{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
  "traceEvents": [
  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 100, "tid": 100,
    "ts": 1000.000, "dur": 60.000,
    "args": {
      "External id": 1
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 100,
    "ts": 1005.000, "dur": 20.500,
    "args": {
      "External id": 2
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100,
    "ts": 1010.250, "dur": 5.000,
    "args": {
      "External id": 2, "cbid": 211, "correlation": 7
    }
  },
  {
    "ph": "X", "cat": "kernel", "name": "ampere_sgemm_128x64_nn", "pid": 0, "tid": 7,
    "ts": 1020.000, "dur": 30.125,
    "args": {
      "External id": 2, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 7,
      "registers per thread": 122, "shared memory": 12544, "grid": [8, 16, 5], "block": [128, 1, 1]
    }
  },
  {
    "ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0, "tid": 7,
    "ts": 1045.000, "dur": 15.000,
    "args": {
      "External id": 3, "device": 0, "context": 1, "stream": 7, "correlation": 8, "bytes": 4096
    }
  }
  ],
  "traceName": "rank-0.json",
  "baseTimeNanoseconds": 1790000000000000000
}
"""

IMPORTER = Importer(
    name=SOURCE,
    description="Reads timelines of the PyTorch profiler: kernels by launch configuration, and how busy devices were.",
    example=EXAMPLE,
    read=read,
    gives="GPU-bound time and kernels of one profile, with its job where the profile names it",
)
