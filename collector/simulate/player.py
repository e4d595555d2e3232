"""Plays a scenario live: the state of every node for its NVML stand-in, and the scheduler's word, once a second.

Energy and GPM are running totals, integrated over the time that has truly passed. Each tick comes half a second after
the full one, so that agents, which read on the full second, never race with it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from collector.files import replace_file
from collector.simulate.activity import Activity, at_second, noise_index
from collector.simulate.scenario import MINUTE_SECONDS, Level, Scenario, SimulatedDevice
from collector.simulate.schedule import PlannedAttempt, attempts, holders, level_of, records
from collector.simulate.standin import GpmCounters, StandinDevice, StandinProcess, StandinState
from warehouse.contract.model import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

TICK_SECONDS: Final = 1.0
TICK_OFFSET_SECONDS: Final = 0.5
REMEMBERED_SECONDS: Final = 600
"""How long the scheduler's file still tells what was given back, for rows that are made after the fact."""

TOLD_AT_START_SECONDS: Final = 86_400
"""At its start the player tells the jobs of the last day again: what ended while nobody played."""


@dataclass(slots=True)
class _Totals:
    """Running totals of one card since the player's start."""

    elapsed_seconds: float = 0.0
    engine_active_seconds: float = 0.0
    sm_active_seconds: float = 0.0
    sm_occupancy_seconds: float = 0.0
    tensor_active_seconds: float = 0.0
    dram_active_seconds: float = 0.0
    energy_joules: float = 0.0

    def add(self, activity: Activity, seconds: float) -> None:
        """Integrate over a stretch of time."""
        self.elapsed_seconds += seconds
        self.engine_active_seconds += activity.engine_active_ratio * seconds
        self.sm_active_seconds += activity.sm_active_ratio * seconds
        self.sm_occupancy_seconds += activity.sm_occupancy_ratio * seconds
        self.tensor_active_seconds += activity.tensor_active_ratio * seconds
        self.dram_active_seconds += activity.dram_active_ratio * seconds
        self.energy_joules += activity.power_watts * seconds


