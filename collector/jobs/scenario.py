"""The scheduler of a simulated cluster: a file that says which attempt holds which device, and with which processes.

The file is replaced as a whole whenever something changes::

    {"holdings": [{"attempt_key": "demo/17#0:1700000000", "device_uuid": "GPU-…", "start_at": 1700000000,
                   "end_at": null, "pids": [4711]}]}
"""

from __future__ import annotations

import json
from pathlib import Path

from collector.job_source import Holding, JobSource
from warehouse.contract.errors import BadInputError, BadUseError
from warehouse.contract.settings import Setting, Settings

JOBS_FILE = Setting("agent", "scenario_jobs_file", "", "path", "A simulated cluster alone has one, from its player.")


class ScenarioJobs:
    """Reads the file again when it was replaced."""

    def __init__(self, path: Path) -> None:
        """Read this file."""
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._holdings: tuple[Holding, ...] = ()

    def holdings(self) -> tuple[Holding, ...]:
        """Give what the file says.

        Raises:
            BadInputError: it cannot be read.

        """
        try:
            status = self._path.stat()
            seen = (status.st_ino, status.st_mtime_ns)
            if seen != self._seen:
                document = json.loads(self._path.read_text(encoding="utf-8"))
                self._holdings = tuple(
                    Holding(
                        attempt_key=str(entry["attempt_key"]),
                        device_uuid=str(entry["device_uuid"]),
                        start_at=float(entry["start_at"]),
                        end_at=None if entry["end_at"] is None else float(entry["end_at"]),
                        pids=frozenset(map(int, entry["pids"])),
                    )
                    for entry in document["holdings"]
                )
                self._seen = seen
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise BadInputError(str(self._path), None, f"cannot be read as holdings ({cause!r})") from cause
        return self._holdings


def _open(settings: Settings) -> ScenarioJobs:
    if not settings[JOBS_FILE]:
        raise BadUseError(f"job source scenario: set {JOBS_FILE.name} to the file that the player writes")
    return ScenarioJobs(Path(settings[JOBS_FILE]))


JOB_SOURCE = JobSource(
    name="scenario",
    description="The scheduler of a simulated cluster, read from the file that its player writes.",
    open=_open,
    settings=(JOBS_FILE,),
)
