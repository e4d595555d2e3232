"""Which rung a document uses."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.rung import choose_rung, parse_rung
from warehouse.contract.errors import BadUseError
from warehouse.contract.metrics import Rung
from warehouse.contract.settings import Settings


def choose(*parts: tuple[float, float, float]) -> Rung | None:
    """Choose for jobs with so many known seconds of GPU-bound time, engine active and driver utilization."""
    known = {
        rung: np.array([part[at] for part in parts])
        for at, rung in enumerate((Rung.GPU_BOUND, Rung.ENGINE_ACTIVE, Rung.DRIVER_UTIL))
    }
    return choose_rung(known, np.arange(len(parts)), Settings())


def test_the_best_rung_that_covers_ninety_percent_is_used() -> None:
    assert choose((90.0, 100.0, 100.0)) is Rung.GPU_BOUND
    assert choose((89.0, 100.0, 100.0)) is Rung.ENGINE_ACTIVE


def test_a_rung_must_cover_each_job_that_weighs() -> None:
    assert choose((1000.0, 0.0, 1000.0), (0.0, 0.0, 20.0)) is Rung.DRIVER_UTIL


def test_a_job_of_less_than_a_hundredth_has_no_say() -> None:
    assert choose((1000.0, 0.0, 1000.0), (0.0, 0.0, 5.0)) is Rung.GPU_BOUND


def test_time_that_no_rung_knows_speaks_for_none() -> None:
    assert choose((50.0, 0.0, 50.0), (0.0, 0.0, 0.0)) is Rung.GPU_BOUND
    assert choose((0.0, 0.0, 0.0)) is None
    assert choose() is None


def test_where_none_covers_enough_the_one_that_covers_most_is_used() -> None:
    assert choose((60.0, 0.0, 0.0), (0.0, 0.0, 40.0)) is Rung.GPU_BOUND


def test_an_unknown_rung_is_refused_with_those_there_are() -> None:
    assert parse_rung("gpu_bound") is Rung.GPU_BOUND
    with pytest.raises(BadUseError, match="driver_util, engine_active, gpu_bound"):
        parse_rung("mfu")
