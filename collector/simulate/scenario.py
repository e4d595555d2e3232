"""What a simulated cluster is: nodes, the work that runs on them, and what is wrong with it. Read from a TOML file.

A scenario is a pure function of time once its *start* is known (see :mod:`collector.simulate.schedule`), so the past
that is told and the present that is played agree, and a restart goes on where it was.
"""

from __future__ import annotations

import tomllib
import uuid
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

from warehouse.contract.errors import BadInputError
from warehouse.contract.model import AttemptState

DEMO: Final = Path(__file__).with_name("scenarios") / "demo.toml"
"""The cluster that ``trueload up --demo`` shows."""

MINUTE_SECONDS: Final = 60
DEVICE_NAMESPACE: Final = uuid.UUID("6f1d9c1e-6a55-4f0e-9d6e-3f2a1c7b8e40")
"""Makes device UUIDs out of node and index; any fixed value serves."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A kind of card. ``idle_watts`` is drawn doing nothing, ``limit_watts`` at most."""

    name: str
    memory_bytes: int
    limit_watts: float
    idle_watts: float
    clock_hertz: float
    idle_clock_hertz: float


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """One card of a simulated node."""

    node: str
    index: int
    model: GpuModel

    @property
    def uuid(self) -> str:
        """Give the card's UUID, always the same for a node and index."""
        return f"GPU-{uuid.uuid5(DEVICE_NAMESPACE, f'{self.node}/{self.index}')}"

    @property
    def pci_bus_id(self) -> str:
        """Give the card's place on the bus."""
        return f"00000000:{0x10 + 0x10 * self.index:02X}:00.0"


