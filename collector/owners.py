"""Whose a device is: the scheduler's word, checked against the processes that are seen on the device.

An owner is only named where nothing speaks against it. Where witnesses disagree the row says ``ambiguous`` and nobody
is blamed. A device that several hold by right is split, and the row says by what.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from collector.cgroups import place_of
from collector.device_ids import NodeDevice, find_device, parse_device_id
from collector.job_source import Claim, Holding, JobReader, NamesProcesses, Witness
from collector.processes import ProcessId, ProcessTable

LOG = logging.getLogger("trueload.agent")
SCHEDULER: Final = "scheduler"
PROCESS: Final = "process"
KERNEL: Final = "kernel"
EQUAL_SPLIT: Final = "equal_split"
UNREQUESTED: Final = "unrequested"
STRAY: Final = "stray"
AMBIGUOUS: Final = "ambiguous"

MPS_NAME: Final = "nvidia-cuda-mps"
"""What the kernel keeps of the names of the MPS server and its control daemon: 15 characters."""
_REMEMBERED_PROCESSES: Final = 4096


@dataclass(frozen=True, slots=True)
class Owner:
    """The attempt that a stretch of time on a device belongs to, and how that was found.

    ``share_ratio`` is its share of the device's time, power and energy; the shares of one device add up to 1 at most.
    ``attribution`` is ``scheduler`` (it alone holds the device), ``kernel``, ``process`` or ``equal_split``
    (it shares the device: split by kernel time, by the driver's process utilization, or equally; ``process`` also where
    nobody tells allocations and only its processes are seen), ``unrequested`` (its processes are there though it holds
    nothing of the device), ``stray`` (processes outside every job), ``ambiguous`` (witnesses disagree), or None when
    nobody is known.
    """

    attempt_key: str | None
    share_ratio: float | None
    attribution: str | None


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a device each process used within a stretch, by ``kernel`` time or ``process`` utilization."""

    method: str
    by_pid: Mapping[int, float]


NOBODY: Final = Owner(None, None, None)
DISPUTED: Final = Owner(None, None, AMBIGUOUS)


