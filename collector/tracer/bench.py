"""What the tracer costs in CUPTI's completion callback, and whether its union is exact: measured without a GPU.

A stand-in for libcupti (``collector/simulate/cupti``) fills the tracer's own buffers with kernels in a process of its
own and times each return. A plain walk over the same buffers is timed beside it: on a busy machine the ratio holds
where nanoseconds do not.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import timeit
from dataclasses import dataclass
from pathlib import Path

from collector.tracer import layout
from collector.tracer.library import INJECTION_VARIABLE, LIBRARY_NAME, library_path
from collector.tracer.published import published_memory, read_header, read_piece
from collector.tracer.steps import step
from warehouse.contract.errors import TrueloadError
from warehouse.contract.intervals import length, union

_SECOND = 10**9
_STEPS = 20_000
_POOL_BYTES = 32 * 96 * 1024
"""What ``pool.c`` lends. It lies among the program's own heap, where it cannot be told apart, so it counts whole."""


@dataclass(frozen=True, slots=True)
class TracerFigures:
    """The figures of one run.

    ``callback_nanoseconds_per_record`` and ``walk_nanoseconds_per_record`` are medians over buffers;
    ``step_nanoseconds`` is one ``trueload.step()`` from Python, the mean of the quickest of some rounds;
    ``difference_nanoseconds`` is the tracer's busy time minus the exact union: 0 or wrong. ``resident_bytes`` is the
    memory that the tracer's own code, variables and published state occupy, with all its buffers, lent or not.
    """

    records_count: int
    streams_count: int
    callback_nanoseconds_per_record: float
    walk_nanoseconds_per_record: float
    callback_to_walk_ratio: float
    step_nanoseconds: float
    busy_nanoseconds: int
    difference_nanoseconds: int
    refused_buffers_count: int
    resident_bytes: int


def measure(records: int = 1_000_000, streams: int = 4) -> TracerFigures:
    """Have a process of its own take ``records`` kernels on ``streams`` streams (1 to 16).

    Raises:
        TrueloadError: the compiled parts are missing or do not run here.
    """
    for library in (library_path(), bench_library()):
        if not library.exists():
            raise TrueloadError(f"{library}: not compiled; run python build_native.py, or install trueload anew")
    child = subprocess.Popen(
        [sys.executable, "-m", "collector.tracer.bench", str(records), str(streams)],
        env=traced_environment(),
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout  # noqa: S101 - for the type checker: all three are pipes
        told = child.stdout.readline()  # then it waits, so that its memory can be found
        memory = published_memory(child.pid) if told else None
        _, errors = child.communicate("")
    if child.returncode != 0 or memory is None:
        raise TrueloadError(f"the measured process failed ({child.returncode}): {errors.strip() or 'no message'}")
    return _figures(json.loads(told), memory)


def _figures(told: dict[str, float], memory: memoryview) -> TracerFigures:
    header, device = read_header(memory), layout.parse_device(read_piece(memory, layout.device_span(0)))
    busy = device.kernel_busy_nanoseconds_total
    return TracerFigures(
        records_count=header.records_total,
        streams_count=int(told["streams"]),
        callback_nanoseconds_per_record=round(told["callback"], 1),
        walk_nanoseconds_per_record=round(told["walk"], 2),
        callback_to_walk_ratio=round(told["callback"] / told["walk"], 1),
        step_nanoseconds=round(told["step"], 1),
        busy_nanoseconds=busy,
        difference_nanoseconds=busy - int(told["expected"]),
        refused_buffers_count=header.buffers_refused_total,
        resident_bytes=int(told["resident"]),
    )


def traced_environment() -> dict[str, str]:
    """Give the environment of a process that is measured: the tracer, and what stands in for libcupti."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRUELOAD_TRACER_")}
    return inherited | {
        "TRUELOAD_CUPTI_PATH": str(bench_library()),
        INJECTION_VARIABLE: str(library_path()),  # where trueload.step looks
        # Nothing is closed on account of its age: the kernels are run faster than time passes.
        "TRUELOAD_TRACER_LATENESS_SECONDS": "1000",
        "TRUELOAD_TRACER_HOLD_SECONDS": "1000",
    }


class _Timing(ctypes.Structure):
    _fields_ = (
        ("records", ctypes.c_uint64),
        ("walk_nanoseconds", ctypes.c_uint64),
        ("callback_nanoseconds", ctypes.c_uint64),
    )


def bench_library() -> Path:
    """Say where the stand-in for libcupti lies, whose ``bench_run`` runs kernels."""
    folder = Path(__file__).parents[1] / "simulate" / "cupti" / "lib"
    return folder / platform.machine() / "libtrueload_tracer_bench.so"


def _resident_bytes() -> int:
    """Sum what belongs to the tracer: its library, zero-initialised variables after it, what it publishes, buffers."""
    resident, ours = _POOL_BYTES, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        mapping = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s*(.*)$", line)
        if mapping:
            ours = LIBRARY_NAME in mapping[1] or layout.NAME in mapping[1] or (ours and mapping[1] == "")
        elif ours and line.startswith("Rss:"):
            resident += int(line.split()[1]) * 1024
    return resident


def _be_measured(records: int, streams: int) -> None:
    """Be the measured process: an application with the tracer in it."""
    tracer, bench = ctypes.CDLL(str(library_path())), ctypes.CDLL(str(bench_library()))
    bench.bench_run.restype = ctypes.c_uint64
    tracer.InitializeInjection()
    memory = published_memory("self")
    if memory is None:
        raise TrueloadError("the tracer published nothing; set TRUELOAD_TRACER_LOG to a file to see why")
    header = read_header(memory)
    begin = (header.started_at_nanoseconds // _SECOND - 50) * _SECOND + header.clock_offset_nanoseconds
    timings, intervals = (_Timing * records)(), (ctypes.c_uint64 * 2 * records)()
    arguments = (ctypes.c_uint64(records), ctypes.c_uint32(streams), ctypes.c_uint64(begin))
    buffers = bench.bench_run(*arguments, timings, intervals)
    if not buffers:
        raise TrueloadError(f"the tracer lent no buffer (state {header.state}, step {header.failure_step})")
    told = {
        "streams": streams,
        "step": min(timeit.repeat(step, number=_STEPS, repeat=5)) / _STEPS * _SECOND,
        "resident": _resident_bytes(),
        "callback": statistics.median(time.callback_nanoseconds / time.records for time in timings[:buffers]),
        "walk": statistics.median(time.walk_nanoseconds / time.records for time in timings[:buffers]),
        "expected": length(union((start, end) for start, end in intervals)),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _be_measured(int(sys.argv[1]), int(sys.argv[2]))
