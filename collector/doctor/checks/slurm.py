"""Do Slurm's hooks tell which job holds what?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from collector import settings as names
from collector.doctor.check import Check, Finding, Site, Stage
from collector.jobs.slurm import JOBS_DIR, SlurmJobs
from warehouse.contract.errors import BadInputError

HOOKS: Final = (
    "install deploy/slurm's prolog and epilog, name them in slurm.conf with PrologFlags=Alloc, and reconfigure"
)
DAEMON: Final = "slurmd"


def _run(site: Site) -> Iterator[Finding]:
    if site.settings[names.JOB_SOURCE] != "slurm":
        if _has_slurmd(site):
            why = "slurmd runs here, and nobody is asked whose a device is"
            yield Finding("not asked", ok=False, reason=why, fix='agent.job_source = "slurm"')
        else:
            yield Finding("not used here")
        return
    folder = Path(site.settings[JOBS_DIR])
    jobs = SlurmJobs(folder, site.settings[names.CLUSTER])
    try:
        held = jobs.holdings()
    except BadInputError as error:
        yield Finding("no word of allocations", ok=False, reason=str(error), fix=HOOKS, needed=True)
        return
    count = len({holding.attempt_key for holding in held})
    yield Finding(f"{folder}: {count} jobs hold {len(held)} GPUs", needed=True)
    for name, why in list(jobs.refused.items())[:3]:
        fix = "only root may have written it: look who did, and remove it"
        yield Finding(f"{name} is left out", ok=False, reason=why, fix=fix)


def _has_slurmd(site: Site) -> bool:
    try:
        folders = [path for path in site.proc.iterdir() if path.name.isdigit()]
    except OSError:
        return False
    return any(_name(folder) == DAEMON for folder in folders)


def _name(folder: Path) -> str:
    try:
        return (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


CHECK = Check("slurm", "whether Slurm's hooks tell who holds what", Stage.OWNERS, _run)