class Owners:
    """What is known about owners on this node, asked anew with ``update``. Used from one thread.

    ``unknown_devices`` counts spellings of devices that could not be read or found here.
    """

    def __init__(self, jobs: JobReader | None, processes: ProcessTable | None = None) -> None:
        """Ask ``jobs``, and ``processes`` where the source tells whose a process is by its control group."""
        self.unknown_devices: Counter[str] = Counter()
        self.holdings: tuple[Holding, ...] = ()
        self.resolves_pids = processes is not None and processes.sees_host_pids()
        self._jobs = jobs
        self._names = jobs if isinstance(jobs, NamesProcesses) else None
        self._processes = processes
        self._claims: dict[ProcessId, Claim | None] = {}
        self._last_of: dict[int, ProcessId] = {}
        self._mapped: set[str] = set()

    def update(self, devices: Sequence[NodeDevice]) -> None:
        """Ask who holds what. Where nobody answers, what was known last still stands.

        Raises:
            TrueloadError: the place that knows jobs cannot be asked now.

        """
        if self._jobs is not None:
            self.holdings = tuple(self._placed(held, devices) for held in self._jobs.holdings())
            self._claims = {who: claim for who, claim in self._claims.items() if claim is not None}
        if len(self._last_of) > _REMEMBERED_PROCESSES:
            self._claims.clear()
            self._last_of.clear()

    def see(self, pids: Iterable[int]) -> None:
        """Look up processes while they live, so that a row that is made after their end still knows whose they were."""
        for pid in pids:
            self.claim_of(pid)

    def of_pid(self, pid: int) -> Owner | None:
        """Say whose a process is that the driver named; None when nobody can tell.

        Without the host's pids nothing is looked up: such a number may be anybody's here.
        """
        claim = self.claim_of(pid)
        return None if claim is None else Owner(claim.attempt_key, None, PROCESS)

    def of_device(
        self, device_uuid: str, start_at: float, end_at: float, pids: Iterable[int], uses: Sequence[Use] = ()
    ) -> tuple[Owner, ...]:
        """Say whose ``[start_at, end_at)`` on a device is: one owner, or all that share it.

        ``pids`` are the processes seen on the device meanwhile, ``uses`` what is known of their shares, best first. A
        process that belongs to another attempt is a witness against the scheduler's word; one that nobody knows is not.
        """
        seen = {pid for pid in pids if not self.is_mps(pid)}
        claims = {pid: claim.attempt_key for pid in seen if (claim := self.claim_of(pid)) is not None}
        self._mapped.update(claims.values())
        holding = _by_attempt(held for held in self.holdings if _holds(held, device_uuid, (start_at + end_at) / 2))
        running = set(claims.values())
        if len(holding) > 1 and all(held.is_shared for held in holding):
            return _split(holding, claims, seen, uses)
        if len(holding) > 1:
            return (DISPUTED,)
        if not holding:
            return (self._unheld(running, has_strangers=bool(seen & self._last_of.keys())),)
        if running - {holding[0].attempt_key}:
            return (DISPUTED,)
        return (Owner(holding[0].attempt_key, 1.0 if holding[0].is_shared else holding[0].share_ratio, SCHEDULER),)

    def is_shared(self, device_uuid: str) -> bool:
        """Say whether several may hold a device at the same time."""
        return any(held.is_shared and held.device_uuid == device_uuid for held in self.holdings)

    def mapped_jobs(self) -> tuple[int, int]:
        """Give how many of the attempts that hold devices now had a process that was found to be theirs."""
        holding = {held.attempt_key for held in self.holdings if held.end_at is None}
        self._mapped &= holding
        return len(self._mapped), len(holding)

    def claim_of(self, pid: int) -> Claim | None:
        """Say which attempt a process belongs to, by which witness."""
        listed = {held.attempt_key for held in self.holdings if held.pids is not None and pid in held.pids}
        if listed:
            return Claim(listed.pop(), SCHEDULER) if len(listed) == 1 else None
        if self._processes is None or not self.resolves_pids or self._names is None:
            return None
        who = self._processes.identity(pid) or self._last_of.get(pid)
        if who is None:
            return None
        self._last_of[pid] = who
        if who not in self._claims:
            self._claims[who] = self._ask(self._names, self._processes, who)
        return self._claims[who]

    def is_mps(self, pid: int) -> bool:
        """Say whether a process is the MPS server or its daemon, which work for others and are never a job."""
        return self._processes is not None and self.resolves_pids and self._processes.name(pid) == MPS_NAME

    def _ask(self, jobs: NamesProcesses, processes: ProcessTable, who: ProcessId) -> Claim | None:
        """Ask whose a process is; what was read counts only if it was the same process before and after."""
        witness = Witness(
            who.pid,
            place_of(processes.cgroup_lines(who.pid)),
            processes.environ(who.pid),
            processes.user_id(who.pid),
        )
        try:
            claim = jobs.claim(witness)
        except Exception as error:  # noqa: BLE001 - what one process has in its files costs its own owner alone
            LOG.warning("process %d: whose it is cannot be told: %r", who.pid, error)
            return None
        return claim if processes.identity(who.pid) == who else None

    def _unheld(self, running: set[str], *, has_strangers: bool) -> Owner:
        if len(running) > 1:
            return DISPUTED
        if running:
            knows = self._names is not None and self._names.knows_allocations
            return Owner(running.pop(), 1.0, UNREQUESTED if knows else PROCESS)
        return Owner(None, None, STRAY) if has_strangers else NOBODY

    def _placed(self, held: Holding, devices: Sequence[NodeDevice]) -> Holding:
        """Give a holding with the UUID of its device, or with none when its spelling leads to no device here."""
        if held.device_uuid is None or any(device.uuid == held.device_uuid for device in devices):
            return held
        wanted = parse_device_id(held.device_uuid)
        uuid = None if wanted is None else find_device(wanted, devices)
        if uuid is None:
            self.unknown_devices[held.device_uuid] += 1
            # A card that is lost, or an instance that the driver does not list, is held all the same.
            uuid = wanted.uuid if wanted is not None and wanted.gpu_instance is None else None
        said = held.said or held.device_uuid
        is_shared = held.is_shared or (wanted is not None and wanted.is_replica)
        return replace(held, device_uuid=uuid, said=said, is_shared=is_shared)


def _holds(held: Holding, device_uuid: str, at: float) -> bool:
    return held.device_uuid == device_uuid and held.start_at <= at and (held.end_at is None or at < held.end_at)


def _by_attempt(holdings: Iterable[Holding]) -> list[Holding]:
    """Give one holding per attempt: two containers, or two replicas, of one attempt are one owner."""
    found: dict[str, Holding] = {}
    for held in holdings:
        before = found.setdefault(held.attempt_key, held)
        if before is not held:
            found[held.attempt_key] = replace(before, is_shared=before.is_shared and held.is_shared)
    return list(found.values())


def _split(
    holding: Sequence[Holding], claims: Mapping[int, str], seen: set[int], uses: Sequence[Use]
) -> tuple[Owner, ...]:
    """Split a device among those that share it: by the first use that says anything, else equally.

    What processes of nobody known used stays nobody's; what an attempt used that holds nothing here is told as such.
    """
    sharers = [held.attempt_key for held in holding]
    for use in uses:
        used = {pid: amount for pid, amount in use.by_pid.items() if pid in seen and amount > 0}
        total = sum(used.values())
        if not total:
            continue
        shares: dict[str | None, float] = dict.fromkeys(sharers, 0.0)
        for pid, amount in used.items():
            key = claims.get(pid)
            shares[key] = shares.get(key, 0.0) + amount / total
        return tuple(
            Owner(key, share, use.method if key is None or key in sharers else UNREQUESTED)
            for key, share in shares.items()
        )
    if set(claims.values()) - set(sharers):
        return (DISPUTED,)
    return tuple(Owner(key, 1 / len(sharers), EQUAL_SPLIT) for key in sharers)
