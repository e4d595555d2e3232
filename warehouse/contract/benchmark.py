"""The benchmark kind: one file in a room's ``benchmarks/`` = one question of ``docs/benchmarks.md``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from warehouse.contract.settings import Settings


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What a benchmark may use: the folder of sources, ways to a store and to questions, the settings.

    ``open_client`` and ``answers`` are those of ``warehouse.client``. ``seconds`` is how long one that lasts as long as
    it is told to shall last; None: as long as it sees fit.
    """

    data_root: Path
    full: bool
    open_client: Callable[[Path, bool], Any]
    settings: Settings
    answers: Callable[[], Mapping[str, Any]] = dict
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure that has to be reached: ``bar`` says in words and numbers what was asked."""

    name: str
    value: float | None
    bar: str
    holds: bool


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What a benchmark found. ``predictions`` are rows under ``prediction_columns``, one per judged item."""

    figures: Mapping[str, object]
    bars: Sequence[Bar]
    not_shown: Sequence[str]
    prediction_columns: tuple[str, ...] = ()
    predictions: Sequence[tuple[str, ...]] = field(default=())


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark. ``run`` raises BadInputError when a source is there and cannot be read.

    ``needs_sources`` is false for one that makes all it measures; it runs without a folder of sources.
    """

    name: str
    description: str
    run: Callable[[BenchRequest], BenchResult]
    needs_sources: bool = True


def at_least(name: str, value: float | None, least: float) -> Bar:
    """Give the bar of a figure that must not be smaller; one that could not be computed does not hold."""
    return Bar(name, value, f">= {least:g}", value is not None and value >= least)


def at_most(name: str, value: float | None, most: float) -> Bar:
    """Give the bar of a figure that must not be larger; one that could not be computed does not hold."""
    return Bar(name, value, f"<= {most:g}", value is not None and value <= most)
