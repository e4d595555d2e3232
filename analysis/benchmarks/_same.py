"""Whether two documents say the same: texts and counts exactly, figures to a relative tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator

RELATIVE = 1e-6
ABSOLUTE = 1e-6
"""A sum in another order differs in its last digits; what is left of equal sums may be 0 or 1e-11 seconds."""


def differences(one: object, other: object, place: str = "") -> Iterator[str]:
    """Give every place in which two documents differ, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            yield f"{place}: {sorted(one)} against {sorted(other)}"
            return
        for key, value in one.items():
            yield from differences(value, other[key], f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            yield f"{place}: {len(one)} against {len(other)} entries"
            return
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{place}[{at}]")
    elif isinstance(one, float) or isinstance(other, float):
        if not _is_close(one, other):
            yield f"{place}: {one!r} against {other!r}"
    elif one != other:
        yield f"{place}: {one!r} against {other!r}"


def _is_close(one: object, other: object) -> bool:
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return False
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def count_values(document: object) -> int:
    """Count the values of a document: what a comparison held against each other."""
    if isinstance(document, dict):
        return sum(map(count_values, document.values()))
    if isinstance(document, list):
        return sum(map(count_values, document))
    return 1
