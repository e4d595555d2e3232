"""What reading traced processes costs the agent: so many processes that run kernels, and the source that reads them."""

from __future__ import annotations

import ctypes
import os
import select
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from collector.aggregate import Moment
from collector.source import Reading, SourceContext
from collector.sources.kernels import KernelsReader
from collector.tracer import layout
from collector.tracer.bench import bench_library, traced_environment
from collector.tracer.library import library_path
from collector.tracer.published import published_memory, read_header
from warehouse.contract.errors import TrueloadError
from warehouse.contract.settings import Settings

KERNELS_PER_SECOND: Final = 1000
PIECE_SECONDS: Final = 0.1
SETTLE_SECONDS: Final = 4
"""Rounds that are not counted: until each process was found, and its first seconds are final."""


@dataclass(frozen=True, slots=True)
class ReadingFigures:
    """CPU time is that of the thread that reads; per process and second it is all of it over both."""

    processes_count: int
    rounds_count: int
    cpu_milliseconds_per_process_second: float
    slowest_round_milliseconds: float
    samples_count: int


def measure_reading(processes: int = 8, rounds: int = 10) -> ReadingFigures:
    """Read ``processes`` traced processes once a second: each runs 1,000 kernels in it, two share a device.

    Raises:
        TrueloadError: a process did not start.
    """
    devices = [f"GPU-{uuid.UUID(int=place // 2)}" for place in range(processes)]
    with running(devices) as pids:
        cards = [SimpleNamespace(uuid=device, gpu_model=None, parent_uuid=None) for device in sorted(set(devices))]
        context = SourceContext(cast("Any", SimpleNamespace(devices=cards)), Settings())
        reader = KernelsReader(context)
        on = {
            card.uuid: [pid for device, pid in zip(devices, pids, strict=True) if device == card.uuid] for card in cards
        }
        said = [Reading(device, {}, pids=tuple(numbers)) for device, numbers in on.items()]
        spent: list[float] = []
        samples = 0
        begin = time.monotonic()
        for place in range(SETTLE_SECONDS + rounds):
            time.sleep(max(0.0, begin + place - time.monotonic()))
            moment, before = Moment(time.time(), time.monotonic()), time.thread_time()
            reader.read()
            settled = reader.settled(moment, {"nvml": said}, lambda pid: f"job-{pid}")
            spent.append(time.thread_time() - before)
            samples += len(settled.records)
        reader.close()
    counted = spent[SETTLE_SECONDS:]
    return ReadingFigures(
        processes_count=processes,
        rounds_count=rounds,
        cpu_milliseconds_per_process_second=round(1e3 * statistics.fmean(counted) / processes, 3),
        slowest_round_milliseconds=round(1e3 * max(counted), 2),
        samples_count=samples,
    )


@contextmanager
def running(devices: list[str]) -> Iterator[list[int]]:
    """Have a traced process on each of these devices, by UUID; gives their numbers.

    Raises:
        TrueloadError: one did not start.
    """
    command = [sys.executable, "-m", __name__]
    root = Path(__file__).parents[2]
    defaults = {"TRUELOAD_TRACER_LATENESS_SECONDS": "2", "TRUELOAD_TRACER_HOLD_SECONDS": "60"}
    environment = traced_environment() | defaults
    children = [
        subprocess.Popen([*command, device], env=environment, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for device in devices
    ]
    try:
        for child in children:
            assert child.stdout  # noqa: S101 - for the type checker: it is a pipe
            if child.stdout.readline() != b"ready\n":
                raise TrueloadError("a process to be traced did not start; TRUELOAD_TRACER_LOG names a file for why")
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.communicate(b"\n")  # it ends by itself


def _run_kernels(device: str) -> None:
    """Be a traced process, until a line comes."""
    tracer, bench = ctypes.CDLL(str(library_path())), ctypes.CDLL(str(bench_library()))
    tracer.InitializeInjection()
    memory = published_memory("self")
    if memory is None:
        raise TrueloadError("the tracer published nothing")
    offset = read_header(memory).clock_offset_nanoseconds
    count = round(KERNELS_PER_SECOND * PIECE_SECONDS)
    places = (ctypes.c_uint64 * 3 * count)(), (ctypes.c_uint64 * 2 * count)()
    is_named = False
    while not select.select([sys.stdin], [], [], PIECE_SECONDS)[0]:
        begin = time.monotonic_ns() - round(PIECE_SECONDS * 1e9) + offset
        bench.bench_run(ctypes.c_uint64(count), ctypes.c_uint32(1), ctypes.c_uint64(begin), *places)
        if not is_named:
            is_named = True
            _name_device(device)
            sys.stdout.write("ready\n")
            sys.stdout.flush()


def _name_device(device: str) -> None:
    """Say what libcuda would have said of the device; there is none here."""
    for entry in Path("/proc/self/fd").iterdir():
        if layout.NAME in str(entry.readlink()):
            descriptor = os.open(entry, os.O_RDWR)
            flags = (layout.DEVICE_USED | layout.DEVICE_HAS_UUID).to_bytes(4, "little")
            place = layout.device_span(0).offset + 4
            os.pwrite(descriptor, flags + uuid.UUID(device.partition("-")[2]).bytes, place)
            os.close(descriptor)
            return


if __name__ == "__main__":
    _run_kernels(sys.argv[1])
