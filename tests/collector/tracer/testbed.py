"""A CUDA application on a machine without a GPU, with the tracer in it: what the tests of the tracer stand on."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import build_native
from collector.tracer import layout
from warehouse.contract.intervals import clip, intersect, length, subtract, union

NATIVE = Path(__file__).with_name("native")
TRACER = build_native.ROOT / "collector" / "tracer"
SECOND = 10**9
RELEASES = {"12.1": 120100, "12.9": 120900, "13.0": 130000, "13.2": 130200, "13.4": 130400}
"""Releases of CUPTI that the stand-in can be, newest last."""

MEMCPY, MEMSET, PEER = 1, 2, 22
Interval = tuple[int, int]


@dataclass(frozen=True)
class Bench:
    """The compiled parts: an application, a libcuda, a libcupti for each release, and the tracer."""

    folder: Path
    tracer: Path

    def cupti(self, release: str) -> Path:
        """Give the stand-in for libcupti of this release; a folder of its own, for the names are alike."""
        return self.folder / release / f"libcupti.so.{release.split('.', maxsplit=1)[0]}"

    def environment(self, release: str, **more: str) -> dict[str, str]:
        """Give the environment of a traced application, which itself loads nothing."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TRUELOAD_", "CUDA_"))}
        return {
            **inherited,
            "LD_LIBRARY_PATH": str(self.folder),
            "CUDA_INJECTION64_PATH": str(self.tracer),
            "TRUELOAD_CUPTI_PATH": str(self.cupti(release)),
            "FAKE_CUPTI": str(self.cupti(release)),
            **more,
        }


