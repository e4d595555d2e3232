"""Every GPU of the catalogue for one family or job: the document behind ``trueload gpus --family`` and its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.account import total
from analysis.gpu_options import KNOWN_ERRORS, NoOption, Option, options
from analysis.gpu_site import site_gpus
from analysis.remedies.choose_gpu import MEMORY_MARGIN, subject_of
from analysis.remedy import Case
from warehouse.contract.errors import NotFoundError
from warehouse.contract.model import Subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.estimate import Range
    from analysis.evidence import AttemptEvidence
    from analysis.gpu_catalogue import Catalogue
    from analysis.gpu_options import Subject as Work
    from analysis.gpu_site import SiteGpus
    from analysis.repetition import FamilyReport
    from warehouse.contract.metrics import Rung
    from warehouse.contract.settings import Settings


def case_of(
    name: str, attempts: Sequence[AttemptEvidence], report: FamilyReport, rung: Rung | None, catalogue: Catalogue
) -> Case:
    """Give the case of a family, by its id, or of a job, by its key.

    Raises:
        NotFoundError: neither is known in the window.

    """
    family = next((one for one in report.families if one.family_id == name), None)
    members = tuple(family.attempts) if family else tuple(one for one in attempts if one.job_key == name)
    if not members:
        raise NotFoundError(f"no family or job {name[:100]!r} in the window; `trueload families` lists families")
    site = site_gpus(attempts, ((one.family_id, one.attempts) for one in report.families), catalogue)
    label = family.label if family else (members[0].name or members[0].scheduler_job_id)
    return Case(Subject("family" if family else "job", name), label, members, rung, 0.0, 0.0, site=site)


def choices_document(case: Case, settings: Settings) -> dict[str, Any]:
    """Give every model of the site, every other GPU of the catalogue, and every slice of the present one.

    Ratios are over the present GPU; that of cost is null where no provider prices both. In order of the likely cost,
    then of the likely time.

    Raises:
        NotFoundError: the GPU of the work, or how busy it was, is not known.

    """
    subject, site = subject_of(case, settings), case.site
    if subject is None or site is None:
        raise NotFoundError(
            f"{case.subject.id}: on which GPU model it ran, or how busy that was, is not known; an agent on the nodes, "
            "or a Prometheus with GPU metrics, would tell"
        )
    found = options(subject, _names(subject, site), site, settings[MEMORY_MARGIN])
    there = sorted((one for one in found if isinstance(one, Option)), key=_rank)
    account = total(one.gpu_seconds for one in case.attempts)
    return {
        "subject": {"kind": case.subject.kind, "id": case.subject.id},
        "label": case.label,
        "gpu": {
            "name": subject.model,
            "ids": [gpu.id for gpu in subject.gpus],
            "wait_seconds": _wait(site, subject.model),
        },
        "allocated_gpu_seconds": account.allocated,
        "busy_ratio": subject.busy_ratio,
        "memory_bytes": subject.memory_bytes,
        "sm_active_ratio": subject.sm_active_ratio,
        "options": [_option(one, site) for one in there],
        "not_estimable": [{"name": one.name, "reason": one.reason} for one in found if isinstance(one, NoOption)],
        "estimators": dict(KNOWN_ERRORS),
    }


def _names(subject: Work, site: SiteGpus) -> list[str]:
    """Name what the site has as the site does, and the rest of the catalogue by id."""
    at_hand = [name for name in site.models if name != subject.model]
    covered = {gpu.id for name in site.models for gpu in site.gpus(name)}
    return [*at_hand, *(gpu.id for gpu in site.catalogue.gpus if gpu.id not in covered)]


def _rank(one: Option) -> tuple[bool, float, float, str]:
    return (one.cost is None, 0.0 if one.cost is None else one.cost.likely, one.time.likely, one.name)


def _option(one: Option, site: SiteGpus) -> dict[str, Any]:
    return {
        "name": one.name,
        "ids": [gpu.id for gpu in one.gpus],
        "profile": one.profile,
        "at_site": one.profile is not None or one.name in site.models,
        "time_ratio": _range(one.time),
        "speed_ratio": _range(one.time.falling(lambda ratio: 1 / ratio)),
        "price_ratio": _range(one.price),
        "price_how": one.price_how,
        "cost_ratio": _range(one.cost),
        "energy_ratio": _range(one.energy),
        "memory_bytes": one.memory_bytes,
        "fits": one.fits,
        "estimator": one.estimator,
        "how": one.how,
        "confidence": one.confidence,
        "wait_seconds": _wait(site, one.name),
    }


def _wait(site: SiteGpus, name: str) -> float | None:
    wait = site.waits.get(name)
    return None if wait is None else wait.seconds


def _range(one: Range | None) -> dict[str, float] | None:
    return None if one is None else {"low": one.low, "likely": one.likely, "high": one.high}
