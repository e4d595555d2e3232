"""The remedy kind: one file in ``analysis/remedies/`` = one change that could give GPU time back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from analysis.evidence import AttemptEvidence
    from analysis.gpu_site import SiteGpus
    from warehouse.contract.metrics import Rung
    from warehouse.contract.model import Recommendation, Refusal, Subject
    from warehouse.contract.settings import AnySetting, Settings


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of a node as a whole: by device the time in which it was lost, within the window."""

    node: str
    lost: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One subject (a family, a job outside any family, a node) with the evidence of all its attempts in the window.

    ``rung`` is None where accounting alone is known, so that nothing is known of use. ``node`` is set for
    nodes alone; ``site`` tells of the GPU models that there are. ``neighbours`` are all families and jobs that are
    judged, those with most GPU time first, this one among them.
    """

    subject: Subject
    label: str
    attempts: Sequence[AttemptEvidence]
    rung: Rung | None
    since_at: float
    until_at: float
    node: NodeFacts | None = None
    site: SiteGpus | None = None
    neighbours: Sequence[Case] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """One remedy. ``judge`` gives a recommendation, a refusal with its reason, or None where it does not apply.

    ``subjects`` are the kinds of subject that it is put before.
    """

    name: str
    title: str
    description: str
    settings: tuple[AnySetting, ...]
    judge: Callable[[Case, Settings], Recommendation | Refusal | None]
    subjects: frozenset[str] = frozenset({"family", "job"})
