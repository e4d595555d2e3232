"""The remedy kind: one file in ``analysis/remedies/`` = one change that could give GPU time back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analysis.evidence import AttemptEvidence
    from warehouse.contract.metrics import Rung
    from warehouse.contract.model import Recommendation, Refusal, Subject
    from warehouse.contract.settings import AnySetting, Settings


@dataclass(frozen=True, slots=True)
class Case:
    """One subject (a family, or a job outside any family) with the evidence of all its attempts in the window.

    ``rung`` is None where accounting alone is known, so that nothing is known of use.
    """

    subject: Subject
    label: str
    attempts: Sequence[AttemptEvidence]
    rung: Rung | None
    since_at: float
    until_at: float


@dataclass(frozen=True, slots=True)
class Remedy:
    """One remedy. ``judge`` gives a recommendation, a refusal with its reason, or None where it does not apply."""

    name: str
    title: str
    description: str
    settings: tuple[AnySetting, ...]
    judge: Callable[[Case, Settings], Recommendation | Refusal | None]
