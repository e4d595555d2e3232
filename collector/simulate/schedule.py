"""Which work runs when and where: the scheduler of a simulated cluster, as pure functions of time.

Times are seconds since the epoch; minutes count from the scenario's start, which lies ``history_minutes`` before the
demo's first start.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from collector.simulate.activity import NOISE_LENGTH
from collector.simulate.scenario import IDLE, MINUTE_SECONDS, Level, Scenario, SimulatedDevice, Workload
from warehouse.contract.model import Allocation, Attempt, AttemptState, Device, Event, Job, Node, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOURCE: Final = "scenario"
FIRST_JOB_ID: Final = 10_000
LANES_MAX: Final = 64
"""Job ids grow with their start: so many per minute, one for each lane."""

PID_BASE: Final = 20_000
PID_SPAN: Final = 4_000_000
LONGEST_WAIT_MINUTES: Final = 17
CPUS_PER_GPU: Final = 12


@dataclass(frozen=True, slots=True)
class PlannedAttempt:
    """One start of a job of the scenario, with the end that it will have."""

    workload: Workload
    job_id: int
    occurrence: int
    start_at: float
    end_at: float
    state: AttemptState
    devices: tuple[SimulatedDevice, ...]

    def job_key(self, cluster: str) -> str:
        """Give the key of the attempt's job."""
        return f"{cluster}/{self.job_id}#0"

    def attempt_key(self, cluster: str) -> str:
        """Give the attempt's own key."""
        return f"{self.job_key(cluster)}:{int(self.start_at)}"

    def seed(self, device: SimulatedDevice) -> int:
        """Give where in the noise table the attempt's card begins."""
        return zlib.crc32(f"{self.job_id}/{device.node}/{device.index}".encode()) % NOISE_LENGTH

    def pids(self, device: SimulatedDevice, level: Level) -> tuple[int, ...]:
        """Give the process numbers of the attempt on one of its cards."""
        first = zlib.crc32(f"{self.job_id}@{device.node}/{device.index}".encode()) % PID_SPAN + PID_BASE
        return tuple(range(first, first + level.processes))

    def level_at(self, at: float) -> Level:
        """Give the level of work at an instant within the attempt."""
        minute = (at - self.start_at) / MINUTE_SECONDS
        return next(phase.level for phase in reversed(self.workload.phases) if phase.from_minute <= minute)


def attempts(scenario: Scenario, start_at: float, since_at: float, until_at: float) -> list[PlannedAttempt]:
    """Give all attempts that hold their cards at some time within ``[since_at, until_at)``, in order of start."""
    lane_number = 0
    found: list[PlannedAttempt] = []
    for workload in scenario.workloads:
        for lane, devices in enumerate(workload.lanes):
            first = workload.first_minute + lane * workload.stagger_minutes
            numbers = _occurrences(workload, first, (since_at - start_at) / 60, (until_at - start_at) / 60)
            for number in numbers:
                minute = first + number * workload.period_minutes
                job_id = FIRST_JOB_ID + minute * LANES_MAX + lane_number
                occurrence = number * len(workload.lanes) + lane
                planned = _plan(scenario, workload, devices, start_at, (job_id, occurrence, minute))
                if planned is not None and planned.start_at < until_at and planned.end_at > since_at:
                    found.append(planned)
            lane_number += 1
    return sorted(found, key=lambda attempt: (attempt.start_at, attempt.job_id))


