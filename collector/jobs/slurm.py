"""Slurm, as its node sees it: files that the prolog writes and the epilog ends, control groups, environments.

A file per job lies in ``agent.slurm_jobs_dir`` (``deploy/slurm/``)::

    job_id=77
    start_at=1700000000
    user_id=1000
    cluster=alex
    gpus=0,1
    end_at=1700003600

Only root may have written it: a user who could would give away their own waste. ``gpus`` are minor numbers or UUIDs.
``cluster`` is what Slurm calls itself, and so accounting; without it the agent's own setting counts.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector import job_source as kind
from collector.jobs._sacct import Sacct
from warehouse.contract.errors import BadInputError, UnreachableError
from warehouse.contract.node_keys import SLUID, SLURM, NodeKey
from warehouse.contract.settings import Setting, Settings

JOBS_DIR = Setting("agent", "slurm_jobs_dir", "/run/trueload/jobs", "path", "Where deploy/slurm's prolog writes.")
KEPT_SECONDS: Final = 600.0
"""What ended is told for so long: rows of ten seconds are made well within."""
_MOST_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One allocation on this node, as prolog and epilog wrote it."""

    job_id: str
    start_at: float
    end_at: float | None
    user_id: int | None
    sluid: str | None
    gpus: tuple[str, ...]
    is_shared: bool
    cluster: str | None = None


class SlurmJobs:
    """Reads the folder anew each time it is asked; a file that is not to be trusted is counted and left out."""

    knows_allocations = True

    def __init__(self, folder: Path, cluster: str, owner_id: int = 0, clock: Callable[[], float] = time.time) -> None:
        """Read files below ``folder`` that belong to the user ``owner_id``, root outside tests."""
        self.refused: dict[str, str] = {}
        """Files that were left out, and why."""
        self._folder = folder
        self._cluster = cluster
        self._owner_id = owner_id
        self._clock = clock
        self._jobs: tuple[SlurmJob, ...] = ()

    def holdings(self) -> list[kind.Holding]:
        """Give a holding per job and GPU.

        Raises:
            BadInputError: the folder is not there, or anybody but its owner can write into it.

        """
        self._jobs = tuple(self._read_all())
        self.knows_allocations = True
        return [
            kind.Holding(
                str(self._key(job)),
                gpu,
                job.start_at,
                job.end_at,
                is_shared=job.is_shared,
                source="slurm_prolog",
            )
            for job in self._jobs
            for gpu in job.gpus
        ]

    def claim(self, witness: kind.Witness) -> kind.Claim | None:
        """Say whose a process is: by its control group, else by its environment where its user is the job's.

        A control group is the kernel's word; an environment is the user's, and believed only about their own jobs.
        """
        place = witness.place
        said = witness.environ.get("SLURM_JOB_ID", "")
        if place.slurm_job_id:
            return kind.Claim(self._of_id(place.slurm_job_id), "cgroup")
        if place.slurm_sluid:
            job = next((job for job in self._jobs if job.sluid == place.slurm_sluid), None)
            if job is None and said.isdigit():
                job = self._own(said, witness.user_id)
            return kind.Claim(
                str(NodeKey(self._cluster, SLUID, place.slurm_sluid) if job is None else self._key(job)), "cgroup"
            )
        job = self._own(said, witness.user_id) if said.isdigit() else None
        return None if job is None else kind.Claim(str(self._key(job)), "environ")

    def _own(self, job_id: str, user_id: int | None) -> SlurmJob | None:
        job = self._newest(job_id)
        return job if job is not None and user_id is not None and job.user_id == user_id else None

    def _newest(self, job_id: str) -> SlurmJob | None:
        own = [job for job in self._jobs if job.job_id == job_id]
        return max(own, key=lambda job: job.start_at, default=None)

    def _of_id(self, job_id: str) -> str:
        job = self._newest(job_id)
        return str(NodeKey(self._cluster, SLURM, job_id) if job is None else self._key(job))

    def _key(self, job: SlurmJob) -> NodeKey:
        return NodeKey(job.cluster or self._cluster, SLURM, job.job_id, job.start_at)

    def _read_all(self) -> list[SlurmJob]:
        try:
            self._trust(self._folder, stat.S_ISDIR)
            paths = sorted(path for path in self._folder.iterdir() if not path.name.startswith("."))
        except (OSError, ValueError) as cause:
            self.knows_allocations = False
            raise BadInputError(
                str(self._folder),
                None,
                f"cannot be read as Slurm's allocations ({cause}); set up deploy/slurm's prolog",
            ) from cause
        self.refused = {}
        jobs = []
        for path in paths:
            try:
                self._trust(path, stat.S_ISREG)
                job = _parse(path.read_bytes()[:_MOST_BYTES].decode("utf-8"))
            except (OSError, ValueError, KeyError) as cause:
                self.refused[path.name] = repr(cause)
                continue
            if job.end_at is None or job.end_at > self._clock() - KEPT_SECONDS:
                jobs.append(job)
        return jobs

    def _trust(self, path: Path, is_kind: Callable[[int], bool]) -> None:
        """Take only what nobody but the owner can have written."""
        status = path.lstat()
        if not is_kind(status.st_mode):
            raise ValueError(f"{path} is no file or folder of its own")
        if status.st_uid != self._owner_id or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError(f"{path} can be written by others than user {self._owner_id}")


