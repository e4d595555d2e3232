"""Values of metrics as foreign programs write them: units, blanks, and what cannot be true."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from warehouse.contract.metrics import BY_NAME, is_possible
from warehouse.contract.units import BYTES_PER_GIB, BYTES_PER_KIB, BYTES_PER_MIB, Unit
from warehouse.importer import Altered

BLANK_FROM: Final = 140_737_488_355_328.0
"""From here on a number is one of DCGM's markers for "no value" (dcgm_structs.h, ``DCGM_FP64_BLANK``; those of whole
numbers of 64 bits lie higher). No metric of a device comes near it."""

BLANK_INT32: Final = (2_147_483_632.0, 2_147_483_647.0)
"""DCGM's markers in whole numbers of 32 bits (dcgm_structs.h, ``DCGM_INT32_BLANK`` and the ones after it)."""

BLANK_WORDS: Final = frozenset(
    {
        *("", "-", "n/a", "[n/a]", "na", "nan", "none", "null", "<<<null>>>", "unknown error", "[unknown error]"),
        *("[not supported]", "not supported", "[unknown]", "err!", "[gpu is lost]", "[insufficient permissions]"),
        *("not found", "[not found]", "[requested functionality has been deprecated]", "inf", "+inf", "-inf", "+nan"),
    }
)
"""How programs write that there is no value, in small letters."""

UNITS: Final[dict[str, tuple[Unit, float]]] = {
    "%": (Unit.RATIO, 0.01),
    "b": (Unit.BYTES, 1.0),
    "kib": (Unit.BYTES, float(BYTES_PER_KIB)),
    "mib": (Unit.BYTES, float(BYTES_PER_MIB)),
    "mb": (Unit.BYTES, float(BYTES_PER_MIB)),
    "gib": (Unit.BYTES, float(BYTES_PER_GIB)),
    "gb": (Unit.BYTES, float(BYTES_PER_GIB)),
    "w": (Unit.WATTS, 1.0),
    "mw": (Unit.WATTS, 1e-3),
    "kw": (Unit.WATTS, 1e3),
    "hz": (Unit.HERTZ, 1.0),
    "mhz": (Unit.HERTZ, 1e6),
    "ghz": (Unit.HERTZ, 1e9),
    "c": (Unit.CELSIUS, 1.0),
}
"""Units by their small letters. Old drivers write MB and GB for MiB and GiB."""

WIDE_UNITS: Final = frozenset({Unit.BYTES, Unit.JOULES})
"""Metrics of these units reach the markers of 32 bits by themselves."""


@lru_cache(maxsize=1 << 16)
def plain_number(text: str, *, decimal_comma: bool) -> float | None:
    """Read a number; None where it is none. ``decimal_comma`` says that a comma stands for the point."""
    if decimal_comma and text.count(",") == 1 and "." not in text:
        text = text.replace(",", ".")
    if not text or text[0] not in "+-.0123456789" or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def is_blank(value: float, unit: Unit | None) -> bool:
    """Say whether a number is a marker for "no value" of a metric of this unit."""
    if not math.isfinite(value) or abs(value) >= BLANK_FROM:
        return True
    return unit not in WIDE_UNITS and BLANK_INT32[0] <= value <= BLANK_INT32[1]


class Measures:
    """The metrics of one reading, checked: what is blank is absent, what cannot be true is left out and said."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self.metrics: dict[str, float] = {}
        self.altered: list[Altered] = []

    def put(self, column: str, value: float, factor: float, said: str, shown: str | None = None) -> None:
        """Add a value in another unit; ``said`` is what it is called where it comes from, ``shown`` how it stands."""
        metric = BY_NAME[column]
        if is_blank(value, metric.unit):
            self.altered.append(Altered(said, "blank, left out", shown or f"{value!r}"))
            return
        scaled = value * factor
        if is_possible(metric, scaled, math.inf):
            self.metrics[column] = scaled
        else:
            self.altered.append(Altered(said, "impossible value, left out", f"{shown or value!r}: {scaled:g}"))