def _occurrences(workload: Workload, first: int, since_minute: float, until_minute: float) -> Iterator[int]:
    number = max(0, int((since_minute - first) // workload.period_minutes) - 1)
    while first + number * workload.period_minutes < until_minute:
        yield number
        number += 1


def _plan(
    scenario: Scenario,
    workload: Workload,
    devices: tuple[SimulatedDevice, ...],
    start_at: float,
    which: tuple[int, int, int],
) -> PlannedAttempt | None:
    """Plan one attempt; a card that is lost ends it, or keeps it from ever starting."""
    job_id, occurrence, minute = which
    end_minute = minute + workload.duration_minutes
    state = workload.ends_as
    lost = min((at for at in map(scenario.lost_minute, devices) if at is not None), default=None)
    if lost is not None and lost < end_minute:
        if lost <= minute:
            return None
        end_minute, state = lost, AttemptState.NODE_FAIL
    return PlannedAttempt(
        workload=workload,
        job_id=job_id,
        occurrence=occurrence,
        start_at=start_at + minute * MINUTE_SECONDS,
        end_at=start_at + end_minute * MINUTE_SECONDS,
        state=state,
        devices=devices,
    )


def holders(planned: Iterable[PlannedAttempt], at: float) -> dict[SimulatedDevice, PlannedAttempt]:
    """Give for each card that is held at an instant the attempt that holds it."""
    return {
        device: attempt for attempt in planned if attempt.start_at <= at < attempt.end_at for device in attempt.devices
    }


def level_of(attempt: PlannedAttempt | None, at: float) -> Level:
    """Give the level of work of a card at an instant, held or not."""
    return IDLE if attempt is None else attempt.level_at(at)


def records(scenario: Scenario, attempt: PlannedAttempt, known_at: float) -> list[Record]:
    """Give what the scheduler says at ``known_at`` about an attempt that has started."""
    cluster, workload = scenario.cluster, attempt.workload
    job_key, attempt_key = attempt.job_key(cluster), attempt.attempt_key(cluster)
    ended = attempt.end_at <= known_at
    end_at = attempt.end_at if ended else None
    state = attempt.state if ended else AttemptState.RUNNING
    words = workload.vary[attempt.occurrence % len(workload.vary)]
    gpus, nodes = len(attempt.devices), sorted({device.node for device in attempt.devices})
    submit_at = attempt.start_at - zlib.crc32(job_key.encode()) % LONGEST_WAIT_MINUTES * MINUTE_SECONDS
    return [
        Job(
            job_key=job_key,
            cluster=cluster,
            scheduler_job_id=str(attempt.job_id),
            source=SOURCE,
            name=workload.job_name.format(**words),
            user=workload.users[attempt.occurrence % len(workload.users)],
            account=workload.account,
            partition=workload.partition,
            command=workload.command.format(**words),
            submit_at=submit_at,
            requested_gpu_count=gpus,
            requested_cpu_count=CPUS_PER_GPU * gpus,
            requested_node_count=len(nodes),
            interactive=workload.interactive,
        ),
        Attempt(
            attempt_key=attempt_key,
            job_key=job_key,
            state=state,
            raw_state=state.upper(),
            start_at=attempt.start_at,
            end_at=end_at,
            source=SOURCE,
            submit_at=submit_at,
            exit_code=0 if state is AttemptState.COMPLETED else None,
            node_count=len(nodes),
            node_list=",".join(nodes),
            cpu_count=CPUS_PER_GPU * gpus,
        ),
        *(
            Allocation(
                allocation_key=f"{attempt_key}:{device.uuid}",
                attempt_key=attempt_key,
                gpu_count=1,
                start_at=attempt.start_at,
                end_at=end_at,
                source=SOURCE,
                device_uuid=device.uuid,
                node=device.node,
                gpu_model=device.model.name,
            )
            for device in attempt.devices
        ),
    ]


def inventory(scenario: Scenario, start_at: float, until_at: float) -> list[Record]:
    """Give nodes and cards over the history ``[start_at, until_at)``, and what was lost.

    The history's own intervals end with it, for from then on each agent tells its node's. A lost card is the
    exception: no agent can see it any more, so its last interval stays open.
    """
    found: list[Record] = [
        Node(
            cluster=scenario.cluster,
            node=node,
            since_at=start_at,
            until_at=until_at,
            gpu_count=len(scenario.devices_of(node)),
            driver_version=scenario.driver_version,
        )
        for node in scenario.nodes
    ]
    for device in scenario.devices:
        minute = scenario.lost_minute(device)
        lost_at = None if minute is None else start_at + minute * MINUTE_SECONDS
        if lost_at is None or lost_at >= until_at:
            found.append(_device(scenario, device, start_at, until_at, "up"))
            continue
        found.append(_device(scenario, device, start_at, lost_at, "up"))
        found.append(_device(scenario, device, lost_at, None, "lost"))
        found.append(_loss(scenario, device, start_at, lost_at))
    return found


def _device(scenario: Scenario, device: SimulatedDevice, since_at: float, until_at: float | None, state: str) -> Device:
    return Device(
        device_uuid=device.uuid,
        cluster=scenario.cluster,
        node=device.node,
        since_at=since_at,
        until_at=until_at,
        state=state,
        device_index=device.index,
        gpu_model=device.model.name,
        memory_bytes=device.model.memory_bytes,
        pci_bus_id=device.pci_bus_id,
    )


def _loss(scenario: Scenario, device: SimulatedDevice, start_at: float, lost_at: float) -> Event:
    running = holders(attempts(scenario, start_at, lost_at - 1, lost_at), lost_at - 1)
    attempt = running.get(device)
    return Event(
        cluster=scenario.cluster,
        node=device.node,
        kind="device_lost",
        happened_at=lost_at,
        device_uuid=device.uuid,
        attempt_key=None if attempt is None else attempt.attempt_key(scenario.cluster),
        detail="GPU has fallen off the bus",
    )