def _parse(text: str) -> SlurmJob:
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if not fields["job_id"].isdigit():
        raise ValueError(f"job_id is {fields['job_id']!r}, expected a number")
    return SlurmJob(
        job_id=fields["job_id"],
        start_at=float(fields["start_at"]),
        end_at=float(fields["end_at"]) if fields.get("end_at") else None,
        user_id=int(fields["user_id"]) if fields.get("user_id") else None,
        sluid=fields.get("sluid") or None,
        gpus=tuple(name for name in fields.get("gpus", "").split(",") if name),
        is_shared=fields.get("shared") == "1",
        cluster=fields.get("cluster") or None,
    )


def _open(settings: Settings) -> SlurmJobs:
    from collector.settings import CLUSTER

    return SlurmJobs(Path(settings[JOBS_DIR]), settings[CLUSTER])


SACCT = Setting("jobs", "slurm_sacct", "sacct", "command", "Found through PATH, as the site installed it.")
CLUSTERS = Setting(
    "jobs", "slurm_clusters", "", "names", "Empty: the cluster of slurm.conf; else what sacct --clusters takes."
)
TIMEOUT_SECONDS = Setting(
    "jobs",
    "slurm_timeout_seconds",
    120.0,
    "seconds",
    "A database that prints nothing for so long is busy with others; a shorter window asks less of it.",
    1.0,
    3600.0,
)


class SlurmHistory:
    """Slurm's accounting, as ``sacct`` prints it."""

    format = "sacct"

    def __init__(self, sacct: Sacct, cluster: str) -> None:
        """Ask this ``sacct``."""
        self.cluster = sacct.clusters or cluster
        self._sacct = sacct
        self._fields: tuple[str, ...] = ()

    def pieces(self, since_at: float, until_at: float) -> Iterator[tuple[bytes, int]]:
        """See ``job_source.History``."""
        if not self._fields:
            self._fields = self._sacct.fields()
        try:
            yield from self._sacct.pieces(self._fields, since_at, until_at)
        except UnreachableError:
            self._fields = ()  # another version may answer next time
            raise


def _history(settings: Settings) -> SlurmHistory:
    from collector.settings import CLUSTER

    return SlurmHistory(Sacct(settings[SACCT], settings[CLUSTERS], settings[TIMEOUT_SECONDS]), settings[CLUSTER])


JOB_SOURCE = kind.JobSource(
    name="slurm",
    description="Slurm on its node: allocations from prolog and epilog, processes from control groups.",
    open=_open,
    settings=(JOBS_DIR, SACCT, CLUSTERS, TIMEOUT_SECONDS),
    history=_history,
)
