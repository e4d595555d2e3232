"""Whether a process is traced, and why not: what ``trueload doctor`` tells of each process on a GPU.

It looks as the agent looks, from outside: at what the process publishes, else at the environment that it was started
with and at what it has mapped. A variable that a program sets for itself later is not seen. Nothing is kept.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from collector.processes import ProcessTable
from collector.tracer import layout
from collector.tracer.find import Refused, find_memory
from collector.tracer.library import INJECTION_VARIABLE, LIBRARY_NAME
from collector.tracer.process import read_header
from collector.tracer.roster import clock_ahead_seconds, own_pid

STALE_SECONDS: Final = 10.0
"""A tracer that has not written for so long is stopped or stuck: it writes after each flush, once a second."""

MAPS_BYTES: Final = 4 * 1024**2
"""So much of a process's mappings is read: some 40,000, where PyTorch with CUDA has about 2,000."""

CUPTI_HELP: Final = (
    "install the CUPTI of the driver's CUDA release (in a container's image, too), or name its libcupti.so by "
    "TRUELOAD_CUPTI_PATH"
)
_LOST: Final = {
    layout.LOST_REFUSED: "CUPTI refuses to record for it (status {code})",
    layout.LOST_BUFFER_KEPT: "another profiler has taken its records",
    layout.LOST_CLOCK_ONLY: "another profiler has taken its records",
    layout.LOST_DETACHED: "the program has shut CUPTI down",
    layout.LOST_BUSY: "another profiler has CUPTI to itself",
}
_STEPS: Final = {
    layout.STEP_SUBSCRIBE: "CUPTI does not let it subscribe",
    layout.STEP_CALLBACKS: "CUPTI does not take its buffers",
    layout.STEP_ENABLE: "CUPTI does not initialise",
    layout.STEP_THREAD: "its thread could not be started",
}


class Sight(StrEnum):
    """What there is to say of a process; only with ``TRACED`` and ``PAUSED`` its kernel time is known."""

    TRACED = "traced"
    PAUSED = "paused"  # between two recorded parts of a duty cycle
    LOST = "lost"  # another client has CUPTI; the tracer waits
    CUPTI_MISSING = "cupti_missing"
    FAILED = "failed"  # CUPTI is there and does not work, or the tracer could not start
    STUCK = "stuck"
    ENDED = "ended"
    REFUSED = "refused"  # it publishes something that the agent does not read
    TAKEN = "variable_taken"  # CUDA_INJECTION64_PATH names another library
    NOT_ASKED = "not_asked"  # CUDA_INJECTION64_PATH is not set
    LIBRARY_MISSING = "library_missing"  # it is set to ours, and the process cannot see the file
    NOT_YET = "not_yet"  # set and there, but CUDA is not initialised
    SILENT = "silent"  # loaded, and it publishes nothing: forked from a traced process, or without memory to publish in
    NO_GPU = "no_gpu_process"
    NO_PERMISSION = "no_permission"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Tracing:
    """The answer for one process: ``reason`` is a sentence part about it, ``remedy`` what to do, if anything."""

    pid: int
    sight: Sight
    reason: str
    remedy: str = ""

    @property
    def is_traced(self) -> bool:
        """Say whether its kernel time is being told."""
        return self.sight in (Sight.TRACED, Sight.PAUSED)


def tracing_of(pid: int, root: Path = Path("/proc"), *, on_gpu: bool = False) -> Tracing:
    """Say whether the process of this host pid is traced, and why not.

    ``on_gpu`` says that the driver names it; else it is one by what it has mapped and opened. Reading needs the rights
    of the agent: those of the process's user, or SYS_PTRACE and DAC_READ_SEARCH.
    """
    folder, table = root / str(pid), ProcessTable(root)
    who = table.identity(pid)
    if who is None:
        return Tracing(pid, Sight.GONE, "there is no such process")
    try:
        with os.scandir(folder / "fd"):
            pass
        memory = find_memory(folder)
    except PermissionError:
        remedy = "run as root with SYS_PTRACE and DAC_READ_SEARCH, as the agent does"
        return Tracing(pid, Sight.NO_PERMISSION, f"{folder}/fd may not be read", remedy)
    except OSError:
        return Tracing(pid, Sight.GONE, "it has ended meanwhile")
    except Refused as refused:
        return _refused(pid, str(refused))
    if memory is None:
        return _untraced(pid, folder, table, on_gpu=on_gpu)
    return _published(pid, folder, who.start_ticks, memory)


def _refused(pid: int, why: str) -> Tracing:
    remedy = "restart it under the tracer of this installation" if "layout version" in why else ""
    return Tracing(pid, Sight.REFUSED, f"what it publishes {why}", remedy)


