"""What analyses read from the store: tables as Ibis expressions on any engine, results as NumPy arrays.

Expressions keep to a portable subset: no ASOF joins, no ordered list aggregates, no sketches. Inside
an expression an instant is a number of seconds since the epoch.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import ibis
import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from warehouse.contract.rollups import RolledHour

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

MICROSECONDS = 1_000_000.0
_HOUR = 3600
_FIRST = -62_135_596_800.0
"""The first second of the year 1: no engine knows an earlier one."""


class Tables(Protocol):
    """The tables of the store that analyses read, each an Ibis table with the columns of the schema."""

    @property
    def job(self) -> Any: ...  # noqa: D102 - the class says it
    @property
    def attempt(self) -> Any: ...  # noqa: D102
    @property
    def allocation(self) -> Any: ...  # noqa: D102
    @property
    def attempt_summary(self) -> Any: ...  # noqa: D102
    @property
    def device(self) -> Any: ...  # noqa: D102
    @property
    def event(self) -> Any: ...  # noqa: D102
    @property
    def device_sample(self) -> Any: ...  # noqa: D102
    @property
    def host_sample(self) -> Any: ...  # noqa: D102
    @property
    def process_sample(self) -> Any: ...  # noqa: D102
    @property
    def kernel_profile(self) -> Any: ...  # noqa: D102
    @property
    def length_profile(self) -> Any: ...  # noqa: D102
    @property
    def rollup_1m(self) -> Any: ...  # noqa: D102
    @property
    def rollup_1h(self) -> Any: ...  # noqa: D102
    @property
    def rollup_source(self) -> Any: ...  # noqa: D102
    @property
    def rolled(self) -> Sequence[RolledHour]:
        """Give the hours that are to be read from roll-ups, in order."""
        ...


def seconds(instant: Any) -> Any:
    """Give a timestamp column as seconds since the epoch, exact to the microsecond."""
    return instant.delta(ibis.timestamp("1970-01-01 00:00:00"), unit="microsecond") / MICROSECONDS


def timestamp(at: float) -> Any:
    """Give an instant as a timestamp literal, so that a filter on the raw column can skip what it does not need."""
    return ibis.timestamp(str(np.datetime64(round(max(at, _FIRST) * MICROSECONDS), "us")))


def rolled_span(tables: Tables) -> tuple[float, float] | None:
    """Give the first hours that are summed up without a hole between them, as one span; None: there are none."""
    hours = [round(one.hour_at) for one in tables.rolled]
    if not hours:
        return None
    after = next((at for at, following in itertools.pairwise(hours) if following - at > _HOUR), hours[-1])
    return hours[0], after + _HOUR


def not_rolled(tables: Tables) -> Any:
    """Give samples of devices without those of the hours of :func:`rolled_span`."""
    samples, span = tables.device_sample, rolled_span(tables)
    if span is None:
        return samples
    since, until = timestamp(span[0]), timestamp(span[1])
    return samples.filter((samples.sampled_at < since) | (samples.sampled_at >= until))


def united(*parts: Any) -> Any:
    """Put rows of the same columns together, whether or not a table says of a column that it is always there."""
    loose = [
        part.cast({name: kind.copy(nullable=True) for name, kind in part.schema().items() if not kind.nullable})
        for part in parts
    ]
    return ibis.union(*loose)


def local_table(columns: Mapping[str, Sequence[Any] | Floats | Ints], schema: Mapping[str, Any]) -> Any:
    """Give rows of our own as a table that expressions can join to, with Arrow types by column."""
    return ibis.memtable(pa.table({name: pa.array(columns[name], type=kind) for name, kind in schema.items()}))


class Columns:
    """A small result by column: numbers as ``float64`` with NaN for absent, everything else as lists with None."""

    def __init__(self, columns: Mapping[str, Sequence[Any]], numbers: Mapping[str, Floats], rows: int) -> None:
        """Take the columns over; use ``fetch``."""
        self._columns = columns
        self._numbers = numbers
        self.rows = rows

    @property
    def number_names(self) -> Sequence[str]:
        """Give the names of the columns of numbers."""
        return tuple(self._numbers)

    def numbers(self, name: str) -> Floats:
        """Give a column of numbers."""
        return self._numbers[name]

    def values(self, name: str) -> Sequence[Any]:
        """Give a column of anything else."""
        return self._columns[name]


def fetch(expression: Any) -> Columns:
    """Run an expression and bring its rows here."""
    table = expression.to_pyarrow()
    others: dict[str, Sequence[Any]] = {}
    numbers: dict[str, Floats] = {}
    for field in expression.schema().items():
        name, kind = field
        if kind.is_numeric():
            numbers[name] = table.column(name).cast("float64").to_numpy()
        else:
            others[name] = table.column(name).to_pylist()
    return Columns(others, numbers, table.num_rows)


def codes(values: Iterable[Hashable]) -> tuple[Ints, list[Any]]:
    """Number the distinct values in order of appearance; None is a value like any other."""
    known: dict[Hashable, int] = {}
    numbered = np.fromiter((known.setdefault(value, len(known)) for value in values), dtype=np.int64)
    return numbered, list(known)


def add_by(group: Ints, values: Floats, groups: int) -> Floats:
    """Give the sum of the values of each group."""
    return np.bincount(group, values, groups).astype(np.float64)


def none_if_nan(value: float) -> float | None:
    """Give a number to the outside, where absent is None."""
    return None if np.isnan(value) else float(value)
