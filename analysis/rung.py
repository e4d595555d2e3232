"""Which rung of "how busy" a document uses: one for everything in it, and the document names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.frames import add_by
from analysis.settings import RUNG_COVERAGE_RATIO, RUNG_SUBJECT_RATIO
from warehouse.contract.errors import BadUseError
from warehouse.contract.metrics import RUNGS_BEST_FIRST, Rung

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analysis.frames import Floats, Ints
    from warehouse.contract.settings import Settings


def parse_rung(text: str) -> Rung:
    """Give the rung of that name.

    Raises:
        BadUseError: there is none.

    """
    try:
        return Rung(text)
    except ValueError as cause:
        raise BadUseError(f"rung: {text!r} is unknown; there are {', '.join(Rung)}") from cause


def choose_rung(known: Mapping[Rung, Floats], subject: Ints, settings: Settings) -> Rung | None:
    """Give the best rung that covers enough, in all and for every subject that weighs; None when nothing is known.

    ``known`` is, by rung, the GPU-seconds of each part for which the rung has a value; ``subject`` says whose each part
    is (a job's). "Enough" is ``waste.rung_coverage_ratio`` of what any rung knows: time of which no rung knows anything
    speaks for none. Where no rung covers enough, the one that covers most is taken.
    """
    size = int(subject.max(initial=-1)) + 1
    by_rung = {rung: add_by(subject, parts, size) for rung, parts in known.items()}
    any_rung = add_by(subject, np.max(list(known.values()), axis=0), size)
    whole = any_rung.sum()
    if whole <= 0:
        return None
    weighty = any_rung >= settings[RUNG_SUBJECT_RATIO] * whole
    enough = settings[RUNG_COVERAGE_RATIO]
    for rung in RUNGS_BEST_FIRST:
        covered = by_rung[rung]
        if covered.sum() >= enough * whole and (covered >= enough * any_rung)[weighty].all():
            return rung
    return max(RUNGS_BEST_FIRST, key=lambda rung: float(by_rung[rung].sum()))
