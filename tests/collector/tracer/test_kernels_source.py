"""The source that reads traced processes, before real ones: what it tells of them and of their devices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import build_native
from collector import settings as names
from collector.aggregate import Moment, Row
from collector.source import Reading, SourceContext
from collector.sources import kernels
from collector.sources.kernels import KernelsReader
from collector.tracer import layout
from collector.tracer import roster as roster_module
from collector.tracer import settings as own
from collector.tracer.roster import REFUSALS_MAX
from tests.collector.tracer.testbed import SECOND, Application, Bench, Work
from warehouse.contract.model import KernelProfile, LengthProfile, ProcessSample
from warehouse.contract.settings import Settings

DEVICE = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
QUICK = {"TRUELOAD_TRACER_FLUSH_SECONDS": "0.05", "TRUELOAD_TRACER_LATENESS_SECONDS": "0.5"}
KERNEL_SECONDS = 0.25


def device(uuid: str, parent_uuid: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(uuid=uuid, gpu_model="H100", parent_uuid=parent_uuid)


class Node:
    """A reader over applications that are told what to run, as the agent drives it: round by round."""

    def __init__(self, testbed: Bench, proc: Path, **settings: float) -> None:
        """Look at those processes alone that are named below ``proc``: others may be traced beside this test."""
        self.testbed = testbed
        self.stack = ExitStack()
        self.proc = proc
        for name in ("self", "sys"):
            (proc / name).symlink_to(f"/proc/{name}")
        place: dict[str, Any] = {names.NODE.name: "n", names.CLUSTER.name: "c", names.PROC_ROOT.name: str(proc)}
        values = place | {names.CADENCE_SECONDS.name: 1.0} | settings
        self.driver = SimpleNamespace(devices=[device(DEVICE)])
        self.reader = KernelsReader(SourceContext(cast("Any", self.driver), Settings(values)))
        self.listed_on = DEVICE
        self.rows: list[Row] = []
        self.records: list[Any] = []
        self.strangers: tuple[int, ...] = ()
        self.applications: list[Application] = []

    def start(self) -> Application:
        application = self.stack.enter_context(Application(self.testbed, self.testbed.environment("13.4", **QUICK)))
        self.join(application.start())
        return application

    def join(self, application: Application) -> None:
        self.applications.append(application)
        self.show(application.process.pid)

    def show(self, pid: int) -> None:
        (self.proc / str(pid)).symlink_to(f"/proc/{pid}")

    def round(self) -> None:
        """Let the reader look once, and take what it has to say."""
        pids = tuple(one.process.pid for one in self.applications if one.process.poll() is None)
        reading = Reading(self.listed_on, {"driver_util_ratio": 1.0}, pids=pids + self.strangers)
        self.reader.read()
        settled = self.reader.settled(
            Moment(time.time(), time.monotonic()), {"nvml": [reading]}, lambda pid: f"job-of-{pid}"
        )
        self.rows += settled.rows
        self.records += settled.records

    def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, (self.reader._roster.refused, self.rows, self.records)
            self.round()
            time.sleep(0.1)

    def samples(self, pid: int) -> list[ProcessSample]:
        return [one for one in self.records if isinstance(one, ProcessSample) and one.pid == pid]

    def bound(self, pid: int) -> float:
        return sum(one.gpu_bound_seconds or 0.0 for one in self.samples(pid))


@pytest.fixture
def node(testbed: Bench, tmp_path: Path) -> Iterator[Node]:
    made = Node(testbed, tmp_path)
    with made.stack:
        yield made
    made.reader.close()


def run_kernel(application: Application, begin: int, name: str = "_Z3addPf") -> None:
    line = Work(0, begin, begin + round(KERNEL_SECONDS * SECOND), name=name, correlation=1)
    application.do(line.line(application.header().clock_offset_nanoseconds), "step 1")


def test_processes_of_a_device_are_told_apart_and_united(node: Node) -> None:
    one, two = node.start(), node.start()
    node.round()
    now = time.monotonic_ns()
    for application in (one, two):  # at the same time: the driver lets contexts take turns, so their times add up
        run_kernel(application, now)
    pids = [application.process.pid for application in node.applications]
    node.until(lambda: all(node.bound(pid) > KERNEL_SECONDS - 0.01 for pid in pids))
    for pid in pids:
        assert node.bound(pid) == pytest.approx(KERNEL_SECONDS, abs=1e-6)
        busy = [sample for sample in node.samples(pid) if sample.gpu_bound_seconds]  # two, where a cell ends within it
        counts = [(sample.launch_count or 0, sample.kernel_count or 0) for sample in busy]
        assert [sum(column) for column in zip(*counts, strict=True)] == [1, 1]
        assert {(one.source, one.node, one.device_uuid) for one in busy} == {("kernels", "n", DEVICE)}
        assert {(one.attempt_key, one.steps_total) for one in busy} == {(f"job-of-{pid}", 1)}
        assert {one.tracing_seconds for one in busy} == {None}  # nobody calibrated
    rows = [row for row in node.rows if row.columns["gpu_bound_seconds"] > 0]
    assert sum(row.columns["gpu_bound_seconds"] for row in rows) == pytest.approx(KERNEL_SECONDS, abs=0.01)
    assert set().union(*(row.pids for row in rows)) == set(pids)
    used = node.reader.uses(DEVICE, rows[0].start_at, rows[-1].end_at)
    assert used == pytest.approx(dict.fromkeys(pids, KERNEL_SECONDS), abs=0.001)


def test_a_process_that_is_not_traced_leaves_the_device_unknown_and_the_traced_one_known(node: Node) -> None:
    node.strangers = (os.getpid(),)
    application = node.start()
    node.round()
    run_kernel(application, time.monotonic_ns())
    node.until(lambda: node.bound(application.process.pid) > KERNEL_SECONDS - 0.01)
    assert node.rows == []


def test_an_idle_holder_is_told_as_idle_and_a_card_with_instances_not_as_anything(node: Node) -> None:
    instance = DEVICE.replace("GPU-", "MIG-")
    node.driver.devices = [device("GPU-card"), device(instance, "GPU-card")]
    node.listed_on = "GPU-card"  # the driver lists the processes of instances on their card
    application = node.start()
    node.round()
    run_kernel(application, time.monotonic_ns())
    node.until(lambda: node.bound(application.process.pid) > KERNEL_SECONDS - 0.01)
    assert {one.device_uuid for one in node.samples(application.process.pid)} == {instance}
    assert {row.device_uuid for row in node.rows} <= {instance}
    node.driver.devices, node.listed_on = [device("GPU-whole"), *node.driver.devices], "GPU-whole"
    node.until(lambda: any(row.device_uuid == "GPU-whole" for row in node.rows))
    assert {row.columns["gpu_bound_seconds"] for row in node.rows if row.device_uuid == "GPU-whole"} == {0.0}


def test_what_a_process_left_when_it_ended_is_read_with_its_tables(node: Node) -> None:
    application = node.start()
    node.until(lambda: node.samples(application.process.pid))
    run_kernel(application, time.monotonic_ns())
    application.end()
    node.until(lambda: node.bound(application.process.pid) > KERNEL_SECONDS - 0.01)
    (kernel,) = (one for one in node.records if isinstance(one, KernelProfile))
    assert (kernel.kernel_name, kernel.launch_count, kernel.grid) == ("_Z3addPf", 1, "80x1x1")
    assert kernel.attempt_key == f"job-of-{application.process.pid}"
    assert kernel.total_seconds == pytest.approx(KERNEL_SECONDS)
    lengths = [one for one in node.records if isinstance(one, LengthProfile)]
    assert [(one.kind, one.length_count) for one in lengths] == [("kernel", 1)]
    assert node.reader._roster.members == {}
    assert sum(one.source_lost_seconds or 0.0 for one in node.samples(application.process.pid)) == 0


def test_seconds_in_which_records_were_dropped_are_unknown(node: Node) -> None:
    application = node.start()
    node.round()
    run_kernel(application, time.monotonic_ns())
    for lane in range(40):  # more lanes than there are buffers, each with a kernel that runs on
        application.tell(f"launch {lane} 0")
    application.wait_for("the drops", lambda trace: trace.header.dropped_total)
    now = time.monotonic_ns() + application.header().clock_offset_nanoseconds
    application.do(*(f"finish {number} {now} {now}" for number in range(32)))
    pid = application.process.pid
    node.until(lambda: sum(one.source_lost_seconds or 0.0 for one in node.samples(pid)))


def test_a_killed_process_costs_what_was_not_flushed_and_the_next_one_is_read(node: Node) -> None:
    first = node.start()
    node.until(lambda: node.samples(first.process.pid))
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    second = node.start()
    node.round()
    run_kernel(second, time.monotonic_ns())
    node.until(lambda: node.bound(second.process.pid) > KERNEL_SECONDS - 0.01)


def test_a_reader_that_comes_later_tells_nothing_of_the_time_before_it(testbed: Bench, tmp_path: Path) -> None:
    with Application(testbed, testbed.environment("13.4", **QUICK)).start() as application:
        run_kernel(application, application.header().started_at_nanoseconds - SECOND, "_Z6beforePf")
        begun = time.monotonic()
        application.wait_for("that second", lambda _: time.monotonic() > begun + 1)
        late = Node(testbed, tmp_path)
        late.join(application)
        late.until(lambda: late.samples(application.process.pid))
        run_kernel(application, time.monotonic_ns(), "_Z5afterPf")
        application.end()
        late.until(lambda: any(isinstance(one, KernelProfile) for one in late.records))
    assert late.bound(application.process.pid) <= KERNEL_SECONDS + 1e-6
    assert [one.kernel_name for one in late.records if isinstance(one, KernelProfile)] == ["_Z5afterPf"]


def test_while_much_waits_tables_are_not_added_for_they_come_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PROFILES_MAX", -1)
    application = node.start()
    run_kernel(application, time.monotonic_ns())
    node.until(lambda: node.bound(application.process.pid) > KERNEL_SECONDS - 0.01)
    assert not any(isinstance(one, KernelProfile) for one in node.records)
    monkeypatch.undo()
    application.end()
    node.until(lambda: any(isinstance(one, KernelProfile) for one in node.records))


def test_one_user_has_no_more_processes_read_than_the_limit(testbed: Bench, tmp_path: Path) -> None:
    node = Node(testbed, tmp_path, **{own.PROCESSES_PER_USER_MAX.name: 1})
    with node.stack:
        node.start(), node.start()
        node.until(lambda: node.reader._roster.refused["too many processes of one user"])
        assert len(node.reader._roster.members) == 1
    node.reader.close()


def test_owners_of_processes_that_ended_are_forgotten_and_those_alive_kept(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "OWNERS_MAX", 1)
    application = node.start()
    node.until(lambda: node.reader._owners)
    (alive,) = node.reader._owners
    node.reader._owners |= {"n/1/1": "gone", "n/2/2": "gone later"}
    node.round()
    assert list(node.reader._owners) == [alive]
    assert application.process.poll() is None


def test_kernels_beyond_the_table_reach_the_job_as_one_row(node: Node) -> None:
    application = node.start()
    node.until(lambda: node.samples(application.process.pid))
    begin = time.monotonic_ns() + application.header().clock_offset_nanoseconds
    count = layout.KERNELS_MAX + 3
    application.do(*(f"kernel 0 0 {begin} {begin + 10} {n + 1} k{n} 1 1 16 0 0" for n in range(count)))
    application.end()
    node.until(lambda: any(isinstance(one, KernelProfile) for one in node.records))
    told = [one for one in node.records if isinstance(one, KernelProfile)]
    assert sum(one.launch_count for one in told) == count
    assert [one.launch_count for one in told if one.kernel_name == "(other kernels)"] == [3]


LATE = """
import fcntl, os, sys
from collector.tracer import layout
descriptor = os.memfd_create(layout.NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.ftruncate(descriptor, layout.TOTAL_BYTES)
print("made", flush=True)
sys.stdin.readline()
fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
print("sealed", flush=True)
sys.stdin.read()
"""


def test_memory_that_is_looked_at_while_it_is_being_made_is_found_once_it_is_sealed(node: Node) -> None:
    late = subprocess.Popen(
        [sys.executable, "-c", LATE], cwd=build_native.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with late:
        assert late.stdin
        assert late.stdout
        assert late.stdout.readline() == b"made\n"
        node.show(late.pid)
        roster = node.reader._roster
        roster.update({late.pid})
        assert (roster.refused["is not sealed"], roster.members) == (1, {})
        late.stdin.write(b"seal\n")
        late.stdin.flush()
        assert late.stdout.readline() == b"sealed\n"
        roster.update({late.pid})
        assert [who.pid for who in roster.members] == [late.pid]
        late.communicate()


def test_a_search_that_takes_long_goes_on_in_the_next_round_and_whom_the_driver_names_comes_first(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster_module, "SEARCH_SECONDS", 0.0)  # one look a round
    roster, looked_at = node.reader._roster, list[int]()
    monkeypatch.setattr(roster, "_try", lambda who: looked_at.append(who.pid))
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    try:
        for one in sleepers:
            node.show(one.pid)
        first, *others = sorted(one.pid for one in sleepers)
        roster.update(set())
        roster.update({others[-1]})
        roster.update(set())
        assert looked_at == [first, others[-1], others[0]]
    finally:
        for one in sleepers:
            one.kill()
            one.wait()


HOSTILE = """
import fcntl, os, sys
from collector.tracer import layout
descriptor = os.memfd_create(layout.NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
os.ftruncate(descriptor, layout.TOTAL_BYTES)
fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
os.pwrite(descriptor, b"\\1" * 4000, 32)
print("ready", flush=True)
sys.stdin.read()
"""


def test_hostile_memory_costs_its_owner_the_reading_and_nobody_else(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    hostile = subprocess.Popen(
        [sys.executable, "-c", HOSTILE], cwd=build_native.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with hostile:
        assert hostile.stdout
        assert hostile.stdout.readline() == b"ready\n"
        node.show(hostile.pid)
        application = node.start()
        node.until(lambda: node.reader._roster.refused["is not ours"] >= REFUSALS_MAX)
        run_kernel(application, time.monotonic_ns())
        node.until(lambda: node.bound(application.process.pid) > KERNEL_SECONDS - 0.01)
        hostile.communicate()
    assert [one.traced.pid for one in node.reader._roster.members.values()] == [application.process.pid]
    told = [record.message for record in caplog.records if "is not ours" in record.message]
    assert told == ["memory that bears the tracer's name is not ours; it is not read"]