def _published(pid: int, folder: Path, start_ticks: int, memory: layout.Memory) -> Tracing:
    try:
        header = read_header(memory, own_pid(folder), start_ticks)
    except Refused as refused:
        return _refused(pid, str(refused))
    if header.state == layout.STATE_FAILED:
        return _failed(pid, header)
    if header.state == layout.STATE_ENDED:
        return Tracing(pid, Sight.ENDED, "it is ending; everything has been told")
    silent = time.monotonic() + clock_ahead_seconds(folder) - header.updated_at_nanoseconds / 1e9
    if silent > STALE_SECONDS:
        return Tracing(
            pid,
            Sight.STUCK,
            f"its tracer has written nothing for {silent:.0f} s: the process is stopped, or CUPTI hangs",
        )
    return _running(pid, header)


def _running(pid: int, header: layout.Header) -> Tracing:
    if header.state == layout.STATE_LOST:
        last = header.lost[-1] if header.lost else layout.Lost(0, 0, layout.LOST_BUSY, 0)
        why = _LOST.get(last.reason, "its records go elsewhere").format(code=last.code)
        return Tracing(pid, Sight.LOST, why, "end the other profiler; the tracer then goes on by itself")
    if header.state == layout.STATE_PAUSED:
        return Tracing(pid, Sight.PAUSED, "it records a part of the time (TRUELOAD_TRACER_DUTY_SECONDS)")
    if header.buffers_requested_total == 0:
        return Tracing(pid, Sight.TRACED, "it is ready, and CUDA has run nothing yet")
    return Tracing(pid, Sight.TRACED, f"{header.records_total:,} records so far")


def _failed(pid: int, header: layout.Header) -> Tracing:
    step, code = header.failure_step, header.failure_code
    if step == layout.STEP_LOAD:
        return Tracing(pid, Sight.CUPTI_MISSING, "it finds no libcupti", CUPTI_HELP)
    if step == layout.STEP_SYMBOLS:
        return Tracing(pid, Sight.CUPTI_MISSING, "the libcupti that it finds lacks calls that are needed", CUPTI_HELP)
    why = f"{_STEPS.get(step, 'the tracer could not start')} (code {code})"
    remedy = "" if step == layout.STEP_THREAD else "check that CUPTI fits the driver; " + CUPTI_HELP
    return Tracing(pid, Sight.FAILED, why, remedy)


def _untraced(pid: int, folder: Path, table: ProcessTable, *, on_gpu: bool) -> Tracing:
    mapped = _mapped(folder)
    has_cuda = any(name.startswith("libcuda.so") for name in mapped)
    if not (on_gpu or has_cuda or _opened_a_gpu(folder)):
        return Tracing(pid, Sight.NO_GPU, "it uses no GPU")
    named = table.environ(pid).get(INJECTION_VARIABLE, "")
    if LIBRARY_NAME in mapped:
        why = "the tracer is loaded and publishes nothing: a fork of a traced process, or no memory to publish in"
        return Tracing(pid, Sight.SILENT, why, "name a log file by TRUELOAD_TRACER_LOG" if on_gpu else "")
    if not named:
        remedy = "start it by `trueload agent wrap -- COMMAND`, or set the variable (docs/tracer.md)"
        return Tracing(pid, Sight.NOT_ASKED, f"{INJECTION_VARIABLE} was not set when it started", remedy)
    if Path(named).name != LIBRARY_NAME:
        why = f"{INJECTION_VARIABLE} is taken by {named}"
        return Tracing(pid, Sight.TAKEN, why, "one process has one injection library; run it without the other tool")
    if not (folder / "root" / named.lstrip("/")).is_file():
        why = f"{named} is not there for the process"
        return Tracing(pid, Sight.LIBRARY_MISSING, why, "mount the library at that path into its container")
    return Tracing(pid, Sight.NOT_YET, "it has not initialised CUDA")


def _mapped(folder: Path) -> set[str]:
    """Give the names, without folders, of the files that a process has mapped."""
    try:
        with (folder / "maps").open("rb") as opened:
            text = opened.read(MAPS_BYTES)
    except OSError:
        return set()
    lines = (line.split(None, 5) for line in text.splitlines())
    return {line[5].rpartition(b"/")[2].decode("utf-8", "replace") for line in lines if len(line) > 5}  # noqa: PLR2004


def _opened_a_gpu(folder: Path) -> bool:
    """Say whether it has a device file of the driver open."""
    try:
        with os.scandir(folder / "fd") as entries:
            return any(_link(entry.path).startswith("/dev/nvidia") for entry in entries)
    except OSError:
        return False


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