@dataclass(frozen=True, slots=True)
class Level:
    """How busy work keeps a card while it lasts: means, as shares (see the metric catalogue).

    ``spread`` is the largest relative deviation of a minute from the mean. ``stall`` is the share of each minute in
    which nothing runs, in one piece; the rest is busier, so that the mean holds. ``gpu_bound`` and ``copy`` are None
    where no tracer runs in the job; where one does, ``launches`` and ``steps`` are per second. ``memory`` is the share
    of the card's memory that is held. ``cores`` is what the job keeps busy of its host for each card (None: not told),
    ``io_some`` and ``io_full`` the shares of time in which some and every task of it waits for storage, ``read`` the
    bytes that it reads each second and card.
    """

    driver: float = 0.0
    engine: float = 0.0
    sm: float = 0.0
    occupancy: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    memory: float = 0.0
    spread: float = 0.0
    stall: float = 0.0
    processes: int = 1
    gpu_bound: float | None = None
    copy: float | None = None
    launches: float = 0.0
    steps: float = 0.0
    cores: float | None = None
    io_some: float = 0.0
    io_full: float = 0.0
    read: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what could not be true, so that no value ever has to be clamped."""
        shares = (self.driver, self.engine, self.sm, self.occupancy, self.tensor, self.dram, self.gpu_bound or 0.0)
        busiest = max(shares) * (1 + self.spread)
        if not 0 <= self.stall < 1 or busiest > (1 - self.stall) * (1 + 1e-9) or min(shares) < 0:
            raise ValueError(f"with spread and stall a share would reach {busiest / (1 - self.stall):.3f}")
        if not 0 <= self.io_full <= self.io_some <= 1:
            raise ValueError("no more waits for storage in all tasks than in some, and neither longer than the time")
        if (self.gpu_bound is None) != (self.launches == 0) or self.gpu_bound == 0:
            raise ValueError("gpu_bound and launches go together, and both are above 0")


IDLE: Final = Level(processes=0)
"""A card that nobody uses."""


@dataclass(frozen=True, slots=True)
class Phase:
    """From this minute of the attempt on, the work is at this level."""

    from_minute: int
    level: Level


@dataclass(frozen=True, slots=True)
class Workload:
    """Work that comes again and again on the same cards, one attempt per lane at a time.

    Lane ``n`` (a group of devices) starts an attempt at ``first_minute + n * stagger_minutes`` and every
    ``period_minutes`` after; each lasts ``duration_minutes``. ``vary`` names values that go into ``job_name`` and
    ``command`` in turn, all combinations one after the other. ``truth`` says what an analysis must find.
    """

    name: str
    truth: str
    job_name: str
    command: str
    account: str
    users: tuple[str, ...]
    partition: str
    lanes: tuple[tuple[SimulatedDevice, ...], ...]
    period_minutes: int
    duration_minutes: int
    phases: tuple[Phase, ...]
    first_minute: int = 0
    stagger_minutes: int = 0
    until_minute: int | None = None
    ends_as: AttemptState = AttemptState.COMPLETED
    interactive: bool = False
    vary: tuple[dict[str, str], ...] = field(default=({},))

    def __post_init__(self) -> None:
        """Refuse attempts that would overlap on their cards."""
        if not 0 < self.duration_minutes <= self.period_minutes:
            raise ValueError("duration_minutes must be above 0 and at most period_minutes")
        if not self.phases or self.phases[0].from_minute != 0:
            raise ValueError("the first phase must begin at minute 0")


@dataclass(frozen=True, slots=True)
class Loss:
    """A card that falls off the bus at a minute and does not come back."""

    device: SimulatedDevice
    minute: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulated cluster. Minutes count from the scenario's start, ``history_minutes`` before its epoch."""

    cluster: str
    driver_version: str
    history_minutes: int
    devices: tuple[SimulatedDevice, ...]
    workloads: tuple[Workload, ...]
    losses: tuple[Loss, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Give the names of the nodes, in order."""
        return tuple(dict.fromkeys(device.node for device in self.devices))

    def devices_of(self, node: str) -> tuple[SimulatedDevice, ...]:
        """Give the cards of a node in order of their index."""
        return tuple(device for device in self.devices if device.node == node)

    def lost_minute(self, device: SimulatedDevice) -> int | None:
        """Give the minute at which the card is lost, if it ever is."""
        return next((loss.minute for loss in self.losses if loss.device == device), None)


def load_scenario(path: Path = DEMO) -> Scenario:
    """Read a scenario.

    Raises:
        BadInputError: the file cannot be read, or a table of it makes no sense.

    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise BadInputError(str(path), None, f"cannot be read as a scenario ({cause})") from cause
    place = "top level"
    try:
        models = {key: GpuModel(**table) for key, table in document["gpu"].items()}
        place = "[[node]]"
        devices = {
            f"{table['name']}:{index}": SimulatedDevice(table["name"], index, models[table["gpu"]])
            for table in document["node"]
            for index in range(table["gpu_count"])
        }
        place = "[level]"
        levels = {"idle": IDLE, **{key: Level(**table) for key, table in document["level"].items()}}
        workloads = []
        for table in document["workload"]:
            place = f"[[workload]] {table.get('name')}"
            workloads.append(_workload(dict(table), devices, levels))
        place = "[[loss]]"
        losses = tuple(Loss(devices[table["device"]], table["minute"]) for table in document.get("loss", []))
        place = "top level"
        return Scenario(
            cluster=document["cluster"],
            driver_version=document["driver_version"],
            history_minutes=document["history_minutes"],
            devices=tuple(devices.values()),
            workloads=tuple(workloads),
            losses=losses,
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as cause:
        raise BadInputError(str(path), place, f"{type(cause).__name__}: {cause}") from cause


def _workload(table: dict[str, Any], devices: dict[str, SimulatedDevice], levels: dict[str, Level]) -> Workload:
    vary = table.pop("vary", {})
    return Workload(
        lanes=tuple(tuple(devices[name] for name in lane) for lane in table.pop("lanes")),
        users=tuple(table.pop("users")),
        phases=tuple(Phase(minute, levels[level]) for minute, level in table.pop("phases")),
        ends_as=AttemptState(table.pop("ends_as", "completed")),
        vary=tuple(dict(zip(vary, map(str, values), strict=True)) for values in product(*vary.values())),
        **table,
    )