class Player:
    """Plays one scenario into a folder."""

    def __init__(self, scenario: Scenario, start_at: float, folder: Path, tell: Callable[[list[Record]], None]) -> None:
        """Play into ``folder``; ``tell`` takes what the scheduler records, to be sent.

        ``start_at`` is when the scenario's minute 0 was.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._scenario = scenario
        self._start_at = start_at
        self._folder = folder
        self._tell = tell
        self._totals = {device: _Totals() for device in scenario.devices}
        self._states: dict[str, StandinState] = {}
        self._planned: list[PlannedAttempt] = []
        self._planned_minute = -1
        self._told_at: float | None = None
        self._played_at: float | None = None

    def __enter__(self) -> Self:
        """The player itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the state files; they stay with their last state."""
        for state in self._states.values():
            state.close()

    def run(self, stop: threading.Event, on_tick: Callable[[float], None] = lambda _now: None) -> None:
        """Play until told to stop."""
        while True:
            self.tick(time.time())
            on_tick(time.time())
            if stop.wait(TICK_SECONDS - (time.time() - TICK_OFFSET_SECONDS) % TICK_SECONDS):
                return

    def tick(self, now: float) -> None:
        """Bring everything to what it is at ``now``: first who holds what, then what the cards do."""
        minute = int((now - self._start_at) // MINUTE_SECONDS)
        if minute != self._planned_minute:
            since_at = now - max(REMEMBERED_SECONDS, TOLD_AT_START_SECONDS if self._told_at is None else 0)
            self._planned = attempts(self._scenario, self._start_at, since_at, now + MINUTE_SECONDS)
            self._planned_minute = minute
            self._announce(now)
        seconds = 0.0 if self._played_at is None else max(0.0, now - self._played_at)
        self._played_at = now
        held = holders(self._planned, now)
        for node in self._scenario.nodes:
            devices = [
                self._device(device, held.get(device), now, seconds) for device in self._scenario.devices_of(node)
            ]
            if node in self._states:
                self._states[node].write(devices)
            else:
                path = state_file(self._folder, node)
                self._states[node] = StandinState.create(path, self._scenario.driver_version, devices)

    def _announce(self, now: float) -> None:
        """Write the scheduler's file anew and tell what is new since the last time."""
        known = [attempt for attempt in self._planned if attempt.start_at <= now]
        recent = [attempt for attempt in known if attempt.end_at > now - REMEMBERED_SECONDS]
        content = {"holdings": [entry for attempt in recent for entry in self._holdings(attempt, now)]}
        replace_file(jobs_file(self._folder), json.dumps(content).encode())
        new = (
            known if self._told_at is None else [attempt for attempt in known if _changed(attempt, self._told_at, now)]
        )
        self._told_at = now
        if new:
            self._tell([record for attempt in new for record in records(self._scenario, attempt, now)])

    def _holdings(self, attempt: PlannedAttempt, now: float) -> Iterable[dict[str, object]]:
        for device in attempt.devices:
            pids = {pid for phase in attempt.workload.phases for pid in attempt.pids(device, phase.level)}
            yield {
                "attempt_key": attempt.attempt_key(self._scenario.cluster),
                "device_uuid": device.uuid,
                "start_at": attempt.start_at,
                "end_at": attempt.end_at if attempt.end_at <= now else None,
                "pids": sorted(pids),
            }

    def _device(
        self, device: SimulatedDevice, attempt: PlannedAttempt | None, now: float, seconds: float
    ) -> StandinDevice:
        since_start = now - self._start_at
        minute, second = int(since_start // MINUTE_SECONDS), int(since_start % MINUTE_SECONDS)
        level = level_of(attempt, now)
        seed = 0 if attempt is None else attempt.seed(device)
        activity = at_second(level, device.model, noise_index(seed, minute), second)
        totals = self._totals[device]
        totals.add(activity, seconds)
        lost_minute = self._scenario.lost_minute(device)
        return StandinDevice(
            uuid=device.uuid,
            name=device.model.name,
            pci_bus_id=device.pci_bus_id,
            minor_number=device.index,
            memory_total_bytes=device.model.memory_bytes,
            memory_used_bytes=activity.memory_used_bytes,
            driver_util_ratio=activity.driver_util_ratio,
            power_watts=activity.power_watts,
            energy_joules=totals.energy_joules,
            temperature_celsius=activity.temperature_celsius,
            sm_clock_hertz=activity.sm_clock_hertz,
            gpm=GpmCounters(
                elapsed_seconds=totals.elapsed_seconds,
                engine_active_seconds=totals.engine_active_seconds,
                sm_active_seconds=totals.sm_active_seconds,
                sm_occupancy_seconds=totals.sm_occupancy_seconds,
                tensor_active_seconds=totals.tensor_active_seconds,
                dram_active_seconds=totals.dram_active_seconds,
            ),
            processes=_processes(device, attempt, level, activity),
            lost=lost_minute is not None and lost_minute <= minute,
        )


def state_file(folder: Path, node: str) -> Path:
    """Give the stand-in's state file of a node."""
    return folder / f"{node}.nvml"


def jobs_file(folder: Path) -> Path:
    """Give the scheduler's file."""
    return folder / "jobs.json"


def _changed(attempt: PlannedAttempt, since_at: float, until_at: float) -> bool:
    return since_at < attempt.start_at <= until_at or since_at < attempt.end_at <= until_at


def _processes(
    device: SimulatedDevice, attempt: PlannedAttempt | None, level: Level, activity: Activity
) -> tuple[StandinProcess, ...]:
    if attempt is None:
        return ()
    pids = attempt.pids(device, level)
    return tuple(
        StandinProcess(pid, activity.memory_used_bytes // len(pids), activity.driver_util_ratio / len(pids))
        for pid in pids
    )