def compile_testbed(folder: Path, compiler: Sequence[str], tracer: Path | None = None) -> Bench:
    """Compile everything with this compiler; without ``tracer`` the tracer too, else that one is used."""
    warnings = ["-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", f"-I{TRACER}", f"-I{NATIVE}"]
    shared = [*compiler, *warnings, "-fPIC", "-shared", "-fvisibility=hidden"]
    commands = [
        [*shared, str(NATIVE / "fake_cuda.c"), "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")],
        [*compiler, *warnings, "-std=gnu11", str(NATIVE / "application.c"), "-o", str(folder / "application")],
    ]
    for release, number in RELEASES.items():
        (folder / release).mkdir()
        name = f"libcupti.so.{release.split('.')[0]}"
        source = [f"-DFAKE_VERSION={number}", str(NATIVE / "fake_cupti.c"), f"-Wl,-soname,{name}"]
        commands.append([*shared, *source, "-o", str(folder / release / name)])
    if tracer is None:
        tracer = folder / "libtrueload_tracer.so"
        commands.append([*shared, "-std=c11", *map(str, sorted(TRACER.glob("*.c"))), "-o", str(tracer)])
    for command in commands:
        done = subprocess.run([*command, "-ldl", "-lpthread"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return Bench(folder, tracer)


def build_tracer() -> None:
    """Compile what the tracer and its benchmark consist of, and no other library."""
    ours = tuple(entry for entry in build_native.LIBRARIES if entry.output.startswith("libtrueload_tracer"))
    build_native.build(build_native.ROOT, ours)


ZIG = (sys.executable, "-m", "ziglang", "cc", "-O2")


@dataclass(frozen=True)
class Trace:
    """A copy of everything that a process has published."""

    header: layout.Header
    seconds: dict[int, layout.Second]
    devices: dict[int, layout.DeviceTotals]
    buckets: dict[tuple[int, int], layout.Bucket]
    slots: dict[tuple[int, int], tuple[int, ...]]
    kernels: list[layout.Kernel]

    def bucket(self, device: int, second: int) -> layout.Bucket:
        """Give the bucket of a device and second, all zero when there is none."""
        return self.buckets.get((device, second), layout.Bucket(second, *[0] * 13))


def read_trace(memory: memoryview) -> Trace:
    """Copy and parse all of it."""
    whole = layout.read_together(memory, [layout.Span(0, layout.TOTAL_BYTES)])
    assert whole is not None
    content = memoryview(whole[0])
    header = layout.parse_header(content)
    assert layout.is_ours(header)
    devices, buckets, slots = {}, {}, {}
    for ordinal in range(layout.DEVICES_MAX):
        totals = layout.parse_device(_piece(content, layout.device_span(ordinal)))
        if not totals.flags & layout.DEVICE_USED:
            continue
        devices[ordinal] = totals
        for place in range(layout.SECONDS_MAX):
            bucket, shares = layout.parse_bucket(_piece(content, layout.bucket_span(ordinal, place)))
            if bucket.second:
                buckets[ordinal, bucket.second], slots[ordinal, bucket.second] = bucket, tuple(shares)
    kernels = layout.parse_kernels(_piece(content, layout.KERNELS_SPAN), header.kernels_used)
    return Trace(header, layout.parse_seconds(_piece(content, layout.SECONDS_SPAN)), devices, buckets, slots, kernels)


def _piece(content: memoryview, span: layout.Span) -> memoryview:
    return content[span.offset : span.offset + span.length]


def find_memory(pid: int) -> int | None:
    """Open the memory that a process publishes, as the agent does; ``None`` when it publishes none."""
    folder = Path("/proc") / str(pid) / "fd"
    for entry in folder.iterdir():
        try:
            if entry.readlink() == Path(f"/memfd:{layout.NAME} (deleted)"):
                return os.open(entry, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
    return None


class Application:
    """A traced process that does as it is told (``native/application.c``), and what it publishes."""

    def __init__(self, testbed: Bench, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [str(testbed.folder / "application")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._memory: memoryview | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    def tell(self, *lines: str) -> list[str]:
        """Have commands carried out, and give the answer to each."""
        assert self.process.stdin
        assert self.process.stdout
        answers: list[str] = []
        for at in range(0, len(lines), 500):  # so that neither pipe fills
            some = lines[at : at + 500]
            self.process.stdin.write("".join(f"{line}\n" for line in some))
            self.process.stdin.flush()
            answers += [self.process.stdout.readline().rstrip("\n") for _ in some]
        return answers

    def do(self, *lines: str) -> None:
        """Have commands carried out that have nothing to say."""
        answers = self.tell(*lines)
        assert answers == ["ok"] * len(lines), (answers, self.process.poll())

    def start(self, *before: str) -> Self:
        """Let it initialise CUDA, and find what the tracer publishes."""
        self.do(*before, "init")
        descriptor = find_memory(self.process.pid)
        assert descriptor is not None
        try:
            self._memory = memoryview(mmap.mmap(descriptor, layout.TOTAL_BYTES, prot=mmap.PROT_READ))
        finally:
            os.close(descriptor)
        return self

    @property
    def memory(self) -> memoryview:
        """The published memory; it stays readable after the process has gone."""
        assert self._memory is not None
        return self._memory

    def header(self) -> layout.Header:
        """Read the header."""
        pieces = layout.read_together(self.memory, [layout.HEADER_SPAN])
        assert pieces is not None
        return layout.parse_header(pieces[0])

    def trace(self) -> Trace:
        """Read everything."""
        return read_trace(self.memory)

    def end(self, how: str = "exit 0") -> Trace:
        """Let it leave, and read what it leaves behind."""
        assert self.process.stdin
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == int(how.split()[1]), (self.process.returncode, errors)
        assert errors == ""
        return self.trace()

    def wait_for(self, what: str, is_so: object, seconds: float = 20) -> Trace:
        """Read until a trace fits, or fail naming what was waited for."""
        assert callable(is_so)
        deadline = time.monotonic() + seconds
        while True:
            trace = self.trace()
            if is_so(trace):
                return trace
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}; {trace.header}"
            time.sleep(0.02)


@dataclass(frozen=True)
class Work:
    """One piece of work on a device, in nanoseconds of the tracer's own clock. ``kind`` ``None`` is a kernel."""

    device: int
    start: int
    end: int
    kind: int | None = None
    lane: int = 0
    name: str = "kernel"
    correlation: int = 0

    def line(self, clock_offset: int) -> str:
        """Give the command that makes it happen."""
        start, end = self.start + clock_offset, self.end + clock_offset
        if self.kind is not None:
            return f"copy {self.lane} {self.kind} {self.device} {start} {end}"
        return f"kernel {self.lane} {self.device} {start} {end} {self.correlation} {self.name} 80 256 32 0 0"


@dataclass(frozen=True)
class Expected:
    """What a device's account of one second must say, from sets of intervals in exact integers."""

    kernel_busy: int
    copy_busy: int
    any_busy: int
    kernel_sum: int
    copy_sum: int
    kernels: int
    copies: int
    gaps: int
    overhead_idle: int
    slots: tuple[int, ...]


def expect(work: Iterable[Work], overheads: Iterable[Interval], device: int, second: int, since: int) -> Expected:
    """Work out one second of a device that has been idle since the start of the account, by another way than C's."""
    kernels = [(piece.start, piece.end) for piece in work if piece.device == device and piece.kind is None]
    copies = [(piece.start, piece.end) for piece in work if piece.device == device and piece.kind is not None]
    begin, stop = second * SECOND, (second + 1) * SECOND
    busy = union([*kernels, *copies])
    idle = subtract([(since, stop)], busy)
    kernel_union = clip(union(kernels), begin, stop)
    return Expected(
        kernel_busy=length(kernel_union),
        copy_busy=length(clip(union(copies), begin, stop)),
        any_busy=length(clip(busy, begin, stop)),
        kernel_sum=length(clip(kernels, begin, stop)),
        copy_sum=length(clip(copies, begin, stop)),
        kernels=sum(begin <= start < stop for start, _ in kernels),
        copies=sum(begin <= start < stop for start, _ in copies),
        gaps=sum(begin <= start < stop for start, _ in busy[1:]),
        overhead_idle=length(clip(intersect(idle, union(overheads)), begin, stop)),
        slots=_slots(kernel_union, begin),
    )


def _slots(kernel_union: list[Interval], begin: int) -> tuple[int, ...]:
    covered = [0] * layout.SLOTS_MAX
    for start, end in kernel_union:
        for slot in range((start - begin) // 10**6, (end - 1 - begin) // 10**6 + 1):
            low, high = begin + slot * 10**6, begin + (slot + 1) * 10**6
            covered[slot] += min(end, high) - max(start, low)
    return tuple((nanoseconds * layout.SLOT_FULL + 500_000) // 10**6 for nanoseconds in covered)


def found(trace: Trace, device: int, second: int) -> Expected:
    """What the tracer says of the same."""
    bucket = trace.bucket(device, second)
    return Expected(
        kernel_busy=bucket.kernel_busy_nanoseconds,
        copy_busy=bucket.copy_busy_nanoseconds,
        any_busy=bucket.any_busy_nanoseconds,
        kernel_sum=bucket.kernel_sum_nanoseconds,
        copy_sum=bucket.copy_sum_nanoseconds,
        kernels=bucket.kernels,
        copies=bucket.copies,
        gaps=bucket.gaps,
        overhead_idle=bucket.overhead_idle_nanoseconds,
        slots=trace.slots.get((device, second), (0,) * layout.SLOTS_MAX),
    )
