"""Puts owners to rows: the table of samples with whose each is, and the allocations that the node itself has seen.

The values of a row are the card's. Where several share it there is one row for each of them with the same values and
its ``share_ratio``: what is additive (time, energy) is that share of the value, and the card counts once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from collector.device_ids import NodeDevice
from collector.job_source import JobReader
from collector.owners import KERNEL, PROCESS, Owner, Owners, Use
from collector.processes import ProcessTable
from warehouse.contract import wire
from warehouse.contract.errors import TrueloadError
from warehouse.contract.model import Allocation, Record

if TYPE_CHECKING:
    from collector.aggregate import Row
    from collector.driver import KnownDevice
    from collector.source import Reading

PROCESSES: Final = "process_count"
MOST_OBSERVED: Final = 4096
"""Processes whose time on a device is remembered; the oldest are forgotten first."""
USE_OF_METHOD: Final = {KERNEL: "gpu_bound_seconds", PROCESS: "driver_util_ratio"}
"""What splits a shared device, best first, by its name in the readings of processes."""
KEPT_SECONDS: Final = 120.0
"""Rows are made within seconds of the time that they cover, and a cadence is ten of them."""
MOST_USES: Final = 20_000
"""Uses kept at once, the latest: 32 processes by two methods make 7,700 in that time; each takes about 200 bytes."""
_PCI_LETTERS: Final = 12


@runtime_checkable
class TellsJobs(JobReader, Protocol):
    """An open job source that also has jobs to tell the server of, where no scheduler does."""

    def records(self) -> list[Record]:
        """Give what is new since the last call."""
        ...


class Attribution:
    """Knows the owners on one node. Used from the agent's thread."""

    def __init__(
        self,
        jobs: JobReader | None,
        proc_root: Path,
        cluster: str,
        node: str,
        say: Callable[[str], None],
    ) -> None:
        """Ask ``jobs``, look processes up below ``proc_root``, and ``say`` once what the operator should know."""
        self.owners = Owners(jobs, ProcessTable(proc_root))
        self._jobs = jobs
        self._proc_root = proc_root
        self._cluster = cluster
        self._node = node
        self._say = say
        self._told: dict[str, Allocation] = {}
        self._shares: dict[str, float] = {}
        self._observed: dict[str, Allocation] = {}
        self._touched: set[str] = set()
        self._used: deque[tuple[float, str, str, int, float]] = deque(maxlen=MOST_USES)
        self.settled_uses: Callable[[str, float, float], list[Use]] = lambda _device, _start, _end: []
        """What is known of uses by sources that learn of them later; better than what was read at the moment."""

    def see(self, wall: float, readings: Iterable[Reading]) -> None:
        """Take the processes of this moment: look them up while they live, and keep what each used of its device."""
        for reading in readings:
            self.owners.see({*(reading.pids or ()), *(one.pid for one in reading.processes)})
            for one in reading.processes:
                for method, name in USE_OF_METHOD.items():
                    if name in one.values:
                        self._used.append((wall, reading.device_uuid, method, one.pid, one.values[name]))
        while self._used and not wall - KEPT_SECONDS < self._used[0][0] <= wall:
            self._used.popleft()

    def uses(self, device_uuid: str, start_at: float, end_at: float) -> list[Use]:
        """Give what each process used of a device within a stretch, best method first."""
        sums: dict[str, dict[int, float]] = {method: {} for method in USE_OF_METHOD}
        for wall, device, method, pid, amount in self._used:
            if device == device_uuid and start_at < wall <= end_at:
                sums[method][pid] = sums[method].get(pid, 0.0) + amount
        settled = self.settled_uses(device_uuid, start_at, end_at)
        return [*settled, *(Use(method, by_pid) for method, by_pid in sums.items())]

    def refresh(self, devices: Sequence[KnownDevice]) -> list[Record]:
        """Ask who holds what now; give the allocations and jobs that are new, or have ended, since the last time."""
        self._shares |= {device.uuid: device.share_ratio for device in devices}  # a lost one keeps its own
        try:
            self.owners.update(node_devices(devices, self._proc_root))
        except TrueloadError as error:
            self._say(str(error))
        except Exception as error:  # noqa: BLE001 - what a job source does costs owners, and never the measuring
            self._say(f"who holds what cannot be told: {error!r}")
        for spelled in self.owners.unknown_devices:
            self._say(f"device {spelled!r} is held and not known here; it counts as held by an unknown workload")
        allocations = {
            (
                found := self._allocation(held.attempt_key, held.device_uuid, held.said, held.start_at)
            ).allocation_key: replace(
                found,
                end_at=held.end_at,
                source=held.source,
                certainty=held.certainty,
                share_ratio=held.share_ratio * found.share_ratio,
            )
            for held in self.owners.holdings
            if held.source
        }
        news: list[Record] = [one for key, one in allocations.items() if self._told.get(key) != one]
        self._told = allocations
        return news + self._own_jobs()

    def _own_jobs(self) -> list[Record]:
        try:
            return self._jobs.records() if isinstance(self._jobs, TellsJobs) else []
        except Exception as error:  # noqa: BLE001 - see refresh
            self._say(f"jobs cannot be told: {error!r}")
            return []

    def table(self, rows: Sequence[Row]) -> wire.Table:
        """Make the table of samples: a row for each owner of each device and stretch."""
        seen: dict[str, set[int]] = {}
        for row in rows:
            seen.setdefault(row.device_uuid, set()).update(row.pids)
        owned: list[tuple[Row, Owner, float | None]] = []
        for row in rows:
            pids = seen[row.device_uuid]
            shared = self.owners.is_shared(row.device_uuid)
            uses = self.uses(row.device_uuid, row.start_at, row.end_at) if shared else ()
            owners = self.owners.of_device(row.device_uuid, row.start_at, row.end_at, pids, uses)
            owned += [(row, owner, self._count(row, owner, pids, len(owners))) for owner in owners]
        self._warn_of_unmapped(any(seen.values()))
        self._observe(owned)
        columns: dict[str, wire.Column] = {
            "cluster": self._cluster,
            "node": self._node,
            "device_uuid": [row.device_uuid for row, _, _ in owned],
            "sampled_at": [row.start_at for row, _, _ in owned],
            "cadence_seconds": [round(row.end_at - row.start_at, 3) for row, _, _ in owned],
            "source": [row.source for row, _, _ in owned],
            "attempt_key": [owner.attempt_key for _, owner, _ in owned],
            "share_ratio": [owner.share_ratio for _, owner, _ in owned],
            "attribution": [owner.attribution for _, owner, _ in owned],
        }
        for name in dict.fromkeys(name for row in rows for name in row.columns):
            columns[name] = [count if name == PROCESSES else row.columns.get(name) for row, _, count in owned]
        return wire.Table(len(owned), columns)

    def observed(self) -> list[Record]:
        """Give the allocations of processes, where nobody gives devices away: from first to last seen, as it grows."""
        touched, self._touched = self._touched, set()
        return [self._observed[key] for key in sorted(touched)]

    def _count(self, row: Row, owner: Owner, pids: set[int], sharers: int) -> float | None:
        """Give the processes of a row's owner: on a shared card, a sharer without a process has none."""
        count = row.columns.get(PROCESSES)
        if count is None or sharers == 1 or not self.owners.resolves_pids:
            return count
        claims = [claim for pid in pids if (claim := self.owners.claim_of(pid)) is not None]
        if len(claims) < len(pids):
            return count
        return float(sum(claim.attempt_key == owner.attempt_key for claim in claims))

    def _observe(self, owned: Sequence[tuple[Row, Owner, float | None]]) -> None:
        for row, owner, _ in owned:
            if owner.attempt_key is None or owner.attribution != PROCESS or owner.share_ratio is None:
                continue
            if any(held.attempt_key == owner.attempt_key for held in self.owners.holdings):
                continue
            new = self._allocation(owner.attempt_key, row.device_uuid, "", row.start_at)
            old = self._observed.pop(new.allocation_key, new)
            self._observed[new.allocation_key] = replace(
                old, start_at=min(old.start_at, row.start_at), end_at=max(old.end_at or 0.0, row.end_at)
            )
            self._touched.add(new.allocation_key)
        for key in list(self._observed)[: max(0, len(self._observed) - MOST_OBSERVED)]:
            if key not in self._touched:
                del self._observed[key]

    def _allocation(self, attempt_key: str, device_uuid: str | None, said: str, start_at: float) -> Allocation:
        return Allocation(
            allocation_key=f"{attempt_key}:{device_uuid or said}",
            attempt_key=attempt_key,
            gpu_count=1.0,
            start_at=start_at,
            end_at=None,
            source=PROCESS,
            certainty=PROCESS,
            share_ratio=self._shares.get(device_uuid or "", 1.0),
            device_uuid=device_uuid,
            node=self._node,
        )

    def _warn_of_unmapped(self, has_processes: bool) -> None:  # noqa: FBT001 - private
        mapped, total = self.owners.mapped_jobs()
        if not has_processes or not total or mapped:
            return
        if not self.owners.resolves_pids:
            self._say("processes on devices are not looked up: the agent does not see the host's process ids (hostPID)")
        else:
            self._say(f"0 of {total} jobs mapped: no process on a device is in a control group of a job that holds one")


def node_devices(devices: Sequence[KnownDevice], proc_root: Path) -> list[NodeDevice]:
    """Give the devices as schedulers may spell them, with the minor numbers that the driver's own files tell."""
    return [
        NodeDevice(
            device.uuid,
            minor=_minor(device, proc_root),
            parent_uuid=device.parent_uuid,
            gpu_instance=device.gpu_instance_id,
            compute_instance=device.compute_instance_id,
        )
        for device in devices
    ]


def _minor(device: KnownDevice, proc_root: Path) -> int | None:
    """Read ``/dev/nvidia<minor>`` of a card; its place in the driver's order is another number."""
    if device.minor_number is not None or not device.pci_bus_id:
        return device.minor_number
    path = proc_root / "driver/nvidia/gpus" / device.pci_bus_id.lower()[-_PCI_LETTERS:] / "information"
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "Device Minor" and value.strip().isdigit():
            return int(value)
    return None
