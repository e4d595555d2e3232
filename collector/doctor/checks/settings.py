"""Do the settings name sources and a job source that exist?"""

from __future__ import annotations

from collections.abc import Iterator

from collector import settings as names
from collector.agent import chosen_sources
from collector.doctor.check import Check, Finding, Site, Stage
from collector.registry import job_sources
from warehouse.contract.errors import BadUseError


def _run(site: Site) -> Iterator[Finding]:
    try:
        chosen = chosen_sources(site.settings)
    except BadUseError as error:
        yield Finding(
            "a source that does not exist", ok=False, reason=str(error), fix="mend agent.sources", needed=True
        )
    else:
        yield Finding(f"sources: {', '.join(source.name for source in chosen)}", needed=True)
    name, known = site.settings[names.JOB_SOURCE], job_sources()
    if name and name not in known:
        text = f"{names.JOB_SOURCE.name}: no job source {name!r}; there are {', '.join(known)}"
        yield Finding(
            "a job source that does not exist", ok=False, reason=text, fix="mend agent.job_source", needed=True
        )
    else:
        yield Finding(f"job source: {name or 'none'}", needed=True)


CHECK = Check("settings", "whether the settings name what exists", Stage.NODE, _run)
