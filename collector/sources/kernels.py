"""What traced processes tell of themselves: when kernels and copies ran, to the nanosecond.

Processes that use a GPU are looked through for the memory that the tracer publishes (``collector/tracer/README.md``).
A second becomes certain some seconds later; then it goes into the account of its process and of its devices.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector.aggregate import Row
from collector.source import Settled, Source, SourceContext
from collector.tracer import settings as own
from collector.tracer.book import Book, Process, Stretch, Told
from collector.tracer.correction import Stretch as Corrected
from collector.tracer.correction import removed_seconds
from collector.tracer.find import Refused
from collector.tracer.launch_costs import Measured, Setup, cost_of, read
from collector.tracer.profiles import COUNT_MAX, Profile
from collector.tracer.roster import Limits, Member, Roster
from warehouse.contract.duty_cycle import Estimate
from warehouse.contract.errors import BadInputError
from warehouse.contract.model import KernelProfile, LengthProfile, ProcessSample

if TYPE_CHECKING:
    from collector.aggregate import Moment
    from collector.source import Reading

LOG = logging.getLogger("trueload.kernels")
NAME: Final = "kernels"
HEARD_MAX: Final = 600
"""Rounds that may wait for a reader that is stuck; older ones are forgotten."""

DONE_MAX: Final = 20_000
PROFILES_MAX: Final = 10_000
"""With so much waiting to be taken no profile is added: a profile comes again, a stretch of time does not."""

OWNERS_MAX: Final = 10_000
"""Owners that are remembered, of those that ended the newest: far more than end before their cells close."""

USES_KEPT: Final = 1024
"""Stretches that were just settled: more than 16 cards with 7 instances each tell, though each have some breaks."""

NOBODY_SECONDS: Final = 5
"""Cells without any traced process stay open this long: one that has just begun is found within it."""


class KernelsReader:
    """Reads on its own lane; what is ready is taken by the agent's thread. Between them lie two queues."""

    def __init__(self, context: SourceContext) -> None:
        """Read below the ``/proc`` of the settings."""
        from collector import settings as names  # which imports this module for its constant

        settings = context.settings
        self._driver = context.driver
        self._place = (settings[names.CLUSTER], settings[names.NODE] or socket.gethostname())
        limits = Limits(settings[own.PROCESSES_MAX], settings[own.PROCESSES_PER_USER_MAX], settings[own.SCAN_SECONDS])
        self._roster = Roster(Path(settings[names.PROC_ROOT]), self._place[1], limits)
        cadence = settings[names.CADENCE_SECONDS]
        self._book = Book(cadence, settings[own.SILENT_SECONDS], settings[own.SETTLE_SECONDS])
        self._round_seconds = settings[own.ROUND_SECONDS]
        self._profile_seconds = settings[own.PROFILE_SECONDS]
        self._costs = _costs(Path(settings[own.LAUNCH_COSTS_FILE]))
        self._since_second = int(time.monotonic())
        self._heard: deque[tuple[Moment, Mapping[str, Sequence[Reading]]]] = deque(maxlen=HEARD_MAX)
        self._done: deque[Told | Stretch | KernelProfile | LengthProfile] = deque(maxlen=DONE_MAX)
        self._owners: dict[str, str] = {}
        self._uses: deque[Stretch] = deque(maxlen=USES_KEPT)
        self._next_member = 0
        self._said: set[str] = set()

    def read(self) -> Sequence[Reading]:
        """Look at the traced processes once; what became certain waits for :meth:`settled`."""
        begin = time.monotonic()
        offset_seconds = time.time() - begin
        pids: set[int] = set()
        while self._heard:
            pids |= self._hear(*self._heard.popleft())
        self._roster.update(pids)
        self._book.overlapping = self._roster.overlapping
        devices = self._by_bare_uuid()
        for member in self._in_turn():
            self._look(member, offset_seconds, devices)
            if time.monotonic() - begin > self._round_seconds:
                break
        for member in self._roster.gone():
            self._say_goodbye(member, offset_seconds, devices)
        self._close(int(begin))
        for why in self._roster.refused.keys() - self._said:
            self._said.add(why)
            LOG.warning("memory that bears the tracer's name %s; it is not read", why)
        return []

    def settled(
        self, moment: Moment, found: Mapping[str, Sequence[Reading]], owner_of: Callable[[int], str | None]
    ) -> Settled:
        """Take what the driver said, and give what has become certain, with whose each process is."""
        self._heard.append((moment, found))
        for member in list(self._roster.members.values()):
            if member.owner is None and (owner := owner_of(member.who.pid)) is not None:
                member.owner = self._owners[member.traced.key] = owner
        self._forget_owners()
        rows: list[Row] = []
        records: list[ProcessSample | KernelProfile | LengthProfile] = []
        while self._done:
            one = self._done.popleft()
            if isinstance(one, Told):
                records.append(self._sample(one))
            elif isinstance(one, Stretch):
                self._uses.append(one)
                rows.append(_row(one))
            else:
                records.append(one)
        return Settled(rows, records)

    def _forget_owners(self) -> None:
        if len(self._owners) > OWNERS_MAX:
            alive = {member.traced.key for member in list(self._roster.members.values())}
            gone = [key for key in self._owners if key not in alive]
            for key in gone[: len(self._owners) - OWNERS_MAX]:
                del self._owners[key]

    def uses(self, device_uuid: str, start_at: float, end_at: float) -> Mapping[int, float]:
        """Give the kernel seconds by process within a stretch that was just settled."""
        used: dict[int, float] = {}
        for one in self._uses:
            if one.device == device_uuid and one.start_at < end_at and start_at < one.start_at + one.seconds:
                for pid, seconds in one.by_pid.items():
                    used[pid] = used.get(pid, 0.0) + seconds
        return used

    def close(self) -> None:
        """Let go of all memory."""
        self._roster.members.clear()

    def _hear(self, moment: Moment, found: Mapping[str, Sequence[Reading]]) -> set[int]:
        offset_seconds, second = moment.wall - moment.monotonic, int(moment.monotonic) - 1
        named: set[int] = set()
        cards = {device.parent_uuid for device in self._driver.devices}  # with MIG instances: work is theirs
        for reading in found.get("nvml", ()):
            named |= set(reading.pids or ())
            pids = None if reading.device_uuid in cards else reading.pids
            busy: dict[int | None, bool] = {
                one.pid: one.values["driver_util_ratio"] > 0
                for one in reading.processes
                if "driver_util_ratio" in one.values
            }
            busy[None] = reading.values.get("driver_util_ratio", 0.0) > 0
            self._book.hear(second, offset_seconds, reading.device_uuid, pids, busy)
        return named

    def _in_turn(self) -> Iterator[Member]:
        """Give all members, beginning where the round before stopped."""
        members = list(self._roster.members.values())
        first = self._next_member % len(members) if members else 0
        for place, member in enumerate((*members[first:], *members[:first]), start=1):
            self._next_member = first + place
            yield member

    def _by_bare_uuid(self) -> dict[str, str]:
        """Give the driver's spelling of UUIDs by what the tracer tells, without prefix."""
        return {device.uuid.partition("-")[2]: device.uuid for device in self._driver.devices}

    def _look(self, member: Member, offset_seconds: float, devices: Mapping[str, str]) -> None:
        traced = member.traced
        is_first = traced.header is None
        now_second = int(time.monotonic())
        since = self._since_second if is_first else 0
        try:
            seconds = traced.look(
                own_pid=member.own_pid,
                start_ticks=member.who.start_ticks,
                since_second=since,
                now_second=now_second,
            )
        except Refused as refused:
            self._roster.refuse(member, str(refused))
            return
        member.refusals = 0
        header = traced.header
        assert header is not None  # noqa: S101 - it was just read
        if is_first and header.started_at_nanoseconds // 10**9 + traced.clock_shift_seconds < self._since_second:
            member.unknown_before = self._since_second
            member.profile = Profile(f"{traced.key}+{now_second}", began_before=True)
        steps = header.steps_total if header.steps_total < COUNT_MAX else 0
        setup = (header.cupti_version, header.cuda_driver_version)
        process = Process(traced.key, traced.pid, steps, setup, member.unknown_before)
        self._book.add(process, (one.on(devices) for one in seconds), offset_seconds)
        self._tell_profile(member, devices, time.time())

    def _tell_profile(self, member: Member, devices: Mapping[str, str], now: float, *, last: bool = False) -> None:
        if member.owner is None or len(self._done) > PROFILES_MAX:
            return
        if not last and now - member.profiled_at < self._profile_seconds:
            return
        member.profiled_at = now
        try:
            totals = {devices[name]: total for name, total in member.traced.totals().items() if name in devices}
            self._done.extend(member.profile.rows(now, member.owner, member.traced.kernels(), totals))
        except Refused as refused:
            self._roster.refused[str(refused)] += 1

    def _say_goodbye(self, member: Member, offset_seconds: float, devices: Mapping[str, str]) -> None:
        """Take what a process that has ended left behind."""
        if member.who in self._roster.members:
            self._look(member, offset_seconds, devices)  # it may not have had its turn since it ended
        if member.who not in self._roster.members:
            return  # given up
        self._tell_profile(member, devices, time.time(), last=True)
        self._book.end(member.traced.key, int(time.monotonic()))
        self._roster.drop(member)

    def _close(self, now_second: int) -> None:
        final = [
            member.traced.next_second + member.traced.clock_shift_seconds for member in self._roster.members.values()
        ]
        for told, stretches in self._book.close(now_second, min(final, default=now_second - NOBODY_SECONDS)):
            self._done.extend(stretches)
            self._done.extend(told)

    def _sample(self, told: Told) -> ProcessSample:
        busy, process = told.busy, told.process
        known = told.covered_seconds > 0
        added = self._tracing(told) if known else None
        cluster, node = self._place
        return ProcessSample(
            cluster=cluster,
            node=node,
            device_uuid=told.device,
            pid=process.pid,
            sampled_at=told.start_at,
            cadence_seconds=told.seconds,
            source=NAME,
            attempt_key=self._owners.get(process.key),
            gpu_bound_seconds=round(busy.bound_seconds, 6) if known else None,
            copy_seconds=round(busy.copy_seconds, 6) if known else None,
            gpu_busy_seconds=round(busy.busy_seconds, 6) if known else None,
            launch_count=busy.launches if known else None,
            process_key=process.key,
            covered_seconds=round(told.covered_seconds, 3),
            source_lost_seconds=told.lost_seconds,
            late_seconds=round(busy.late_seconds, 6) if known else None,
            kernel_count=busy.kernels if known else None,
            kernel_seconds=round(busy.kernel_seconds, 6) if known else None,
            gap_count=busy.gaps if known else None,
            steps_total=process.steps_total,
            tracing_low_seconds=None if added is None else round(added.low, 6),
            tracing_seconds=None if added is None else round(added.likely, 6),
            tracing_high_seconds=None if added is None else round(added.high, 6),
        )

    def _tracing(self, told: Told) -> Estimate | None:
        model = next((one.gpu_model for one in self._driver.devices if one.uuid == told.device), None)
        cost = cost_of(self._costs, Setup(model or "", *told.process.setup))
        if cost is None:
            return None
        busy = told.busy
        stretch = Corrected(
            told.covered_seconds, busy.bound_seconds, busy.overhead_idle_seconds, busy.launches, busy.gaps
        )
        return removed_seconds(stretch, cost)


def _row(one: Stretch) -> Row:
    values = {
        "gpu_bound_seconds": one.bound_seconds,
        "copy_seconds": one.copy_seconds,
        "gpu_busy_seconds": one.busy_seconds,
    }
    columns = {name: round(value, 6) for name, value in values.items()}
    return Row(one.device, NAME, one.start_at, one.start_at + one.seconds, columns, frozenset(one.by_pid))


def _costs(path: Path) -> Mapping[Setup, Measured]:
    try:
        return read(path)
    except BadInputError as error:
        LOG.warning("%s; nothing is corrected", error)
        return {}


SOURCE = Source(
    name=NAME,
    description="Kernel and copy time of traced processes and of their devices, launches, steps, kernels and gaps.",
    metrics=("gpu_bound_seconds", "copy_seconds", "gpu_busy_seconds"),
    open=KernelsReader,
)
